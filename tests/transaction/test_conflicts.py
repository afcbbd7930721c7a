"""Transactions on tables that moved: put on top by row, done again, or refused; never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import conroi
from conroi.catalog.publication import Publishing
from conroi.testing import FaultyObjects, Meter, call_before, connect_through
from tests.support.arrow import column_values
from tests.support.paused_commits import paused_before_publication, while_paused
from tests.support.refusals import assert_helpful

Stage = Callable[[Any], object]


@pytest.mark.contract("W3")
@pytest.mark.parametrize(
    "stage", [lambda t: t.update({"n": "0"}, where="id = 1"), lambda t: t.delete("id = 1")], ids=["update", "delete"]
)
def test_changes_of_other_rows_of_a_table_that_moved_are_put_on_top(
    lake: conroi.Lake, other: conroi.Lake, stage: Stage
):
    tx = lake.begin()
    stage(tx["orders"])
    other["orders"].update({"n": "n + 7"}, where="id = 2")
    other["orders"].append([{"id": 4, "n": 40}])
    tx.commit()
    assert tx.result.rebased == {"orders": (2, 3)}
    rows = {row["id"]: row["n"] for row in lake["orders"].to_arrow().to_pylist()}
    assert {key: rows[key] for key in (2, 3, 4)} == {2: 27, 3: 30, 4: 40}
    assert rows.get(1, 0) == 0


@pytest.mark.contract("W3")
@pytest.mark.parametrize(
    "stage", [lambda t: t.update({"n": "0"}, where="id = 1"), lambda t: t.delete("id = 1")], ids=["update", "delete"]
)
def test_changes_of_the_same_rows_are_refused_and_the_other_ones_stay(
    lake: conroi.Lake, other: conroi.Lake, stage: Stage
):
    tx = lake.begin()
    stage(tx["orders"])
    other["orders"].update({"n": "n + 7"}, where="id = 1")
    with pytest.raises(conroi.RetryableConflict) as caught:
        tx.commit()
    assert caught.value.reason is not None
    assert lake["orders"].to_arrow(filter="id = 1")["n"].to_pylist() == [17]


@pytest.mark.contract("W3")
@pytest.mark.parametrize(
    "stage",
    [
        lambda t: t.overwrite([{"id": 50, "n": 1}]),
        lambda t: t.restore(1),
        lambda t: t.delete("id = 1", strict=True),
        lambda t: t.append([{"id": 50, "n": 1}], strict=True),
    ],
    ids=["overwrite", "restore", "strict delete", "strict append"],
)
@pytest.mark.parametrize("before", [0, 1], ids=["alone", "after another statement"])
def test_a_change_that_cannot_be_rebased_is_refused_when_the_table_moved(
    lake: conroi.Lake, other: conroi.Lake, stage: Stage, before: int
):
    tx = lake.begin()
    if before:
        tx["orders"].append([{"id": 60, "n": 1}])
    stage(tx["orders"])
    other["orders"].append([{"id": 4, "n": 40}])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert sorted(column_values(lake["orders"].to_arrow()["id"])) == [1, 2, 3, 4]


@pytest.mark.contract("W4")
def test_inserts_and_merges_on_a_table_that_moved_are_there_once(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    merge = tx["orders"].merge([{"id": 3, "n": 33}, {"id": 5, "n": 50}], on="id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    tx["rates"].append([{"name": "c", "rate": 3}])
    other["orders"].append([{"id": 4, "n": 40}])
    other["rates"].append([{"name": "c", "rate": 3}])
    tx.commit()
    rows = {row["id"]: row["n"] for row in lake["orders"].to_arrow().to_pylist()}
    assert rows == {1: 10, 2: 20, 3: 33, 4: 40, 5: 50}
    assert lake["orders"].count_rows() == 5
    assert lake["rates"].count_rows(filter="name = 'c'") == 2


@pytest.mark.contract("W4")
def test_two_transactions_that_insert_one_key_leave_one_row(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx["orders"].append([{"id": 4, "n": 1}])
    other["orders"].append([{"id": 4, "n": 2}])
    with pytest.raises(conroi.RetryableConflict):
        tx.commit()
    assert lake["orders"].to_arrow(filter="id = 4")["n"].to_pylist() == [2]


@pytest.mark.contract("W9")
@pytest.mark.parametrize(
    ("change", "stage"),
    [
        (lambda t: t.drop_columns(["n"]), lambda t: t.update({"n": "0"}, mode="columns")),
        (lambda t: t.add_columns({"x": "id"}), lambda t: t.add_columns({"y": "id"})),
        (lambda t: t.add_columns({"x": "id"}), lambda t: t.update({"n": "0"}, where="id = 1")),
        (lambda t: t.drop_columns(["n"]), lambda t: t.create_index("n")),
        (lambda t: t.overwrite(pa.table({"id": [1], "z": ["a"]})), lambda t: t.append([{"id": 9, "n": 1}])),
        (lambda t: t.rename_columns({"n": "m"}), lambda t: t.add_columns({"y": "n"})),
    ],
)
def test_a_schema_change_fails_a_commit_that_depends_on_it(
    lake: conroi.Lake, other: conroi.Lake, change: Stage, stage: Stage
):
    tx = lake.begin()
    stage(tx["orders"])
    tx["rates"].append([{"name": "c", "rate": 3}])
    change(other["orders"])
    with pytest.raises((conroi.RetryableConflict, conroi.IncompatibleConflict)):
        tx.commit()
    assert lake["rates"].count_rows() == 2, "nothing of the transaction is there"
    assert lake["orders"].version == 2


# ---------------------------------------------------------------------------------------- attempts


@pytest.mark.contract("P4", "P5")
def test_two_publishers_of_the_next_version_one_wins_and_the_other_is_put_on_top(lake: conroi.Lake, other: conroi.Lake):
    mine, gate = paused_before_publication(lake.uri)
    tx = mine.begin()
    tx["orders"].append([{"id": 4, "n": 40}])
    future = while_paused(gate, tx.commit, lambda: other["orders"].append([{"id": 5, "n": 50}]))
    assert future.exception() is None
    assert tx.result.tables == {"orders": 3}
    assert tx.result.rebased == {"orders": (2,)}
    assert sorted(column_values(lake["orders"].to_arrow()["id"])) == [1, 2, 3, 4, 5]


@pytest.mark.contract("P5")
def test_two_publishers_of_the_next_version_the_second_is_refused_where_the_rules_say_so(
    lake: conroi.Lake, other: conroi.Lake
):
    mine, gate = paused_before_publication(lake.uri)
    tx = mine.begin()
    tx["orders"].delete("id = 1")
    tx["rates"].append([{"name": "c", "rate": 3}])
    future = while_paused(gate, tx.commit, lambda: other["orders"].update({"n": "0"}, where="id = 1"))
    assert isinstance(future.exception(), conroi.RetryableConflict)
    assert lake["orders"].count_rows() == 3
    assert lake["rates"].version == 1


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The version of the lake at every check of a publication."""
    seen: list[int] = []
    check = Publishing.check_at

    def counted(self: Publishing, state: Any) -> None:
        seen.append(state.version)
        check(self, state)

    monkeypatch.setattr(Publishing, "check_at", counted)
    return seen


