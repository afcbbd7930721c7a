"""The rows of one insert are one unbroken run, beside concurrent inserts and killed workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import conroi
from conroi.inserts.postgres_locks import HeldInPostgres
from tests.inserts.conftest import new_lake
from tests.support.databases import PostgresServer
from tests.support.insert_workers import SCHEMA, end, hear, race, runs, start, tell

# Two pieces of its insert are in the table when it says so; then it waits to be killed, or to be told to go on.
HALF = """
import sys
import pyarrow as pa
import conroi
uri, locks = sys.argv[1:]
lake = conroi.connect(uri, locks=locks)
schema = lake["shared"].schema
def batches():
    for n in range(4):
        if n == 3:
            print("two pieces are in", flush=True)
            sys.stdin.readline()
        yield pa.RecordBatch.from_pylist([{"worker": 9, "insert": 0, "n": n}], schema=schema)
try:
    lake.insert("shared", pa.RecordBatchReader.from_batches(schema, batches()), chunk_rows=1)
except conroi.ConroiError as error:
    print(type(error).__name__, flush=True)
"""

# Inserts as conroi does, but takes no lock, and its pieces are not compared with anything. Says when it is at a piece.
BLIND = """
import sys
import pyarrow as pa
import conroi
from conroi.insertion import Inserting
from conroi.inserts.fence import Fence, InsertNote
uri, worker = sys.argv[1:]
def unchecked(fence, row):
    at = fence._catalog.snapshot(row).manifest.head.next_row_id
    fence._next = InsertNote(fence._id, at, at + fence._rows, fence._is_last)
Fence.check = unchecked
Inserting._remove_remains = lambda _: None
lake = conroi.connect(uri)
schema = lake["shared"].schema
def batches():
    for n in range(3):
        print("at", n, flush=True)
        sys.stdin.readline()
        yield pa.RecordBatch.from_pylist([{"worker": int(worker), "insert": 0, "n": n}], schema=schema)
    print("at 3", flush=True)
    sys.stdin.readline()
