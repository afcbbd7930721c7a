"""Exports of many workers into one ClickHouse table: each is one unbroken run, whatever other workers do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from conroi import export
from conroi.environment import SYSTEM
from conroi.export import clickhouse_tables as tables
from conroi.export.clickhouse_engine import parse
from conroi.export.clickhouse_runs import SPAN, Begun, Exporting, Journal
from conroi.inserts.insert_locks import locks_of, new_lock_id
from conroi.inserts.lock_back_ends import NoLock
from tests.export.queries import ask, rows, runs
from tests.support.clickhouse import ClickHouseServer
from tests.support.databases import PostgresServer
from tests.support.insert_workers import end, hear, start

NewTarget = Callable[[str], str]
SCHEMA = pa.schema([("worker", pa.int64()), ("export", pa.int64())])

WORKER = """
import sys
import pyarrow as pa
import conroi
from conroi import export
uri, locks, target, worker, count = sys.argv[1:]
lake = conroi.connect(uri, locks=locks)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(count)):
    batches = [pa.record_batch({"worker": [int(worker)] * 7, "export": [number] * 7})] * 10
    export.clickhouse(pa.RecordBatchReader.from_batches(batches[0].schema, batches), target, lake=lake)
print("done", flush=True)
"""

# Sends so much that some of it is in the table, and then waits to be killed.
DIES = """
import sys
import pyarrow as pa
import conroi
from conroi import export
uri, locks, target, how = sys.argv[1:]
lake = conroi.connect(uri, locks=locks)
batch = pa.record_batch({"worker": [9] * 10_000, "export": [0] * 10_000})
def batches():
    for _ in range(3):
        yield batch
    print("under way", flush=True)
    if how == "half":
        sys.stdin.read()
export.clickhouse(pa.RecordBatchReader.from_batches(batch.schema, batches()), target, lake=lake)
"""

SMALL_BLOCKS = "max_insert_block_size=1000&min_insert_block_size_rows=1000"


def some(worker: int, number: int = 0, count: int = 3) -> pa.Table:
    return pa.table({"worker": [worker] * count, "export": [number] * count}, schema=SCHEMA)


def stream(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def batch(worker: int) -> pa.RecordBatch:
    return some(worker).to_batches()[0]


# ---------------------------------------------------------------------------------- L1, L2


@pytest.mark.contract("L1")
def test_exports_of_four_processes_are_unbroken(
    locked: conroi.Lake, uri: str, address: str, server: ClickHouseServer
) -> None:
    race(uri, address, server.new_target(), exports=3, lake=locked)


@pytest.mark.soak
@pytest.mark.contract("L1")
def test_twenty_exports_of_each_of_four_processes_are_unbroken(
    locked: conroi.Lake, uri: str, address: str, server: ClickHouseServer
) -> None:
    race(uri, address, server.new_target(), exports=20, lake=locked)


def race(uri: str, address: str, target: str, *, exports: int, lake: conroi.Lake) -> None:
    assert lake.version
    workers = [start(WORKER, uri, address, target, worker, exports) for worker in range(4)]
    try:
        assert [hear(worker) for worker in workers] == ["ready"] * 4
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        assert [hear(worker) for worker in workers] == ["done"] * 4
    finally:
        end(*workers)
    assert sorted(runs(target)) == [(worker, number, 70) for worker in range(4) for number in range(exports)]


@pytest.mark.contract("L1")
def test_without_lock_and_fence_they_interleave(new_target: NewTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look for the next number before either begins; neither looks at the journal of the other."""
    target, at = new_target("shared"), parse(new_target("shared"))
    both, look = threading.Barrier(2), Exporting._next_row

    def look_together(exporting: Exporting) -> int:
        found = look(exporting)
        both.wait(30)
        return found

    monkeypatch.setattr(Journal, "unfinished", lambda _: [])
    monkeypatch.setattr(Exporting, "_check_alone", lambda *_: None)
    monkeypatch.setattr(Exporting, "_next_row", look_together)

    def blindly(worker: int) -> None:
        with contextlib.closing(at.engine()) as engine:
            found = tables.registered(engine, at, 0)
            assert found.lock is not None
            Exporting(engine, at, found.lock, NoLock(), SYSTEM).run([some(worker).to_reader()], "remove")

    with contextlib.closing(at.engine()) as engine:
        tables.create(engine, at, SCHEMA, [], new_lock_id(SYSTEM))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(blindly, [0, 1]))
    assert [row[-1] for row in rows(target)] == ["1", "1", "2", "2", "3", "3"]