class Rival:
    """Publishes something before each of the first puts of another writer."""

    def __init__(self, lake: conroi.Lake, work: Callable[[conroi.Lake], object], times: int) -> None:
        def publish(_: object) -> None:
            work(conroi.connect(lake.uri))

        fault = call_before(publish, "put_if_absent", "_versions/*.manifest", times=times)
        self.meter = Meter()
        self.lake = connect_through(lake.uri, lambda objects: self.meter.counting(FaultyObjects(objects, [fault])))


@pytest.mark.contract("P4")
def test_expectations_are_checked_on_every_attempt(lake: conroi.Lake, checks: list[int]):
    rival = Rival(lake, lambda it: it.create_namespace(f"n{it.version}"), times=3)
    tx = rival.lake.begin(expect={"rates": 1})
    tx["orders"].append([{"id": 4, "n": 40}])
    base = tx.base_version
    checks.clear()
    tx.commit()
    assert tx.result.attempts == 4
    mine = [version for version in checks if version in range(base, base + 4)]
    assert sorted(set(mine)) == [base, base + 1, base + 2, base + 3]


@pytest.mark.contract("P4")
def test_every_put_is_an_attempt_that_was_checked(lake: conroi.Lake):
    """Nothing below tries again by itself: as many conditional puts reach the storage as there were attempts."""
    rival = Rival(lake, lambda it: it["orders"].append([{"id": 100 + it.version, "n": 0}]), times=3)
    tx = rival.lake.begin()
    tx["orders"].append([{"id": 4, "n": 40}])
    with rival.meter.measure() as measured:
        tx.commit()
    assert tx.result.attempts == 4
    assert measured.requests("put_if_absent", "manifest") == 4


