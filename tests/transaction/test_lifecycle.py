"""A transaction begins, commits once, and is dead; all of it happened or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from time import sleep
from typing import Any

import pyarrow as pa
import pytest

import conroi
from conroi.catalog.catalog import Catalog
from conroi.errors import StoreUnavailable
from conroi.storage.objects import Objects
from conroi.testing import FaultyObjects, Gate, call_before, connect_through, fail
from tests.support.arrow import column_values
from tests.support.paused_commits import PUBLICATION
from tests.support.refusals import assert_helpful

USES = [
    lambda tx: tx["orders"],
    lambda tx: tx.tables(),
    lambda tx: "orders" in tx,
    lambda tx: tx.create_table("x", [{"a": 1}]),
    lambda tx: tx.drop_table("orders"),
    lambda tx: tx.rename_table("orders", "x"),
    lambda tx: tx.expect("orders"),
    lambda tx: tx.commit(),
    lambda tx: tx.rollback(),
    lambda tx: tx.__enter__(),
]


def won(lake: conroi.Lake) -> Any:
    tx = lake.begin()
    tx["orders"].delete("id = 1")
    tx.commit()
    return tx


def lost(lake: conroi.Lake) -> Any:
    tx = lake.begin(expect={"rates": 99})
    tx["orders"].delete("id = 1")
    with pytest.raises(conroi.ExpectedVersionMismatch):
        tx.commit()
    return tx


def rolled_back(lake: conroi.Lake) -> Any:
    tx = lake.begin()
    with contextlib.suppress(ZeroDivisionError), tx:
        tx["orders"].delete("id = 1")
        _ = 1 / 0
    return tx


@pytest.mark.contract("W8")
@pytest.mark.parametrize("end", [won, lost, rolled_back])
def test_after_its_end_a_transaction_and_its_tables_cannot_be_used(lake: conroi.Lake, end: Any):
    tx = lake.begin()
    table = tx["orders"]
    tx.rollback()
    ended = end(lake)
    for use in USES:
        with pytest.raises(conroi.ClosedError) as caught:
            use(ended)
        assert_helpful(caught.value, conroi.ClosedError, "lake.begin()")
    for use_table in (
        lambda: table.append([{"id": 5, "n": 1}]),
        lambda: table.to_arrow(),
        lambda: table.count_rows(),
        lambda: table.version,
        lambda: table.at(1),
        lambda: table.merge([{"id": 5, "n": 1}], on="id"),
    ):
        with pytest.raises(conroi.ClosedError):
            use_table()


@pytest.mark.contract("W8")
def test_only_a_transaction_that_committed_has_a_result(lake: conroi.Lake):
    assert won(lake).result.tables == {"orders": 2}
    for tx in (lost(lake), rolled_back(lake), lake.begin()):
        with pytest.raises(conroi.ClosedError):
            _ = tx.result


@pytest.mark.contract("W8")
def test_an_error_inside_the_block_leaves_nothing(lake: conroi.Lake):
    before = lake.version
    rolled_back(lake)
    assert lake.version == before
    assert lake["orders"].count_rows() == 3


@pytest.mark.contract("W8")
def test_a_commit_that_fails_for_want_of_storage_is_dead_too(lake: conroi.Lake):
    broken = connect_through(lake.uri, lambda objects: FaultyObjects(objects, [fail("put", "_transactions/*")]))
    tx = broken.begin()
    tx["orders"].append([{"id": 5, "n": 50}])
    with pytest.raises(StoreUnavailable):
        tx.commit()
    with pytest.raises(conroi.ClosedError, match="failed to commit"):
        tx.commit()
    assert lake["orders"].version == 1


@pytest.mark.contract("W8")
def test_of_many_threads_that_commit_one_does(lake: conroi.Lake):
    tx = lake.begin()
    tx["orders"].append([{"id": 5, "n": 50}])
    barrier = Barrier(8)

    def commit(_: int) -> str:
        barrier.wait(30)
        try:
            tx.commit()
        except conroi.ClosedError:
            return "closed"
        return "committed"

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(commit, range(8)))
    assert sorted(said) == ["closed"] * 7 + ["committed"]
    assert lake["orders"].version == 2


# ------------------------------------------------------------------------------------------------ threads


@pytest.mark.contract("W7")
def test_threads_that_stage_on_one_table_open_it_once_and_lose_nothing(
    lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []
    snapshot = Catalog.snapshot

    def counting(self: Catalog, row: Any) -> Any:
        opened.append(row.object_id)
        return snapshot(self, row)

    mine = conroi.connect(lake.uri)
    monkeypatch.setattr(Catalog, "snapshot", counting)
    tx = mine.begin()
    barrier = Barrier(8)

    def work(number: int) -> None:
        barrier.wait(30)
        for step in range(3):
            tx["rates"].append([{"name": f"{number}-{step}", "rate": number}])
        tx["rates"].update({"rate": "rate + 100"}, where=f"name = '{number}-0'")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert opened == ["rates"]
    tx.commit()
    rows = {row["name"]: row["rate"] for row in lake["rates"].to_arrow().to_pylist()}
    assert rows == {
        "a": 1,
        "b": 2,
        **{f"{n}-{step}": n + 100 * (step == 0) for n in range(8) for step in range(3)},
    }
    assert lake["rates"].version == 2


@pytest.mark.contract("W7")
def test_a_failed_open_is_not_remembered(lake: conroi.Lake):
    def break_orders(objects: Objects) -> Objects:
        faults = [fail("get", "_versions/*.manifest*")] if objects.root.endswith("orders.lance") else []
        return FaultyObjects(objects, faults)

    tx = connect_through(lake.uri, break_orders).begin()
    with pytest.raises(StoreUnavailable):
        tx["orders"].count_rows()
    assert tx["orders"].count_rows() == 3


@pytest.mark.contract("W7")
def test_a_statement_that_comes_too_late_is_refused_and_not_lost(lake: conroi.Lake):
    """A thread is still writing its rows when another one commits."""
    hooks: list[Any] = []
    late = connect_through(
        lake.uri,
        lambda objects: FaultyObjects(objects, [call_before(lambda _: hooks.pop()() if hooks else None, times=None)]),
    )
    tx = late.begin()
    tx["rates"].append([{"name": "c", "rate": 3}])
    hooks.append(tx.commit)
    with pytest.raises(conroi.ClosedError):
        tx["rates"].delete("rate = 1")
    assert not hooks
    assert lake["rates"].count_rows() == 3


# ------------------------------------------------------------------------------------------- run


@pytest.mark.contract("W8")
def test_run_does_the_work_again_in_a_fresh_transaction(lake: conroi.Lake, other: conroi.Lake):
    seen: list[object] = []

    def work(tx: Any) -> int:
        if not seen:
            other["orders"].update({"n": "n + 1"}, where="id = 1")
        seen.append(tx)
        tx["orders"].update({"n": "n * 2"}, where="id = 1")
        return len(seen)

    assert lake.run(work) == 2
    assert seen[0] is not seen[1]
    assert lake["orders"].to_arrow(filter="id = 1")["n"].to_pylist() == [22]


@pytest.mark.contract("W8")
def test_run_gives_up_after_its_retries(lake: conroi.Lake, other: conroi.Lake):
    calls: list[int] = []

    def work(tx: Any) -> None:
        calls.append(1)
        tx["orders"].update({"n": "0"}, where="id = 1")
        other["orders"].update({"n": "n + 1"}, where="id = 1")

    with pytest.raises(conroi.RetryableConflict):
        lake.run(work, retries=2)
    assert len(calls) == 3


def test_run_does_not_repeat_what_the_work_itself_cannot_do(lake: conroi.Lake):
    calls: list[int] = []

    def work(tx: Any) -> None:
        calls.append(1)
        tx.expect("rates", 99)

    with pytest.raises(conroi.ExpectedVersionMismatch):
        lake.run(work)
    assert calls == [1]


def test_a_transaction_that_does_nothing_publishes_nothing(lake: conroi.Lake):
    before = lake.version
    with lake.begin() as tx:
        tx["orders"].delete("id > 100")
        tx["orders"].append([])
    assert lake.version == before
    assert tx.result.version == before
    assert tx.result.tables == {}


def test_all_requests_of_a_publication_come_before_its_put(lake: conroi.Lake):
    """What the name of the fixture's constant promises: one conditional put makes a publication real."""
    seen: list[str] = []
    watched = connect_through(
        lake.uri,
        lambda objects: FaultyObjects(objects, [call_before(lambda r: seen.append(r.path), PUBLICATION, times=None)]),
    )
    with watched.begin() as tx:
        tx["orders"].delete("id = 1")
        tx["rates"].delete("rate = 1")
    assert len(seen) == 1


