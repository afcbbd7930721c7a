"""One lock for each table: its id, its holder, and its release."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.catalog.participant import PublishRequest
from conroi.catalog.publication import Publishing
from conroi.inserts import Mode
from conroi.inserts.insert_locks import locks_of, new_lock_id
from conroi.inserts.lock_back_ends import Cancellation
from conroi.inserts.postgres_locks import PostgresLocks
from conroi.stores import postgres_lock
from tests.support.databases import PostgresServer, sqlite_address
from tests.support.insert_workers import SCHEMA, end, hear, start
from tests.support.together import Meet, together

ROWS = [{"worker": 0, "insert": 0, "n": 0}]


def row_of(lake: conroi.Lake, name: str = "shared"):
    return lake.catalog.row(name, lake.catalog.state())


def adopted(uri: str) -> None:
    """A lake with a table that pylance made: it has no lock id."""
    lake = conroi.connect(uri)
    lance.write_dataset(pa.Table.from_pylist(ROWS, schema=SCHEMA), f"{uri}/old.lance", enable_stable_row_ids=True)
    assert lake.adopt() == ["old"]
    assert row_of(lake, "old").lock is None


def register(uri: str, meet: Meet) -> int:
    lake = conroi.connect(uri)
    row = row_of(lake, "old")
    meet()
    return locks_of(lake.catalog).ids.of(row)


def overwrite(uri: str, meet: Meet) -> int:
    """As register, without the comparison."""
    lake = conroi.connect(uri)
    row, mine = row_of(lake, "old"), new_lock_id(lake.catalog.environment)
    meet()
    Publishing(lake.catalog, PublishRequest(lake.catalog.state(), rows={"old": row.with_lock(mine)})).run()
    return mine


def holders(postgres: PostgresServer, pid: int) -> set[int]:
    """The server processes that hold an insert lock for this process."""
    sql = """SELECT a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND a.application_name LIKE %s"""
    with postgres.connect() as connection:
        found = connection.execute(sql, (f"conroi %:{pid} %",)).fetchall()
    return {cast("int", row[0]) for row in found}


def connections(postgres: PostgresServer, pid: int) -> int:
    """On how many connections a process has, or waits for, the lock of `shared`."""
    with postgres.connect() as connection:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s"
        ((count,),) = connection.execute(sql, (f"conroi %:{pid} shared@%",)).fetchall()
    assert isinstance(count, int)
    return count


def as_another_worker(lake: conroi.Lake, wait_s: float) -> None:
    """Take the lock in a thread of its own: this one may have it already."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lake.insert_lock("shared", wait_s=wait_s).__enter__).result()


# ---------------------------------------------------------------------------------- L4


@pytest.mark.contract("L4")
def test_sixteen_processes_that_register_at_once_agree_on_one_id(uri: str) -> None:
    adopted(uri)
    ids = together(register, [uri] * 16)
    assert set(ids) == {row_of(conroi.connect(uri), "old").lock}
    assert 0 <= ids[0] < 2**63


@pytest.mark.contract("L4")
def test_without_the_comparison_they_do_not_agree(uri: str) -> None:
    adopted(uri)
    assert len(set(together(overwrite, [uri] * 4))) == 4


@pytest.mark.contract("L4")
def test_ids_are_filled_in_once_and_a_fresh_lake_needs_none(uri: str) -> None:
    adopted(uri)
    lake = conroi.connect(uri)
    assert locks_of(lake.catalog).ids.backfill() == ["old"]
    lake.create_table("new", SCHEMA)
    version = lake.version
    assert locks_of(lake.catalog).ids.backfill() == []
    assert lake.version == version
    assert row_of(lake, "new").lock != row_of(lake, "old").lock


@pytest.mark.contract("L4")
def test_the_second_insert_does_not_look_its_lock_up(lake: conroi.Lake) -> None:
    ids = locks_of(lake.catalog).ids
    for _ in range(3):
        lake.insert("shared", ROWS)
    assert ids.lookups == 1
    lake.insert("other", ROWS)
    assert ids.lookups == 2


# ---------------------------------------------------------------------------------- L5


@pytest.mark.contract("L5")
def test_a_lock_is_held_for_one_insert_on_a_connection_of_its_own(lake: conroi.Lake, postgres: PostgresServer) -> None:
    with lake.insert_lock("shared"):
        assert (connections(postgres, os.getpid()), len(lake.locks())) == (1, 1)
        lake.insert("shared", ROWS)  # by this very lock
        assert connections(postgres, os.getpid()) == 1
    assert lake.locks() == []
    with pytest.raises(ValueError, match="oops"), lake.insert_lock("shared"):
        raise ValueError("oops")
    assert lake.locks() == []