@pytest.mark.contract("L2")
def test_an_export_to_another_table_does_not_wait(
    locked: conroi.Lake, uri: str, address: str, server: ClickHouseServer
) -> None:
    target, is_inside, may_end, times = server.new_target(), threading.Event(), threading.Event(), list[float]()

    def slowly() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        is_inside.set()
        assert may_end.wait(30)
        yield batch(0)

    with ThreadPoolExecutor(1) as thread:
        times.append(time.monotonic())
        first = thread.submit(export.clickhouse, stream(slowly()), target, lake=locked)
        try:
            assert is_inside.wait(30)
            times.append(time.monotonic())
            other = conroi.connect(uri, locks=address)
            export.clickhouse(some(1), server.new_target("other"), lake=other, wait_s=10)
            times.append(time.monotonic())
            with pytest.raises(conroi.LockTimeout):  # the same table does wait
                export.clickhouse(some(1), target, lake=other, wait_s=0.1)
        finally:
            may_end.set()
        first.result(30)
        times.append(time.monotonic())
    assert times == sorted(times)
    assert runs(target) == [(0, 0, 6)]


# ---------------------------------------------------------------------------------- L3


@pytest.mark.contract("L3")
@pytest.mark.parametrize("how", ["half", "all was sent"])
def test_who_comes_after_a_killed_worker_goes_on_and_removes_its_rows(
    locked: conroi.Lake, uri: str, address: str, server: ClickHouseServer, how: str
) -> None:
    target = server.new_target()
    export.clickhouse(some(0), target, lake=locked)
    if how == "all was sent":  # the server goes on with it for seconds
        ask(target, "ALTER TABLE … ADD COLUMN slow UInt8 DEFAULT sleep(0.1)")
    holder = start(DIES, uri, address, f"{target}?{SMALL_BLOCKS}", how)
    try:
        assert hear(holder) == "under way"
        begun = unfinished_query(target)
        while not is_running(target, begun) or (how == "half" and len(rows(target)) == 3):
            assert holder.poll() is None
        holder.kill()
        died = time.monotonic()
        if how == "all was sent":
            assert is_running(target, begun), "its death does not stop its INSERT"
        export.clickhouse(some(1), target, lake=locked, wait_s=20)
        took = time.monotonic() - died
    finally:
        end(holder)
    print(f"the next export was done {took * 1000:.0f} ms after the kill")
    assert not is_running(target, begun)
    assert took < 20
    assert runs(target) == [(0, 0, 3), (1, 0, 3)]


def unfinished_query(target: str) -> str:
    at = parse(target)
    with contextlib.closing(at.engine()) as engine:
        found = tables.describe(engine, at)
        assert found is not None
        assert found.lock is not None
        (begun,) = Journal(engine, at, found.lock).unfinished()
        return begun.query_id


def is_running(target: str, query_id: str) -> bool:
    return bool(ask(target, f"SELECT 1 FROM system.processes WHERE query_id = '{query_id}'"))


@pytest.mark.contract("L3")
def test_who_lost_its_lock_unawares_is_stopped_and_its_rows_go(
    locked: conroi.Lake, uri: str, address: str, server: ClickHouseServer, postgres: PostgresServer
) -> None:
    target, other = server.new_target(), conroi.connect(uri, locks=address)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        with postgres.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name LIKE 'conroi %http%'"
            )
        worker = start(WORKER, uri, address, target, 1, 1)  # another process: threads of one take turns
        try:
            assert hear(worker) == "ready"
            worker.communicate("go\n", timeout=60)
        finally:
            end(worker)
        yield batch(0)

    with pytest.raises(conroi.ConroiError):
        export.clickhouse(stream(batches()), target, lake=locked)
    assert runs(target) == [(1, 0, 70)]
    assert other.locks() == []


@pytest.mark.contract("L3")
def test_the_rows_of_the_dead_can_be_kept(local: conroi.Lake, new_target: NewTarget) -> None:
    target = new_target("shared")
    export.clickhouse(some(0), target, lake=local)
    begun = died_after_its_rows(target)
    done = export.clickhouse(some(2), target, lake=local, remains="keep")
    assert done.first == begun + SPAN
    assert runs(target) == [(0, 0, 3), (1, 0, 3), (2, 0, 3)]
    export.clickhouse(some(3), target, lake=local)  # they are not removed later
    assert runs(target) == [(0, 0, 3), (1, 0, 3), (2, 0, 3), (3, 0, 3)]


