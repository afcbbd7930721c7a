"""Tables that must not have moved when a transaction commits, written or only read."""

from __future__ import annotations

import pytest

import conroi
from conroi.catalog.publication import Publishing
from tests.support.paused_commits import paused_before_publication, while_paused
from tests.support.refusals import assert_helpful

ORDER = {"id": 9, "n": 90}
RATE = {"name": "c", "rate": 3}


@pytest.mark.contract("P2")
def test_an_empty_map_checks_nothing(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin(expect={})
    tx["orders"].append([ORDER])
    other["orders"].append([{"id": 8, "n": 80}])
    other["rates"].append([RATE])
    assert tx.commit().tables == {"orders": 3}


@pytest.mark.contract("P2")
@pytest.mark.parametrize("name", ["orders", "rates"])
def test_a_table_that_moved_is_named_with_both_versions_and_nothing_is_written(
    lake: conroi.Lake, other: conroi.Lake, name: str
):
    """`orders` is written as well, `rates` is only expected."""
    tx = lake.begin(expect={name: 1})
    tx["orders"].append([ORDER])
    other[name].append([{"id": 8, "n": 80}] if name == "orders" else [RATE])
    before = other.version
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == (name, 1, 2)
    assert not caught.value.is_retryable
    assert_helpful(caught.value, conroi.ExpectedVersionMismatch)
    assert other.version == before
    assert {"id": 9, "n": 90} not in other["orders"].to_arrow().to_pylist()


@pytest.mark.contract("P2")
def test_a_version_that_was_stale_when_the_transaction_began_is_refused(lake: conroi.Lake):
    lake["rates"].append([RATE])
    tx = lake.begin(expect={"rates": 1})
    tx["orders"].append([ORDER])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (1, 2)


@pytest.mark.contract("P2")
def test_an_unknown_table_is_at_version_0(lake: conroi.Lake):
    tx = lake.begin(expect={"nothing": 4})
    tx["orders"].append([ORDER])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("nothing", 4, 0)


@pytest.mark.contract("P2")
def test_a_dropped_table_counts_as_absent(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin(expect={"rates": 1})
    tx["orders"].append([ORDER])
    other.drop_table("rates")
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (1, 0)
    with lake.begin(expect={"rates": 0}) as again:
        again["orders"].append([ORDER])


@pytest.mark.contract("P2")
def test_version_0_says_that_a_table_must_not_be_there(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin(expect={"new": 0})
    tx["orders"].append([ORDER])
    other.create_table("new", [{"a": 1}])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (0, 1)


@pytest.mark.contract("P2", "P9")
@pytest.mark.parametrize("is_explicit", [True, False])
def test_a_table_made_again_at_the_same_version_is_another_one(
    lake: conroi.Lake, other: conroi.Lake, is_explicit: bool
):
    tx = lake.begin(expect={"rates": 1} if is_explicit else None)
    if not is_explicit:
        tx.expect("rates")
    tx["orders"].append([ORDER])
    other.drop_table("rates")
    other.create_table("rates", [RATE])
    with pytest.raises(conroi.ExpectedVersionMismatch, match="created again"):
        tx.commit()


@pytest.mark.contract("P2")
def test_a_transaction_that_writes_nothing_still_checks_what_it_expects(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin(expect={"rates": 1})
    other["rates"].append([RATE])
    with pytest.raises(conroi.ExpectedVersionMismatch):
        tx.commit()


@pytest.mark.contract("P2")
def test_an_expected_table_that_stays_lets_it_through(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx.expect("rates")
    tx["orders"].append([ORDER])
    other["orders"].append([{"id": 8, "n": 80}])
    assert tx.commit().tables == {"orders": 3}


# --------------------------------------------------------------------------- the race of the untouched table


@pytest.mark.contract("P3", "P4")
def test_a_table_that_moves_between_check_and_put_is_noticed(lake: conroi.Lake, other: conroi.Lake):
    """A has checked that `rates` did not move, and is about to publish `orders`; B publishes `rates`."""
    mine, gate = paused_before_publication(lake.uri)
    tx = mine.begin(expect={"rates": 1})
    tx["orders"].append([ORDER])
    future = while_paused(gate, tx.commit, lambda: other["rates"].append([RATE]))
    error = future.exception()
    assert isinstance(error, conroi.ExpectedVersionMismatch)
    assert (error.table, error.expected, error.actual) == ("rates", 1, 2)
    assert other["orders"].count_rows() == 3


@pytest.mark.contract("P3")
def test_control_a_check_that_is_made_only_once_lets_it_through(
    lake: conroi.Lake, other: conroi.Lake, monkeypatch: pytest.MonkeyPatch
):
    """The same race with a publisher that checks first and then goes on, as a compare-and-swap of rows would."""
    check = Publishing.check_at

    def only_once(self: Publishing, state: object) -> None:
        if not self.checks:
            check(self, state)  # type: ignore[arg-type]

    monkeypatch.setattr(Publishing, "check_at", only_once)
    mine, gate = paused_before_publication(lake.uri)
    tx = mine.begin(expect={"rates": 1})
    tx["orders"].append([ORDER])
    future = while_paused(gate, tx.commit, lambda: other["rates"].append([RATE]))
    assert future.exception() is None
    assert other["orders"].count_rows() == 4, "published although the table that it expects had moved"


@pytest.mark.contract("P3")
def test_without_an_expectation_a_publisher_of_other_tables_is_no_conflict(lake: conroi.Lake, other: conroi.Lake):
    mine, gate = paused_before_publication(lake.uri)
    tx = mine.begin()
    tx["orders"].append([ORDER])
    future = while_paused(gate, tx.commit, lambda: other["rates"].append([RATE]))
    assert future.exception() is None
    assert tx.result.attempts == 2
    assert tx.result.tables == {"orders": 2}