lake.insert("shared", pa.RecordBatchReader.from_batches(schema, batches()), chunk_rows=1)
print("done", flush=True)
"""


def rows(count: int, worker: int = 0, insert: int = 0) -> list[dict[str, int]]:
    return [{"worker": worker, "insert": insert, "n": n} for n in range(count)]


def stream(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def batch(n: int, worker: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"worker": worker, "insert": 0, "n": n}], schema=SCHEMA)


@pytest.mark.contract("L1")
@pytest.mark.parametrize("kind", ["folder", "postgresql"])
def test_inserts_of_four_processes_in_four_pieces_each_are_unbroken(
    uri: str, address: str, postgres: PostgresServer, kind: str
) -> None:
    store = postgres.new_address() if kind == "postgresql" else None
    lake = new_lake(uri, address, store)
    race(uri, address, workers=4, inserts=3, pieces=4, store=store)
    assert sorted(runs(lake["shared"])) == [(worker, insert, 8) for worker in range(4) for insert in range(3)]


@pytest.mark.soak
@pytest.mark.contract("L1")
@pytest.mark.parametrize("kind", ["folder", "postgresql"])
def test_inserts_of_four_processes_twenty_times_in_ten_pieces(
    uri: str, address: str, postgres: PostgresServer, kind: str
) -> None:
    store = postgres.new_address() if kind == "postgresql" else None
    lake = new_lake(uri, address, store)
    race(uri, address, workers=4, inserts=20, pieces=10, store=store)
    assert sorted(runs(lake["shared"])) == [(worker, insert, 20) for worker in range(4) for insert in range(20)]


@pytest.mark.contract("L1")
def test_without_lock_and_fence_they_interleave(lake: conroi.Lake, uri: str) -> None:
    """Two workers take turns, piece by piece; nothing is left to chance."""
    lake.set_locks("none")
    workers = [start(BLIND, uri, worker) for worker in range(2)]
    try:
        assert [hear(worker) for worker in workers] == ["at 0", "at 0"]
        for said in ("at 1", "at 2", "at 3", "done"):
            for worker in workers:
                tell(worker)
                assert hear(worker) == said
    finally:
        end(*workers)
    assert runs(lake["shared"]) == [(0, 0, 1), (1, 0, 1)] * 3


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


@pytest.mark.contract("L3", "L10")
@pytest.mark.parametrize("how", ["kill -9", "its PostgreSQL backend ends"])
def test_who_waits_for_a_holder_that_is_gone_goes_on_at_once_and_removes_its_rows(
    lake: conroi.Lake, uri: str, address: str, postgres: PostgresServer, how: str
) -> None:
    lake.insert("shared", rows(4))
    holder = start(HALF, uri, address)
    ended: list[float] = []
    try:
        assert hear(holder) == "two pieces are in"
        assert lake["shared"].count_rows() == 6
        assert lake["shared"].to_arrow(complete=True).num_rows == 4
        assert sum(batch.num_rows for batch in lake["shared"].to_batches(complete=True)) == 4
        half = lake["shared"]

        def end_when_waited_for() -> None:
            while not any(info.is_waiting for info in conroi.connect(uri, locks=address).locks()):
                pass
            ended.append(time.monotonic())
            holder.kill() if how == "kill -9" else end_backend(postgres, holder.pid)

        thread = threading.Thread(target=end_when_waited_for)
        thread.start()
        with lake.insert_lock("shared", wait_s=60):
            got = time.monotonic()
            lake.insert("shared", rows(3, worker=1), chunk_rows=1)
        thread.join(60)
        if how != "kill -9":
            tell(holder)
            assert hear(holder) == "InsertInterrupted"
    finally:
        end(holder)
    print(f"{how}: the waiter went on {(got - ended[0]) * 1000:.0f} ms later")
    assert got - ended[0] < 10
    assert [row["worker"] for row in lake["shared"].to_arrow().to_pylist()] == [0, 0, 0, 0, 1, 1, 1]
    assert half.to_arrow(complete=True).num_rows == 4  # also in the past, whatever came later


def end_backend(postgres: PostgresServer, pid: int) -> None:
    with postgres.connect() as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE %s",
            (f"conroi %:{pid} %shared@%",),
        ).fetchall()
    assert ended == [(True,)]


@pytest.mark.contract("L3")
def test_the_rows_of_a_dead_worker_can_be_kept(lake: conroi.Lake, uri: str, address: str) -> None:
    holder = start(HALF, uri, address)
    assert hear(holder) == "two pieces are in"
    end(holder)
    lake.insert("shared", rows(2, worker=1), remains="keep", chunk_rows=1, wait_s=60)
    assert runs(lake["shared"]) == [(9, 0, 2), (1, 0, 2)]
    assert lake["shared"].to_arrow(complete=True).num_rows == 4
    lake.insert("shared", rows(1, worker=2))  # they are not removed later
    assert runs(lake["shared"]) == [(9, 0, 2), (1, 0, 2), (2, 0, 1)]
    with pytest.raises(conroi.InvalidInputError, match="remains"):
        lake.insert("shared", rows(1), remains="eat")  # type: ignore[arg-type]


@pytest.mark.contract("L3")
def test_what_a_dead_worker_left_in_a_table_that_was_replaced_since_is_no_loss(
    lake: conroi.Lake, uri: str, address: str
) -> None:
    """pylance replaces the table by its path; the new rows are not those of the dead, whatever their ids."""
    import lance

    holder = start(HALF, uri, address)
    assert hear(holder) == "two pieces are in"
    end(holder)
    theirs = pa.Table.from_pylist(rows(2, worker=7), schema=SCHEMA)
    lance.write_dataset(theirs, lake["shared"].uri, mode="overwrite", enable_stable_row_ids=True)
    lake.insert("shared", rows(1, worker=1), wait_s=60)
    assert [row["worker"] for row in lake["shared"].to_arrow().to_pylist()] == [7, 7, 1]


@pytest.mark.contract("L10")
def test_a_worker_that_does_not_notice_that_its_lock_is_gone_is_refused_by_the_fence(
    lake: conroi.Lake, uri: str, address: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = conroi.connect(uri, locks=address)
    monkeypatch.setattr(HeldInPostgres, "confirm", lambda _: None)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch(n) for n in range(3))
        end_backend(postgres, os.getpid())
        other.insert("shared", rows(3, worker=1), chunk_rows=1, wait_s=60)
        yield from (batch(n) for n in range(3, 6))

    with pytest.raises(conroi.InsertInterrupted, match="Another worker has taken the place"):
        lake.insert("shared", stream(batches()), chunk_rows=1)
    assert [row["worker"] for row in lake["shared"].to_arrow().to_pylist()] == [1, 1, 1]


@pytest.mark.contract("L10")
@pytest.mark.parametrize("kind", ["folder", "postgresql"])
@pytest.mark.parametrize("who", ["append", "pylance", "insert without its lock"])
def test_rows_that_took_no_lock_are_found_before_they_break_a_run(
    uri: str, address: str, postgres: PostgresServer, who: str, kind: str
) -> None:
    import lance

    from conroi.inserts.insert_locks import locks_of
    from conroi.inserts.lock_back_ends import NoLocks

    store = postgres.new_address() if kind == "postgresql" else None
    lake = new_lake(uri, address, store)

    def in_between() -> None:
        if who == "append":
            lake["shared"].append(rows(1, worker=1))
        elif who == "pylance":
            lance.write_dataset(
                pa.Table.from_pylist(rows(1, worker=1), schema=SCHEMA), lake["shared"].uri, mode="append"
            )
        else:
            blind = conroi.connect(uri, store=store, locks="postgresql://nobody@nowhere/nothing")
            vars(locks_of(blind.catalog))["_postgres"] = NoLocks()  # believes that it has the lock
            blind.insert("shared", rows(1, worker=1))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch(n) for n in range(3))
        in_between()
        yield from (batch(n) for n in range(3, 6))

    with pytest.raises(conroi.InsertInterrupted):
        lake.insert("shared", stream(batches()), chunk_rows=1)
    assert lake["shared"].to_arrow()["worker"].to_pylist() == [1]


def restored(lake: conroi.Lake) -> None:
    lake["shared"].restore(1)


def emptied(lake: conroi.Lake) -> None:
    lake["shared"].overwrite(SCHEMA.empty_table())


def emptied_in_a_transaction(lake: conroi.Lake) -> None:
    with lake.begin() as tx:
        tx["shared"].overwrite(SCHEMA.empty_table())
        tx["shared"].set_config({"a": "b"})


def emptied_and_set(lake: conroi.Lake) -> None:
    emptied(lake)
    lake["shared"].set_config({"a": "b"})


def restored_by_pylance(lake: conroi.Lake) -> None:
    import lance

    lance.dataset(lake["shared"].uri, version=1).restore()


def emptied_by_pylance(lake: conroi.Lake) -> None:
    import lance

    lance.write_dataset(SCHEMA.empty_table(), lake["shared"].uri, mode="overwrite")


@pytest.mark.contract("L11")
@pytest.mark.parametrize(
    "replace",
    [restored, emptied, emptied_in_a_transaction, emptied_and_set, restored_by_pylance, emptied_by_pylance],
)
def test_an_insert_whose_first_pieces_were_replaced_is_refused(
    uri: str, replace: Callable[[conroi.Lake], None]
) -> None:
    """G3: a Restore or an Overwrite with nothing leaves the next row id as it is, so that alone says too little."""
    lake = conroi.connect(uri)
    lake.create_table("shared", SCHEMA, stable_row_ids=True)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch(n) for n in range(3))
        assert lake["shared"].count_rows() == 2
        replace(lake)
        yield from (batch(n) for n in range(3, 6))

    with pytest.raises(conroi.InsertInterrupted, match=r"Restore|Overwrite"):
        lake.insert("shared", stream(batches()), chunk_rows=1)
    assert lake["shared"].count_rows() == 0
    assert runs(lake.insert("shared", rows(4), chunk_rows=2)) == [(0, 0, 4)]


@pytest.mark.contract("L11")
def test_a_merge_of_branches_that_takes_the_other_sides_table_ends_an_insert(uri: str) -> None:
    """G3: such a merge is a Merge on the wire, which mostly keeps all rows."""
    lake = conroi.connect(uri)
    lake.create_table("shared", pa.Table.from_pylist(rows(1, worker=5), schema=SCHEMA), stable_row_ids=True)
    lake.branches.create("dev")
    lake.branch("dev")["shared"].update({"n": "100"})

    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch(n) for n in range(3))
        lake["shared"].update({"n": "200"}, where="worker = 5")
        lake.merge("dev", prefer="source")
        assert lake["shared"].to_arrow()["n"].to_pylist() == [100]
        yield from (batch(n) for n in range(3, 6))

    with pytest.raises(conroi.InsertInterrupted, match="replaced by a merge"):
        lake.insert("shared", stream(batches()), chunk_rows=1)
    assert lake["shared"].to_arrow()["n"].to_pylist() == [100]


@pytest.mark.contract("L11")
def test_changes_that_keep_the_rows_do_not_disturb_an_insert(uri: str) -> None:
    """The negative control: compaction, index, settings, columns and updates between two pieces are no replacement."""
    lake = conroi.connect(uri)
    lake.create_table("shared", SCHEMA, stable_row_ids=True)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch(n) for n in range(3))
        lake["shared"].compact()
        lake["shared"].create_index("n")
        lake["shared"].set_config({"a": "b"})
        lake["shared"].add_columns(pa.field("m", pa.int64()))
        lake["shared"].update({"m": "7"}, where="n = 0")
        lake["shared"].drop_columns(["m"])
        yield from (batch(n) for n in range(3, 6))

    assert runs(lake.insert("shared", stream(batches()), chunk_rows=1)) == [(0, 0, 6)]


@pytest.mark.contract("L5")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_source_that_fails_leaves_no_row_and_no_lock(lake: conroi.Lake, error: type[BaseException]) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from (batch(n) for n in range(3))
        assert lake["shared"].count_rows() == 2
        assert len(lake.locks()) == 1
        raise error("the source broke")

    with pytest.raises(BaseException, match="the source broke"):
        lake.insert("shared", stream(batches()), chunk_rows=1)
    assert (lake["shared"].count_rows(), lake.locks()) == (0, [])


@pytest.mark.contract("L1")
def test_many_sources_are_one_run_in_one_commit(lake: conroi.Lake) -> None:
    before = lake["shared"].version
    table = lake.concat("shared", [rows(2), pa.Table.from_pylist(rows(3, insert=0), schema=SCHEMA)])
    assert (table.version, runs(table)) == (before + 1, [(0, 0, 5)])
