"""What a lake promises, wherever its history is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import lance
import pytest

import conroi
from conroi.catalog.publication import Publishing
from tests.catalog.conftest import Connect
from tests.support.arrow import column_values


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(table.to_arrow()["id"]))


@pytest.fixture
def lake(connect: Connect) -> conroi.Lake:
    lake = connect()
    with lake.begin("two tables") as tx:
        tx.create_table("a", [{"id": 1}], key="id")
        tx.create_table("b", [{"id": 1}])
    return lake


@pytest.mark.contract("P1", "X6")
def test_two_tables_move_at_once(lake: conroi.Lake, connect: Connect):
    before = lake.version
    with lake.begin("both", author="Ada", properties={"job": "7"}) as tx:
        tx["a"].append([{"id": 2}])
        tx["b"].append([{"id": 2}])
    other = connect()
    assert (ids(other["a"]), ids(other["b"]), other.version) == ([1, 2], [1, 2], before + 1)
    (newest,) = other.history(1)
    assert (newest.message, newest.author, newest.tables) == ("both", "Ada", {"a": 2, "b": 2})
    assert newest.properties == {"job": "7"}
    assert [ids(other.at(version=before)[name]) for name in ("a", "b")] == [[1], [1]]
    for name in ("a", "b"):  # pylance, by path, sees the same
        assert sorted(column_values(lance.dataset(other[name].uri).to_table()["id"])) == [1, 2]


@pytest.mark.contract("P1")
def test_an_error_leaves_nothing(lake: conroi.Lake, connect: Connect):
    before = lake.version

    def fails(tx: conroi.Transaction) -> None:
        tx["a"].append([{"id": 2}])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lake.run(fails)
    assert (connect().version, ids(connect()["a"])) == (before, [1])


@pytest.mark.contract("P2")
@pytest.mark.parametrize(("expect", "actual"), [({"b": 7}, 1), ({"nope": 3}, 0), ({"a": 0}, 1)])
def test_a_table_that_is_not_as_expected_stops_the_commit(lake: conroi.Lake, expect: dict[str, int], actual: int):
    before = lake.version
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught, lake.begin(expect=expect) as tx:
        tx["a"].append([{"id": 2}])
    assert (caught.value.expected, caught.value.actual) == (*expect.values(), actual)
    assert (lake.version, ids(lake["a"])) == (before, [1])


def pause_after_check(monkeypatch: pytest.MonkeyPatch, concurrently: Callable[[], object], *, again: bool) -> None:
    """Run `concurrently` between the first check of a publication and its put.

    Without `again` the check of a second attempt is left out, which is what a check apart from the put would be.
    """
    real = Publishing.check_at
    calls: list[object] = []

    def check(self: Publishing, state: object) -> None:
        calls.append(self)
        if len(calls) > 1 and not again:
            return
        real(self, state)  # type: ignore[arg-type]
        if len(calls) == 1:
            monkeypatch.setattr(Publishing, "check_at", real if again else _unchecked)
            concurrently()
            monkeypatch.setattr(Publishing, "check_at", check)

    monkeypatch.setattr(Publishing, "check_at", check)


def _unchecked(_self: Publishing, _state: object) -> None:
    return


def move_b(connect: Connect) -> None:
    with connect().begin() as tx:
        tx["b"].append([{"id": 9}])


@pytest.mark.contract("P3", "X6")
def test_a_table_that_is_only_expected_cannot_move_between_check_and_put(
    lake: conroi.Lake, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    tx = lake.begin()
    tx["a"].append([{"id": 2}])
    tx.expect("b")
    pause_after_check(monkeypatch, lambda: move_b(connect), again=True)
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("b", 1, 2)
    assert ids(connect()["a"]) == [1]


@pytest.mark.contract("P3")
def test_control_a_check_that_is_made_only_once_lets_it_through(
    lake: conroi.Lake, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    tx = lake.begin()
    tx["a"].append([{"id": 2}])
    tx.expect("b")
    pause_after_check(monkeypatch, lambda: move_b(connect), again=False)
    assert tx.commit().tables == {"a": 2}
    assert (ids(connect()["a"]), ids(connect()["b"])) == ([1, 2], [1, 9])


@pytest.mark.contract("W3", "W4", "P5")
def test_both_writers_of_one_table_land(lake: conroi.Lake, connect: Connect):
    mine, theirs = lake.begin(), connect().begin()
    mine["a"].append([{"id": 2}])
    theirs["a"].append([{"id": 3}])
    theirs.commit()
    result = mine.commit()
    assert (result.rebased, ids(connect()["a"])) == ({"a": (2,)}, [1, 2, 3])


@pytest.mark.contract("W8")
def test_the_same_key_by_two_writers_is_refused_and_run_again(lake: conroi.Lake, connect: Connect):
    attempts: list[int] = []

    def work(tx: conroi.Transaction) -> None:
        attempts.append(tx.base_version)
        if len(attempts) == 1:
            with connect().begin() as other:
                other["a"].append([{"id": 5}])
        highest = max(column_values(tx["a"].to_arrow()["id"]))
        tx["a"].append([{"id": highest + 4}])

    lake.run(work)
    assert (len(attempts), ids(connect()["a"])) == (2, [1, 5, 9])


@pytest.mark.contract("P4")
def test_losing_only_the_next_number_is_no_conflict(
    lake: conroi.Lake, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    tx = lake.begin(retries=0)
    tx["a"].append([{"id": 2}])
    pause_after_check(monkeypatch, lambda: move_b(connect), again=True)
    attempts = 1 if lake.catalog.heads.compares_in_put else 2
    assert tx.commit().attempts == attempts
    assert [commit.tables for commit in lake.history(2)] == [{"a": 2}, {"b": 2}]
    assert (ids(lake["a"]), ids(lake["b"])) == ([1, 2], [1, 9])


def test_an_idempotency_key_is_published_once(lake: conroi.Lake, connect: Connect):
    with connect().begin(idempotency_key="batch 7") as tx:
        tx["a"].append([{"id": 2}])
    assert not tx.result.was_done_before
    with connect().begin(idempotency_key="batch 7") as tx:
        tx["a"].append([{"id": 2}])
    assert tx.result.was_done_before
    assert (tx.result.tables, ids(lake["a"])) == ({"a": 2}, [1, 2])


def test_of_eight_with_one_key_one_publishes(lake: conroi.Lake, connect: Connect):
    together = threading.Barrier(8)

    def work(_: int) -> bool:
        tx = connect().begin(idempotency_key="once")
        tx["b"].append([{"id": 2}])
        together.wait(30)
        return tx.commit().was_done_before

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(work, range(8))) == [False] + 7 * [True]
    assert ids(lake["b"]) == [1, 2]


@pytest.mark.contract("P9")
def test_dropped_and_made_again_is_another_table(lake: conroi.Lake, connect: Connect):
    old = lake["b"]
    stalled = lake.begin()
    stalled["b"].append([{"id": 2}])
    with connect().begin("replace") as tx:
        tx.drop_table("b")
        tx.create_table("b", [{"id": 100}])
    with pytest.raises(conroi.RetryableConflict, match="created again"):
        stalled.commit()
    assert (ids(connect()["b"]), ids(old)) == ([100], [1])
    assert connect()["b"].uri != old.uri


def test_the_past_is_found_by_number_and_time(lake: conroi.Lake, connect: Connect):
    between = datetime.now(UTC)
    lake["a"].append([{"id": 2}])
    assert [ids(connect().at(as_of=between)["a"]), ids(connect().at(version=lake.version)["a"])] == [[1], [1, 2]]
    for version in (lake.version + 1, 10_000):
        with pytest.raises(conroi.NotFoundError):
            lake.at(version=version)


@pytest.mark.contract("W8", "P5")
def test_many_threads_lose_no_update(lake: conroi.Lake, connect: Connect):
    with lake.begin() as tx:
        tx.create_table("n", [{"id": 1, "n": 0}])

    def work(_: int) -> None:
        mine = connect()

        def add(tx: conroi.Transaction) -> None:
            tx["n"].update({"n": "n + 1"}, where="id = 1")
            tx["b"].append([{"id": 2}])

        for _ in range(5):
            mine.run(add, retries=200)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert connect()["n"].to_arrow().to_pylist() == [{"id": 1, "n": 20}]
    assert connect()["b"].count_rows() == 21


@pytest.mark.contract("W10")
def test_a_transaction_that_never_commits_blocks_no_writer(lake: conroi.Lake, connect: Connect):
    forgotten = lake.begin()
    forgotten["a"].append([{"id": 2}])
    with connect().begin() as tx:
        tx["a"].append([{"id": 3}])
    assert ids(connect()["a"]) == [1, 3]


def test_a_lake_with_a_store_is_not_mistaken_for_another(connect: Connect, lake: conroi.Lake, tmp_path: Path):
    has_store = (tmp_path / "lake" / "__conroi.json").exists()
    message = "does not have the lake|not in this one" if has_store else "keeps its history in its own folder"
    with pytest.raises(conroi.InvalidInputError, match=message):
        conroi.connect(lake.uri, store=f"sqlite:///{tmp_path / 'other.db'}")
    if has_store:  # the folder alone can be read
        with pytest.raises(conroi.InvalidInputError, match="it can only be read"):
            conroi.connect(lake.uri).create_table("c", [{"id": 1}])
    assert connect().tables() == ["a", "b"]