@pytest.mark.contract("L5")
def test_one_connection_serves_all_locks_of_a_process_one_after_the_other(
    lake: conroi.Lake, postgres: PostgresServer
) -> None:
    backends: set[int] = set()
    for _ in range(3):
        with lake.insert_lock("shared"):
            backends |= holders(postgres, os.getpid())
    assert len(backends) == 1
    assert holders(postgres, os.getpid()) == set(), "between two inserts it holds no lock"


@pytest.mark.contract("L5")
def test_a_free_connection_that_the_server_ended_is_replaced(lake: conroi.Lake, postgres: PostgresServer) -> None:
    with lake.insert_lock("shared"):
        (first,) = holders(postgres, os.getpid())
    with postgres.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (first,))
    with lake.insert_lock("shared"):
        (second,) = holders(postgres, os.getpid())
        lake.insert("shared", ROWS)
    assert first != second


@pytest.mark.contract("L5")
def test_a_connection_is_never_shared_while_it_holds_a_lock(lake: conroi.Lake, postgres: PostgresServer) -> None:
    lake.create_table("another", [{"n": 1}])
    with lake.insert_lock("shared"):
        with lake.insert_lock("another"):
            assert len(holders(postgres, os.getpid())) == 2
        assert [info.table for info in lake.locks()] == ["shared"]
    assert lake.locks() == []


@pytest.mark.contract("L5", "L10")
def test_a_released_lock_is_not_confirmed(address: str) -> None:
    """Its connection lives on, and may hold the lock of another insert."""
    held = PostgresLocks(address).hold(7, "shared", 5.0, Cancellation())
    held.confirm()
    held.release()
    held.release()
    with pytest.raises(conroi.InsertInterrupted):
        held.confirm()


