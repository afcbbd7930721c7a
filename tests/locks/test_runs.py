"""The rows of one insert are one unbroken run, whoever else inserts, and whoever dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import conroi
from tests.locks.workers import SCHEMA, end, hear, race, runs, start
from tests.support.databases import PostgresServer

DIE = """
import os, signal, sys
import pyarrow as pa
import conroi
uri, locks = sys.argv[1:]
lake = conroi.connect(uri, locks=locks)
schema = lake["shared"].schema
def batches():
    for n in range(3):
        yield pa.RecordBatch.from_pylist([{"worker": 9, "insert": 0, "n": n}], schema=schema)
    print("two pieces are in", flush=True)
    sys.stdin.read()
lake.insert("shared", pa.RecordBatchReader.from_batches(schema, batches()), chunk_rows=1)
"""


def rows(count: int, worker: int = 0, insert: int = 0) -> list[dict[str, int]]:
    return [{"worker": worker, "insert": insert, "n": n} for n in range(count)]


def stream(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def batch(n: int, worker: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"worker": worker, "insert": 0, "n": n}], schema=SCHEMA)


@pytest.mark.contract("L1")
def test_inserts_of_four_processes_in_four_pieces_each_are_unbroken(lake: conroi.Lake, uri: str, address: str) -> None:
    race(uri, address, workers=4, inserts=5, chunks=4)
    found = runs(lake["shared"])
    assert sorted(found) == [(worker, insert, 8) for worker in range(4) for insert in range(5)]


@pytest.mark.contract("L1")
def test_without_lock_and_fence_they_interleave(lake: conroi.Lake, uri: str, address: str) -> None:
    race(uri, address, workers=3, inserts=2, chunks=3, how="append")
    found = runs(lake["shared"])
    assert sum(count for _, _, count in found) == 3 * 2 * 6
    assert len(found) > 3 * 2


@pytest.mark.soak
@pytest.mark.contract("L1")
def test_inserts_of_four_processes_twenty_times_in_ten_pieces(lake: conroi.Lake, uri: str, address: str) -> None:
    race(uri, address, workers=4, inserts=20, chunks=10)
    assert sorted(runs(lake["shared"])) == [(worker, insert, 20) for worker in range(4) for insert in range(20)]


@pytest.mark.contract("L2")
def test_an_insert_into_another_table_does_not_wait(lake: conroi.Lake, uri: str, address: str) -> None:
    is_inside, may_end, times = threading.Event(), threading.Event(), dict[str, float]()

    def slowly() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        is_inside.set()
        assert may_end.wait(30)
        yield batch(1)

    def work() -> None:
        times["first begins"] = time.monotonic()
        lake.insert("shared", stream(slowly()), chunk_rows=1)
        times["first ends"] = time.monotonic()

    thread = threading.Thread(target=work)
    thread.start()
    assert is_inside.wait(30)
    times["second begins"] = time.monotonic()
    conroi.connect(uri, locks=address).insert("other", rows(3), chunk_rows=1, wait_s=10)
    times["second ends"] = time.monotonic()
    may_end.set()
    thread.join(30)
    assert times["first begins"] < times["second begins"] < times["second ends"] < times["first ends"]


@pytest.mark.contract("L3")
def test_who_waits_for_a_killed_worker_goes_on_at_once_and_removes_its_rows(
    lake: conroi.Lake, uri: str, address: str
) -> None:
    lake.insert("shared", rows(4))
    holder = start(DIE, uri, address)
    try:
        assert hear(holder) == "two pieces are in"
        assert lake["shared"].count_rows() == 6
        assert lake["shared"].to_arrow(complete=True).num_rows == 4
        half = lake["shared"]
        died: list[float] = []

        def kill_when_waited_for() -> None:
            while not any(info.is_waiting for info in conroi.connect(uri, locks=address).locks()):
                pass
            died.append(time.monotonic())
            holder.kill()

        thread = threading.Thread(target=kill_when_waited_for)
        thread.start()
        with lake.insert_lock("shared", wait_s=20):
            got = time.monotonic()
            lake.insert("shared", rows(3, worker=1), chunk_rows=1)
        thread.join(20)
    finally:
        end(holder)
    print(f"the waiter went on {(got - died[0]) * 1000:.0f} ms after the kill")
    assert got - died[0] < 2
    assert [row["worker"] for row in lake["shared"].to_arrow().to_pylist()] == [0, 0, 0, 0, 1, 1, 1]
    assert half.to_arrow(complete=True).num_rows == 4  # also in the past, whatever came later


@pytest.mark.contract("L3", "L10")
def test_a_worker_whose_backend_was_ended_is_refused_and_the_next_one_is_whole(
    lake: conroi.Lake, uri: str, address: str, postgres: PostgresServer
) -> None:
    other = conroi.connect(uri, locks=address)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch(n) for n in range(3))
        with postgres.connect() as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name LIKE 'conroi %shared'"
            ).fetchall()
        assert ended == [(True,)]
        other.insert("shared", rows(3, worker=1), chunk_rows=1, wait_s=10)
        yield from (batch(n) for n in range(3, 6))

    with pytest.raises(conroi.InsertInterrupted):
        lake.insert("shared", stream(batches()), chunk_rows=1)
    assert [row["worker"] for row in lake["shared"].to_arrow().to_pylist()] == [1, 1, 1]


@pytest.mark.contract("L10")
@pytest.mark.parametrize("who", ["append", "pylance", "insert without its lock"])
def test_rows_that_took_no_lock_are_found_before_they_break_a_run(lake: conroi.Lake, uri: str, who: str) -> None:
    import lance

    from conroi.locks.held import NoLocks
    from conroi.locks.locks import locks_of

    def in_between() -> None:
        if who == "append":
            lake["shared"].append(rows(1, worker=1))
        elif who == "pylance":
            lance.write_dataset(
                pa.Table.from_pylist(rows(1, worker=1), schema=SCHEMA), lake["shared"].uri, mode="append"
            )
        else:
            blind = conroi.connect(uri, locks="postgresql://nobody@nowhere/nothing")
            vars(locks_of(blind.catalog))["_postgres"] = NoLocks()  # believes that it has the lock
            blind.insert("shared", rows(1, worker=1))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch(n) for n in range(3))
        in_between()
        yield from (batch(n) for n in range(3, 6))

    with pytest.raises(conroi.InsertInterrupted):
        lake.insert("shared", stream(batches()), chunk_rows=1)
    assert lake["shared"].to_arrow()["worker"].to_pylist() == [1]


@pytest.mark.contract("L5")
def test_a_source_that_fails_leaves_no_row_and_no_lock(lake: conroi.Lake) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch(n) for n in range(3))
        raise ValueError("the source broke")

    with pytest.raises(Exception, match="the source broke"):
        lake.insert("shared", stream(batches()), chunk_rows=1)
    assert (lake["shared"].count_rows(), lake.locks()) == (0, [])


@pytest.mark.contract("L1")
def test_many_sources_are_one_run_in_one_commit(lake: conroi.Lake) -> None:
    before = lake["shared"].version
    table = lake.concat("shared", [rows(2), pa.Table.from_pylist(rows(3, insert=0), schema=SCHEMA)])
    assert (table.version, runs(table)) == (before + 1, [(0, 0, 5)])