def test_the_statement_in_the_docs_leaves_the_rows_of_the_dead_out(local: conroi.Lake, new_target: NewTarget) -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    statement = page.partition("```sql\n")[2].partition("```")[0].strip()
    target = new_target("orders")
    statement = statement.replace("shop.", f"{parse(target).database}.").replace(
        "SELECT * FROM", "SELECT worker FROM", 1
    )
    export.clickhouse(some(0), target, lake=local)
    assert len(ask(target, statement)) == 3
    died_after_its_rows(target)
    assert len(rows(target)) == 6
    assert [int(worker) for (worker,) in ask(target, statement)] == [0, 0, 0]


@pytest.mark.contract("L3")
def test_late_rows_of_a_dead_worker_are_in_no_run_and_are_removed(local: conroi.Lake, new_target: NewTarget) -> None:
    target = new_target("shared")
    export.clickhouse(some(0), target, lake=local)
    begun = died_after_its_rows(target)

    def batches() -> Iterator[pa.RecordBatch]:
        ask(target, f"INSERT INTO … (worker, export, conroi_row) VALUES (1, 0, {begun})")
        yield batch(2)

    export.clickhouse(stream(batches()), target, lake=local)
    assert runs(target) == [(0, 0, 3), (2, 0, 3)]


def died_after_its_rows(target: str) -> int:
    """An export whose process died before it could say that it ended; the answer: its first number."""

    class Died(BaseException):
        pass

    at = parse(target)
    with contextlib.closing(at.engine()) as engine, pytest.MonkeyPatch.context() as patch:

        def die(journal: Journal, event: str, *rest: object) -> None:
            if event == "end":
                raise Died
            add(journal, event, *rest)  # type: ignore[arg-type]

        add = Journal.add
        patch.setattr(Journal, "add", die)
        patch.setattr(Exporting, "_take_back", lambda *_: None)
        lock = tables.registered(engine, at, 0).lock
        assert lock is not None
        with pytest.raises(Died):
            Exporting(engine, at, lock, NoLock(), SYSTEM).run([some(1).to_reader()], "remove")
        (begun,) = Journal(engine, at, lock).unfinished()
    return begun.first


# ---------------------------------------------------------------------------------- the fence


@pytest.mark.contract("L10")
def test_of_two_concurrent_exports_without_a_lock_none_breaks_the_run_of_the_other(
    local: conroi.Lake, new_target: NewTarget
) -> None:
    """The second takes the first for dead; the first finds out."""
    target = new_target("shared")
    at = parse(target)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        with contextlib.closing(at.engine()) as engine:
            lock = tables.registered(engine, at, 0).lock
            assert lock is not None
            Exporting(engine, at, lock, NoLock(), SYSTEM).run([some(1).to_reader()], "remove")
        yield batch(0)

    with pytest.raises(conroi.ConroiError):
        export.clickhouse(stream(batches()), target, lake=local)
    assert runs(target) == [(1, 0, 3)]


@pytest.mark.contract("L10")
@pytest.mark.parametrize("how", ["has begun", "is done"])
def test_who_looked_for_the_next_number_before_another_export_is_refused(
    local: conroi.Lake, new_target: NewTarget, how: str
) -> None:
    """As it can be without a lock."""
    target, at, look = new_target("shared"), parse(new_target("shared")), Exporting._next_row
    export.clickhouse(some(0), target, lake=local)

    def too_early(exporting: Exporting) -> int:
        found = look(exporting)
        patch.undo()
        if how == "has begun":
            exporting._journal.add("begin", Begun("other", "other", found), found + SPAN)
        else:
            with contextlib.closing(at.engine()) as engine:
                lock = tables.registered(engine, at, 0).lock
                assert lock is not None
                Exporting(engine, at, lock, NoLock(), SYSTEM).run([some(1).to_reader()], "remove")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exporting, "_next_row", too_early)
        with pytest.raises(conroi.InsertInterrupted, match="at the same time"):
            export.clickhouse(some(2), target, lake=local)
    assert runs(target) == [(0, 0, 3)] + [(1, 0, 3)] * (how == "is done")