@pytest.mark.contract("L9")
def test_a_waiter_keeps_its_name_over_several_turns(
    lake: conroi.Lake, uri: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conroi.inserts.postgres_locks.TURN_S", 0.2)
    with lake.insert_lock("shared"):
        waiting = threading.Thread(
            target=lambda: conroi.connect(uri, locks=address).insert("shared", ROWS, wait_s=60), daemon=True
        )
        waiting.start()
        begun = datetime.now(UTC)
        seen: list[tuple[int, datetime]] = []
        while datetime.now(UTC) - begun < timedelta(seconds=2):
            seen += [(info.pid, info.since) for info in lake.locks() if info.is_waiting]
    waiting.join(60)
    assert {pid for pid, _ in seen} == {os.getpid()}
    assert max(since for _, since in seen) - begun < timedelta(seconds=1.5), "since it began to wait"


@pytest.mark.contract("L5")
def test_async_works_and_a_cancelled_task_no_longer_waits(lake: conroi.Lake, uri: str, address: str) -> None:
    async def hold() -> None:
        async with conroi.connect(uri, locks=address).insert_lock("shared"):
            raise AssertionError("it is taken")

    async def main() -> None:
        async with lake.insert_lock("shared"):
            await asyncio.to_thread(lake.insert, "shared", ROWS)
            waiting = asyncio.create_task(hold())
            while not any(info.is_waiting for info in lake.locks()):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            while any(info.is_waiting for info in lake.locks()):
                await asyncio.sleep(0)

    asyncio.run(main())
    assert lake.locks() == []


INTERRUPTED = """
import sys
import conroi
uri, locks = sys.argv[1:]
lake = conroi.connect(uri, locks=locks)
print("waits", flush=True)
try:
    lake.insert("shared", [{"worker": 0, "insert": 0, "n": 0}])
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.read()
"""


@pytest.mark.contract("L5")
def test_who_is_interrupted_no_longer_waits_while_its_process_lives(
    lake: conroi.Lake, uri: str, address: str, postgres: PostgresServer
) -> None:
    with lake.insert_lock("shared"):
        waiter = start(INTERRUPTED, uri, address)
        try:
            assert hear(waiter) == "waits"
            while not any(info.is_waiting for info in lake.locks()):
                assert waiter.poll() is None
            waiter.send_signal(signal.SIGINT)
            assert hear(waiter) == "interrupted"
            while connections(postgres, waiter.pid):
                assert waiter.poll() is None
            assert [info.is_waiting for info in lake.locks()] == [False]
        finally:
            end(waiter)


@pytest.mark.contract("L5")
@pytest.mark.parametrize("mode", ["postgresql", "file"])
def test_who_holds_the_lock_does_not_wait_for_itself(lake: conroi.Lake, mode: Mode) -> None:
    lake.set_locks(mode)
    lock = lake.insert_lock("shared", wait_s=5)
    with lock, lock, lake.insert_lock("shared", wait_s=5) as inner:
        assert lock.is_held
        assert inner.is_held
        inner.confirm()
        lake.insert("shared", ROWS, wait_s=5)
        assert len(lake.locks()) == 1
    assert not lock.is_held
    assert lake.locks() == []


@pytest.mark.contract("L5")
def test_a_forked_process_does_not_have_its_parents_lock(lake: conroi.Lake) -> None:
    with lake.insert_lock("shared"):
        assert locks_of(lake.catalog).mine("shared") is not None
        child = os.fork()
        if not child:
            os._exit(0 if locks_of(lake.catalog).mine("shared") is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lake.insert("shared", ROWS)  # and its end did not take it from us
        assert len(lake.locks()) == 1


@pytest.mark.contract("L5")
def test_a_process_with_more_than_1024_open_files_can_insert(lake: conroi.Lake, address: str, tmp_path: Path) -> None:
    """J6: select() refuses file descriptors from 1024 on. The same for a commit lock."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    lock = postgres_lock(address, "t")
    table = conroi.create_table(str(tmp_path / "t"), ROWS, commit_lock=lock)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        assert lake.insert("shared", ROWS * 2, chunk_rows=1).count_rows() == 2
        again = postgres_lock(address, "t")
        for number in (2, 3):
            table = conroi.open_table(table.uri, commit_lock=again).append(ROWS)
            assert table.count_rows() == number
        again.close()
    lock.close()


# ---------------------------------------------------------------------------------- on branches


@pytest.fixture
def dev(lake: conroi.Lake) -> conroi.Lake:
    lake.branches.create("dev")
    return lake.branch("dev")


@pytest.mark.contract("L12")
@pytest.mark.parametrize("mode", ["postgresql", "file"])
def test_a_branch_does_not_wait_for_main(lake: conroi.Lake, uri: str, address: str, mode: Mode) -> None:
    """G11: neither in another worker nor in the one that holds the lock of main."""
    lake.set_locks(mode)
    lake.branches.create("dev")
    with lake.insert_lock("shared"):
        dev = lake.branch("dev")
        dev.insert("shared", ROWS, wait_s=0)
        assert [info.table for info in lake.locks()] == ["shared"]
        with ThreadPoolExecutor(1) as thread:
            thread.submit(conroi.connect(uri, locks=address, branch="dev").insert, "shared", ROWS, wait_s=0).result()
            with pytest.raises(conroi.LockTimeout):
                thread.submit(conroi.connect(uri, locks=address).insert, "shared", ROWS, wait_s=0).result()
        lake.insert("shared", ROWS, wait_s=0)
    with dev.insert_lock("shared"), pytest.raises(conroi.LockTimeout):
        as_another_worker(lake.branch("dev"), wait_s=0)
    assert (dev["shared"].latest().count_rows(), lake["shared"].count_rows()) == (2, 1)


@pytest.mark.contract("L12")
def test_workers_of_a_branch_agree_on_its_lock(lake: conroi.Lake, dev: conroi.Lake, uri: str, address: str) -> None:
    on_main = row_of(lake, "shared").lock
    found = {locks_of(dev.catalog).ids.of(row_of(dev, "shared"))}
    found.add(locks_of(conroi.connect(uri, locks=address, branch="dev").catalog).ids.of(row_of(dev, "shared")))
    dev.insert("shared", ROWS)
    found.add(row_of(conroi.connect(uri, branch="dev"), "shared").lock or 0)
    assert len(found) == 1
    assert found != {on_main}
    assert row_of(conroi.connect(uri), "shared").lock == on_main


@pytest.mark.contract("L12")
def test_a_fast_forward_keeps_the_lock_of_the_branch(lake: conroi.Lake, dev: conroi.Lake) -> None:
    mine = locks_of(dev.catalog).ids.of(row_of(dev, "shared"))
    lake.insert("shared", ROWS)
    dev.merge("main")
    assert dev["shared"].count_rows() == 1
    assert row_of(dev, "shared").lock == mine


@pytest.mark.contract("L12")
def test_a_table_that_is_first_written_on_a_branch_without_locks_gets_its_id(uri: str) -> None:
    lake = conroi.connect(uri)
    lake.create_table("shared", SCHEMA)
    lake.branches.create("dev")
    dev = lake.branch("dev")
    assert dev.doctor().is_healthy
    dev["shared"].append(ROWS)
    assert row_of(dev, "shared").lock not in (None, row_of(lake, "shared").lock)
    assert dev.doctor().is_healthy


@pytest.mark.contract("L5")
def test_a_lock_is_of_the_table_and_not_of_its_name(lake: conroi.Lake) -> None:
    """Inside the lock of a table that was dropped, the new table of its name has another lock, which is free."""
    with lake.insert_lock("shared"):
        lake.drop_table("shared")
        lake.create_table("shared", SCHEMA)
        assert lake.insert("shared", ROWS, wait_s=0).count_rows() == 1


# ---------------------------------------------------------------------------------- L6


@pytest.mark.contract("L6")
@pytest.mark.parametrize("kind", ["folder", "sqlite", "postgresql"])
def test_a_lake_that_wants_locks_refuses_a_worker_without(
    kind: str, uri: str, tmp_path: Path, address: str, postgres: PostgresServer
) -> None:
    store = {"folder": None, "sqlite": sqlite_address(tmp_path), "postgresql": postgres.new_address()}[kind]
    lake = conroi.connect(uri, store=store, locks=address)
    lake.create_table("shared", SCHEMA, stable_row_ids=True)
    without = conroi.connect(uri, store=store)
    without.insert("shared", ROWS)  # locks are not required yet
    lake.set_locks("postgresql")
    for work in (without.insert, without.write):
        with pytest.raises(conroi.LocksRequired, match="connection has no locks"):
            work("shared", ROWS)
    with pytest.raises(conroi.LocksRequired):
        without["shared"].insert(ROWS)
    assert lake.insert("shared", ROWS).count_rows() == 2


@pytest.mark.contract("L6")
def test_a_lake_that_wants_none_opens_no_connection(uri: str) -> None:
    lake = conroi.connect(uri, locks="postgresql://nobody@127.0.0.1:1/nothing")
    lake.create_table("shared", SCHEMA, stable_row_ids=True)
    with pytest.raises(conroi.StoreError):
        lake.insert("shared", ROWS)
    lake.set_locks("none")
    assert lake.insert("shared", ROWS * 3, chunk_rows=1).count_rows() == 3
    assert lake.locks() == []


@pytest.mark.contract("L6")
def test_files_lock_the_processes_of_one_machine(uri: str) -> None:
    lake = conroi.connect(uri)
    lake.create_table("shared", SCHEMA, stable_row_ids=True)
    lake.set_locks("file")
    with lake.insert_lock("shared"):
        (info,) = lake.locks()
        assert (info.table, info.pid, info.is_waiting) == ("shared", os.getpid(), False)
        with pytest.raises(conroi.LockTimeout, match=f"process {os.getpid()} on"):
            as_another_worker(conroi.connect(uri), wait_s=0)
    assert lake.insert("shared", ROWS).count_rows() == 1


# ---------------------------------------------------------------------------------- L8, L9


@pytest.mark.contract("L8")
def test_who_waited_for_a_table_that_was_made_again_gets_the_new_ones_lock(
    lake: conroi.Lake, uri: str, address: str
) -> None:
    worker, locks = conroi.connect(uri, locks=address), locks_of(lake.catalog)
    worker.insert("shared", ROWS)  # knows the old id
    old = locks.take("shared", None)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(worker.insert, "shared", ROWS, wait_s=60)
        while not any(info.is_waiting for info in lake.locks()):
            assert not waiting.done()
        lake.drop_table("shared")
        lake.create_table("shared", SCHEMA, stable_row_ids=True)
        new = locks.take("shared", None)
        old.release()
        while not any(info.is_waiting for info in lake.locks()):  # now for the lock of the table that is there
            assert not waiting.done(), "it inserted under a lock of its own"
        assert lake["shared"].count_rows() == 0
        new.release()
        assert waiting.result(60).count_rows() == 1
    assert new.row.lock not in (None, old.row.lock)
    assert locks_of(worker.catalog).ids.of(new.row) == new.row.lock


@pytest.mark.contract("L9")
def test_a_bounded_wait_says_who_holds_the_lock_since_when(lake: conroi.Lake, uri: str, address: str) -> None:
    before = datetime.now(UTC)
    with lake.insert_lock("shared"):
        with pytest.raises(conroi.LockTimeout, match=r"Waited 0\.1 s") as caught:
            as_another_worker(conroi.connect(uri, locks=address), wait_s=0.1)
        assert caught.value.holder == f"process {os.getpid()} on {socket.gethostname()[:24]}"
        assert caught.value.held_since is not None
        assert abs(caught.value.held_since - before) < timedelta(seconds=5)
    with pytest.raises(conroi.InvalidInputError, match="wait_s"):
        lake.insert_lock("shared", wait_s=-1).__enter__()
