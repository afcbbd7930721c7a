"""Time travel: every version stays readable, under its number, its tag, or a moment in time; and you can go back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import conroi
from conroi.testing import SeededEnvironment

pytestmark = pytest.mark.contract("T10")
MONDAY = datetime(2030, 1, 7, 9, 0, tzinfo=UTC)
DAY_S = 24 * 3600


def prices(table: conroi.Table) -> dict[str, float]:
    return {row["item"]: row["price"] for row in table.to_arrow().to_pylist()}


@pytest.fixture
def shop(uri: str) -> conroi.Table:
    """Three days of a price list, with a clock of our own: time passes when we say so."""
    clock = SeededEnvironment(1, start_ns=int(MONDAY.timestamp()) * 1_000_000_000)
    shop = conroi.create_table(uri, [{"item": "tea", "price": 2.0}], environment=clock)  # Monday, 9:00
    clock.sleep(DAY_S)
    shop = shop.append([{"item": "cake", "price": 3.0}])  # Tuesday, 9:00
    clock.sleep(DAY_S)
    return shop.update({"price": "price * 10"})  # Wednesday, 9:00, and a typing error


def test_a_past_version_is_read_by_number_time_and_tag(shop: conroi.Table) -> None:
    assert prices(shop) == {"tea": 20.0, "cake": 30.0}

    # By number: versions count from 1.
    assert prices(shop.at(1)) == {"tea": 2.0}

    # By time: what was on the list on Tuesday evening?
    assert prices(shop.at(as_of=MONDAY + timedelta(days=1, hours=9))) == {"tea": 2.0, "cake": 3.0}

    # By tag: a name for a version that means something.
    shop.tags.create("before-the-slip", 2)
    assert prices(shop.at(tag="before-the-slip")) == {"tea": 2.0, "cake": 3.0}


def test_a_restore_makes_a_new_version_with_the_old_content(shop: conroi.Table) -> None:
    # Restore makes a new version with the old content. The slip stays in the history, where it belongs.
    shop = shop.restore(2, message="undo the tenfold prices")
    assert (shop.version, prices(shop)) == (4, {"tea": 2.0, "cake": 3.0})
    assert prices(shop.at(3)) == {"tea": 20.0, "cake": 30.0}
    assert [(commit.version, commit.operation) for commit in shop.history(2)] == [(4, "Restore"), (3, "Update")]


def test_a_detached_version_is_invisible_until_it_is_restored(shop: conroi.Table) -> None:
    # A detached version is off the table's line of versions: only a reader with its number sees it.
    draft = shop.delete("item = 'tea'", detached=True)
    assert prices(draft) == {"cake": 30.0}
    assert prices(shop.latest()) == {"tea": 20.0, "cake": 30.0}

    # If you like it, restore it.
    assert prices(shop.restore(draft.version)) == {"cake": 30.0}


def test_a_version_that_is_not_there_is_named(shop: conroi.Table) -> None:
    with pytest.raises(conroi.NotFoundError, match="no version 77"):
        shop.at(77)
    with pytest.raises(conroi.NotFoundError, match="no version that old"):
        shop.at(as_of=MONDAY - timedelta(seconds=1))
