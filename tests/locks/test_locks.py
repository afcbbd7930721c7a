"""One lock for each table: its id, who has it, and when it is let go."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.catalog.publishing import Order, Publishing
from conroi.locks.ids import new_lock_id
from conroi.locks.locks import locks_of
from tests.locks.workers import SCHEMA
from tests.support.databases import PostgresServer, sqlite_address

ROWS = [{"worker": 0, "insert": 0, "n": 0}]


def row_of(lake: conroi.Lake, name: str = "shared"):
    return lake.catalog.row(name, lake.catalog.state())


def adopted(uri: str) -> None:
    """A lake with a table that pylance made: it has no lock id."""
    lake = conroi.connect(uri)
    lance.write_dataset(pa.Table.from_pylist(ROWS, schema=SCHEMA), f"{uri}/old.lance", enable_stable_row_ids=True)
    assert lake.adopt() == ["old"]
    assert row_of(lake, "old").lock is None


def at_once(work: Callable[[conroi.Lake], int], uri: str, count: int = 16) -> list[int]:
    lakes, barrier = [conroi.connect(uri) for _ in range(count)], threading.Barrier(count)

    def one(lake: conroi.Lake) -> int:
        barrier.wait(30)
        return work(lake)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, lakes))


# ---------------------------------------------------------------------------------- L4


@pytest.mark.contract("L4")
def test_sixteen_first_registrations_at_once_agree_on_one_id(uri: str) -> None:
    adopted(uri)
    ids = at_once(lambda lake: locks_of(lake.catalog).ids.of(row_of(lake, "old")), uri)
    assert set(ids) == {row_of(conroi.connect(uri), "old").lock}
    assert 0 <= ids[0] < 2**63


@pytest.mark.contract("L4")
def test_without_the_comparison_they_do_not_agree(uri: str) -> None:
    adopted(uri)
    rows = [row_of(conroi.connect(uri), "old")] * 16

    def overwrite(lake: conroi.Lake) -> int:
        mine = new_lock_id(lake.catalog.environment)
        Publishing(lake.catalog, Order(lake.catalog.state(), rows={"old": rows.pop().with_lock(mine)})).run()
        return mine

    assert len(set(at_once(overwrite, uri, 4))) == 4


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
    def connections() -> int:
        with postgres.connect() as connection:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'conroi %shared'"
            ((count,),) = connection.execute(sql).fetchall()
        assert isinstance(count, int)
        return count

    with lake.insert_lock("shared"):
        assert (connections(), len(lake.locks())) == (1, 1)
        lake.insert("shared", ROWS)  # by this very lock
        assert connections() == 1
    assert lake.locks() == []
    with pytest.raises(ValueError, match="oops"), lake.insert_lock("shared"):
        raise ValueError("oops")
    assert lake.locks() == []


@pytest.mark.contract("L5")
def test_async_works_and_who_is_cancelled_no_longer_waits(lake: conroi.Lake, uri: str, address: str) -> None:
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


# ---------------------------------------------------------------------------------- L6


@pytest.mark.contract("L6")
@pytest.mark.parametrize("kind", ["folder", "sqlite"])
def test_a_lake_that_wants_locks_refuses_a_worker_without(kind: str, uri: str, tmp_path: Path, address: str) -> None:
    store = sqlite_address(tmp_path) if kind == "sqlite" else None
    lake = conroi.connect(uri, store=store, locks=address)
    lake.create_table("shared", SCHEMA, stable_row_ids=True)
    without = conroi.connect(uri, store=store)
    without.insert("shared", ROWS)  # nobody wants locks yet
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
            conroi.connect(uri).insert_lock("shared", wait_s=0).__enter__()
    assert lake.insert("shared", ROWS).count_rows() == 1


# ---------------------------------------------------------------------------------- L8, L9


@pytest.mark.contract("L8")
def test_who_waited_for_a_table_that_was_made_again_gets_the_new_ones_lock(
    lake: conroi.Lake, uri: str, address: str
) -> None:
    worker = conroi.connect(uri, locks=address)
    worker.insert("shared", ROWS)  # knows the old id
    old = row_of(lake).lock
    with ThreadPoolExecutor(1) as thread:
        with lake.insert_lock("shared"):
            waiting = thread.submit(worker.insert, "shared", ROWS, wait_s=20)
            while not any(info.is_waiting for info in lake.locks()):
                pass
            lake.drop_table("shared")
            lake.create_table("shared", SCHEMA, stable_row_ids=True)
        assert waiting.result(20).count_rows() == 1
    new = row_of(lake)
    assert new.lock not in (None, old)
    assert locks_of(worker.catalog).ids.of(new) == new.lock


@pytest.mark.contract("L9")
def test_a_bounded_wait_says_who_holds_the_lock_since_when(lake: conroi.Lake, uri: str, address: str) -> None:
    before = datetime.now(UTC)
    with lake.insert_lock("shared"):
        with pytest.raises(conroi.LockTimeout, match=r"Waited 0\.1 s") as caught:
            conroi.connect(uri, locks=address).insert_lock("shared", wait_s=0.1).__enter__()
        assert caught.value.holder == f"process {os.getpid()} on {socket.gethostname()[:24]}"
        assert caught.value.held_since is not None
        assert abs(caught.value.held_since - before) < timedelta(seconds=5)
    with pytest.raises(conroi.InvalidInputError, match="wait_s"):
        lake.insert_lock("shared", wait_s=-1).__enter__()