@pytest.mark.contract("L10")
def test_a_worker_that_died_before_its_first_read_removes_no_rows_of_others(
    local: conroi.Lake, new_target: NewTarget
) -> None:
    target, at = new_target("shared"), parse(new_target("shared"))
    export.clickhouse(some(0), target, lake=local)
    lock = server_lock(target)
    assert lock is not None
    with contextlib.closing(at.engine()) as engine:  # it had looked for its number before the other began
        Journal(engine, at, lock).add("begin", Begun("dead", "dead", 1), 1 + SPAN)
    export.clickhouse(some(1), target, lake=local)
    assert runs(target) == [(0, 0, 3), (1, 0, 3)]


# ---------------------------------------------------------------------------------- L4, L6, L8, L9


@pytest.mark.contract("L4")
def test_sixteen_first_registrations_at_once_agree_on_one_id(new_target: NewTarget) -> None:
    target = new_target("theirs")
    at = parse(target)
    ask(target, "CREATE TABLE … (id Int64) ENGINE = MergeTree ORDER BY id")
    barrier = threading.Barrier(16)

    def register(number: int) -> int | None:
        with contextlib.closing(at.engine()) as engine:
            barrier.wait(30)
            return tables.registered(engine, at, 2**63 - 1 - number).lock

    with ThreadPoolExecutor(16) as threads:
        (agreed,) = set(threads.map(register, range(16)))
    assert agreed in range(2**63 - 16, 2**63)


@pytest.mark.contract("L6")
def test_a_lake_that_wants_locks_refuses_an_export_without(
    locked: conroi.Lake, uri: str, new_target: NewTarget
) -> None:
    with pytest.raises(conroi.LocksRequired, match="connection has no locks"):
        export.clickhouse(some(0), new_target("shared"), lake=conroi.connect(uri))
    assert ask(new_target("shared"), "SELECT count() FROM …") in ([[0]], [["0"]])
    assert locked.version


@pytest.mark.contract("L6", "L7")
def test_a_lake_without_locks_takes_none_and_one_with_locks_one(
    locked: conroi.Lake, new_target: NewTarget, tmp_path_factory: pytest.TempPathFactory
) -> None:
    local = conroi.connect(tmp_path_factory.mktemp("local"))
    for lake, taken in ((local, 0), (locked, 1)):
        export.clickhouse(some(0), new_target("shared"), lake=lake)
        assert locks_of(lake.catalog).taken == taken


def test_an_export_to_a_server_needs_a_lock(server: ClickHouseServer) -> None:
    with pytest.raises(conroi.InvalidInputError, match="needs a lake"):
        export.clickhouse(some(0), server.new_target())


@pytest.mark.contract("L8")
def test_who_waited_for_a_table_that_was_made_again_exports_under_the_new_ones_lock(
    locked: conroi.Lake, uri: str, address: str, server: ClickHouseServer
) -> None:
    target = server.new_target()
    at, locks = parse(target), locks_of(locked.catalog)
    export.clickhouse(some(0), target, lake=locked)
    first, second = server_lock(target), new_lock_id(SYSTEM)
    assert first is not None
    old, new = locks.hold(first, target, None), locks.hold(second, target, None)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(export.clickhouse, some(1), target, lake=conroi.connect(uri, locks=address))
        while not any(info.is_waiting for info in locked.locks()):
            assert not waiting.done()
        ask(target, "DROP TABLE …")
        with contextlib.closing(at.engine()) as engine:
            tables.create(engine, at, SCHEMA, [], second)
        old.release()
        while not any(info.is_waiting for info in locked.locks()):  # now for the lock of the table that is there
            assert not waiting.done(), "it exported under a lock of its own"
        new.release()
        waiting.result(60)
    assert runs(target) == [(1, 0, 3)]


def server_lock(target: str) -> int | None:
    with contextlib.closing(parse(target).engine()) as engine:
        found = tables.describe(engine, parse(target))
    return None if found is None else found.lock


@pytest.mark.contract("L9")
def test_a_bounded_wait_says_who_exports(locked: conroi.Lake, new_target: NewTarget) -> None:
    target = new_target("shared")
    export.clickhouse(some(0), target, lake=locked)
    lock = server_lock(target)
    assert lock is not None
    held = locks_of(locked.catalog).hold(lock, target, None)
    try:
        with pytest.raises(conroi.LockTimeout, match=r"Waited 0\.1 s") as caught:
            export.clickhouse(some(1), target, lake=locked, wait_s=0.1)
    finally:
        held.release()
    assert caught.value.held_since is not None
    with pytest.raises(conroi.InvalidInputError, match="wait_s"):
        export.clickhouse(some(1), target, lake=locked, wait_s=-1)
