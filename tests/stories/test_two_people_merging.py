"""Two people work on one price list, each on a branch, and bring their work together.

Ann and Bob start on Monday from the same list. Most of what they do fits together by itself. Where both changed the
same item, nothing is merged until they decide which price counts.
"""

from __future__ import annotations

import pytest

import conroi
from conroi.branches.results import Choice, Conflict

pytestmark = pytest.mark.contract("B3")


def prices(lake: conroi.Lake) -> dict[str, float]:
    return {row["item"]: row["price"] for row in lake["prices"].to_arrow().to_pylist()}


def set_price(lake: conroi.Lake, item: str, price: float) -> None:
    row = [{"item": item, "price": price}]
    lake["prices"].merge(row, on="item").when_matched_update_all().when_not_matched_insert_all().execute()


@pytest.fixture
def lake(uri: str) -> conroi.Lake:
    """Monday's list, and a branch for each of the two."""
    lake = conroi.connect(uri)
    monday = [{"item": "tea", "price": 2.0}, {"item": "cake", "price": 3.0}, {"item": "soup", "price": 4.0}]
    lake.create_table("prices", monday, key="item")
    lake.branches.create("ann")
    lake.branches.create("bob")
    return lake


def test_what_fits_together_is_merged_without_a_question(lake: conroi.Lake) -> None:
    ann, bob = lake.branch("ann"), lake.branch("bob")
    set_price(ann, "tea", 2.5)
    ann["prices"].delete("item = 'soup'")
    set_price(bob, "cake", 3.5)
    set_price(bob, "pie", 5.0)

    assert str(lake.merge("ann")) == "merged ann@4 into main@3\n  prices: fast-forward"
    assert str(lake.merge("bob")) == "merged bob@4 into main@4\n  prices: merged, 1 inserted, 1 updated"

    assert prices(lake) == {"tea": 2.5, "cake": 3.5, "pie": 5.0}
    # Ann goes on from there: she takes what Bob did into her branch.
    ann.merge("main")
    assert prices(ann) == prices(lake)


def test_where_both_changed_one_item_a_person_must_decide(lake: conroi.Lake) -> None:
    ann, bob = lake.branch("ann"), lake.branch("bob")
    set_price(ann, "tea", 2.5)
    set_price(ann, "cake", 3.1)
    set_price(bob, "tea", 2.2)
    bob["prices"].delete("item = 'cake'")
    lake.merge("ann")

    # What would happen? Nothing is done by asking.
    for conflict in lake.merge("bob", dry_run=True).conflicts:
        print(conflict)

    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("bob")
    assert sorted(str(conflict) for conflict in caught.value.conflicts) == [
        "prices [item='cake']: deleted on the source, changed on the other branch",
        "prices [item='tea']: changed on both branches",
    ]
    assert prices(lake) == {"tea": 2.5, "cake": 3.1, "soup": 4.0}, "Ann's, as it was"

    # The rule of the house: the lower price, and nothing is taken off the list.
    def lower(conflict: Conflict) -> Choice:
        if conflict.source is None or conflict.target is None:
            return "target" if conflict.source is None else "source"
        return "source" if conflict.source["price"] < conflict.target["price"] else "target"

    lake.merge("bob", prefer=lower, author="the two of them")

    assert prices(lake) == {"tea": 2.2, "cake": 3.1, "soup": 4.0}
    assert lake.history(1)[0].author == "the two of them"
    assert not lake.merge("bob").has_changes, "and it was decided once for all"