@pytest.mark.contract("W16")
def test_a_table_that_another_thread_opens_during_the_commit_is_refused(lake: conroi.Lake):
    """G6: the commit waits for a statement of one thread while another thread opens a table."""
    opening, ended = Gate(), Event()
    fault = call_before(opening, "get", "_versions/*")

    def wrap(objects: Objects) -> Objects:
        return FaultyObjects(objects, [fault]) if objects.root.endswith("rates.lance") else objects

    def batches() -> Iterator[pa.RecordBatch]:
        reading.set()
        assert ended.wait(30)
        yield pa.RecordBatch.from_pydict({"id": [9], "n": [9]})

    reading = Event()
    tx = connect_through(lake.uri, wrap).begin()
    tx["orders"].delete("id = 1")
    rows = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64()), ("n", pa.int64())]), batches())
    with ThreadPoolExecutor(3) as pool:
        statement = pool.submit(lambda: tx["orders"].append(rows))
        assert reading.wait(30)
        table = pool.submit(lambda: tx["rates"])
        opening.wait_for_arrival()
        commit = pool.submit(tx.commit)
        while "committed" not in repr(tx):
            sleep(0.001)
        opening.open()
        assert isinstance(table.exception(30), conroi.ClosedError)
        ended.set()
        assert isinstance(statement.exception(30), conroi.ClosedError)
        assert commit.result(30).tables == {"orders": 2}
    assert sorted(column_values(conroi.connect(lake.uri)["orders"].to_arrow()["id"])) == [2, 3]


@pytest.mark.contract("W16")
def test_threads_that_use_a_transaction_while_it_commits_are_in_it_or_refused(uri: str):
    lake = conroi.connect(uri)
    for number in range(8):
        lake.create_table(f"t{number}", [{"id": 0}])
    for _ in range(5):
        tx = lake.begin()
        barrier = Barrier(9)

        def work(number: int, tx: Any = tx, barrier: Barrier = barrier) -> list[str]:
            barrier.wait()
            done: list[str] = []
            with contextlib.suppress(conroi.ClosedError):
                for name in (f"t{number}", f"t{(number + 1) % 8}"):
                    tx[name].set_metadata({"by": str(number)}) if name not in done else None
                    done.append(name)
                    assert name in tx
                    assert len(tx.tables()) == 8
            return done

        with ThreadPoolExecutor(9) as pool:
            futures = [pool.submit(work, number) for number in range(8)]
            barrier.wait()
            result = tx.commit()
            staged = {name for future in futures for name in future.result()}
        assert set(result.tables) == staged