@pytest.mark.contract("P4")
def test_five_lost_races_for_the_same_table_are_allowed_by_default_and_not_a_sixth(lake: conroi.Lake):
    rival = Rival(lake, lambda it: it["orders"].append([{"id": 100 + it.version, "n": 0}]), times=5)
    with rival.lake.begin() as tx:
        tx["orders"].append([{"id": 4, "n": 40}])
    assert tx.result.attempts == 6
    stubborn = Rival(lake, lambda it: it["orders"].append([{"id": 100 + it.version, "n": 0}]), times=99)
    tx = stubborn.lake.begin()
    tx["orders"].append([{"id": 5, "n": 50}])
    with pytest.raises(conroi.TooMuchContention) as caught:
        tx.commit()
    assert caught.value.attempts == 6
    assert lake["orders"].count_rows(filter="id = 5") == 0


@pytest.mark.contract("P4")
def test_no_retry_is_made_if_none_is_allowed(lake: conroi.Lake):
    rival = Rival(lake, lambda it: it["orders"].append([{"id": 100 + it.version, "n": 0}]), times=1)
    tx = rival.lake.begin(retries=0)
    tx["orders"].append([{"id": 4, "n": 40}])
    with pytest.raises(conroi.TooMuchContention) as caught:
        tx.commit()
    assert caught.value.attempts == 1


@pytest.mark.contract("P4")
def test_losing_only_the_number_to_other_tables_is_no_conflict_however_often(lake: conroi.Lake):
    rival = Rival(lake, lambda it: it["rates"].append([{"name": "c", "rate": it.version}]), times=12)
    with rival.lake.begin(retries=0) as tx:
        tx["orders"].append([{"id": 4, "n": 40}])
    assert tx.result.attempts == 13
    assert tx.result.rebased == {}


@pytest.mark.contract("P4")
def test_losing_only_the_number_ends_after_a_time(lake: conroi.Lake):
    rival = Rival(lake, lambda it: it["rates"].append([{"name": "c", "rate": it.version}]), times=12)
    tx = rival.lake.begin(timeout=0.001)
    tx["orders"].append([{"id": 4, "n": 40}])
    with pytest.raises(conroi.TooMuchContention):
        tx.commit()


@pytest.mark.contract("P4")
def test_contention_that_breaks_an_expectation_is_refused_at_once(lake: conroi.Lake, checks: list[int]):
    rival = Rival(lake, lambda it: it["rates"].append([{"name": "c", "rate": it.version}]), times=12)
    tx = rival.lake.begin(expect={"rates": 1})
    tx["orders"].append([{"id": 4, "n": 40}])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (1, 2)


# ------------------------------------------------------------------------------------ all or nothing


@pytest.mark.contract("P6")
def test_one_table_that_cannot_be_published_stops_all(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin()
    tx["rates"].append([{"name": "c", "rate": 3}])
    tx.create_table("new", [{"a": 1}])
    tx["orders"].delete("id = 1")
    other["orders"].delete("id = 1")
    before = other.version
    with pytest.raises(conroi.RetryableConflict):
        tx.commit()
    assert other.version == before
    assert other.tables() == ["orders", "rates"]
    assert other["rates"].count_rows() == 2


@pytest.mark.contract("P6")
def test_a_table_that_comes_twice_in_one_publication_is_refused(lake: conroi.Lake):
    tx = lake.begin()
    tx["orders"].append([{"id": 4, "n": 40}])
    request = tx._request()
    twice = replace(request, tables=[*request.tables, *request.tables])
    with pytest.raises(conroi.InvalidInputError) as caught:
        Publishing(lake.catalog, twice).run()
    assert_helpful(caught.value, conroi.InvalidInputError, "orders")
    assert lake["orders"].version == 1


@pytest.mark.contract("P6")
def test_one_table_gets_one_new_version_however_it_is_called_in_the_transaction(lake: conroi.Lake):
    with lake.begin() as tx:
        tx["orders"].append([{"id": 4, "n": 40}])
        tx.table("orders").append([{"id": 5, "n": 50}])
        tx.rename_table("orders", "sales")
        tx["sales"].append([{"id": 6, "n": 60}])
        with pytest.raises(conroi.NotFoundError):
            tx["orders"]
    assert tx.result.tables == {"sales": 2}
    assert lake["sales"].count_rows() == 6
