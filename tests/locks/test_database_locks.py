"""Commit locks in PostgreSQL and DynamoDB: one holder over all hosts, released whatever happens, never a dead one."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import conroi
from conroi.environment import LONG_AGO
from conroi.errors import InvalidInputError, StoreUnavailable, TooMuchContention
from conroi.locks.dynamodb import DynamoLock
from conroi.locks.postgres import PostgresLock
from conroi.storage import open_objects
from conroi.storage.objects import ObjectExists
from conroi.stores import dynamodb_lock, postgres_lock
from conroi.testing import FaultyObjects, call_after
from conroi.versions.folder import LockedPut
from tests.support.databases import PostgresServer, aws_environment, dynamodb_address
from tests.support.external_tables import rows
from tests.support.racing import Race, assert_one_winner_each, run_race
from tests.support.servers import S3Server

pytestmark = pytest.mark.contract("T1")
LEASE_S = 2.0

HOLD = """
import sys
from conroi.stores import dynamodb_lock, postgres_lock
address, name, lease_s = sys.argv[1:]
if address.startswith("postgres"):
    lock = postgres_lock(address, name)
else:
    lock = dynamodb_lock(address, name, lease_s=float(lease_s))
with lock(1):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["postgres", "dynamodb"])
def address(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres").address()
    request.getfixturevalue("aws")
    return dynamodb_address(request.getfixturevalue("moto").endpoint, "shared")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock that no other test holds."""
    return f"{request.node.name}-{os.getpid()}"


def new_lock(
    address: str, name: str, *, timeout_s: float = 30.0, lease_s: float | None = None
) -> PostgresLock | DynamoLock:
    if address.startswith("postgres"):
        return postgres_lock(address, name, timeout_s=timeout_s)
    return dynamodb_lock(address, name, timeout_s=timeout_s, lease_s=30.0 if lease_s is None else lease_s)


@contextlib.contextmanager
def held_by_another_process(address: str, name: str) -> Generator[subprocess.Popen[str]]:
    environment = {"PYTHONPATH": ":".join(sys.path), **aws_environment()}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, address, name, str(LEASE_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=environment,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
        with contextlib.suppress(BrokenPipeError, ValueError):
            holder.stdin.close()  # type: ignore[union-attr]


def test_only_one_thread_is_inside(address: str, name: str) -> None:
    lock, inside, most = new_lock(address, name), 0, 0

    def work(version: int) -> None:
        nonlocal inside, most
        with lock(version):
            inside += 1
            most = max(most, inside)
            os.sched_yield()
            inside -= 1

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(1, 13)))
    assert most == 1


def test_locks_of_other_names_do_not_wait_for_each_other(address: str, name: str) -> None:
    with new_lock(address, name, timeout_s=5)(1), new_lock(address, f"{name}-other", timeout_s=5)(1):
        pass


def test_another_process_has_to_wait_as_long_as_it_is_told_to(address: str, name: str) -> None:
    with held_by_another_process(address, name) as holder:
        waiter = new_lock(address, name, timeout_s=LEASE_S * 1.25, lease_s=LEASE_S)
        with pytest.raises(TooMuchContention, match=r"Waited 2\.5 s") as caught, waiter(7):
            pass  # longer than the lease: a holder that lives keeps its lock
        assert (caught.value.version, name in str(caught.value)) == (7, True)
        holder.communicate("")
        with new_lock(address, name, timeout_s=0)(7):
            pass


def test_a_killed_holder_is_not_waited_for_longer_than_its_lease(address: str, name: str) -> None:
    with held_by_another_process(address, name) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with new_lock(address, name, timeout_s=20, lease_s=LEASE_S)(1):
            pass


def test_it_is_released_when_the_work_fails(address: str, name: str) -> None:
    with pytest.raises(ZeroDivisionError), new_lock(address, name)(1):
        raise ZeroDivisionError
    with new_lock(address, name, timeout_s=1)(2):
        pass


def test_a_version_that_is_there_is_a_conflict_and_the_lock_is_released(
    address: str, name: str, tmp_path: Path
) -> None:
    objects, lock = open_objects(tmp_path / "t.lance"), new_lock(address, name, timeout_s=1)
    LockedPut(lock).put_new(objects, "_versions/1.manifest", b"first")
    for _ in range(2):
        with pytest.raises(ObjectExists):
            LockedPut(lock).put_new(objects, "_versions/1.manifest", b"second")
    assert objects.get("_versions/1.manifest") == b"first"


def test_a_table_is_written_under_it(address: str, name: str, tmp_path: Path) -> None:
    lock = new_lock(address, name)
    conroi.create_table(tmp_path / "t.lance", [{"row": 1}], commit_lock=lock)
    one, other = (conroi.open_table(tmp_path / "t.lance", commit_lock=new_lock(address, name)) for _ in range(2))
    one.append([{"row": 2}])
    assert rows(other.append([{"row": 3}])) == [1, 2, 3]


def test_it_can_be_sent_to_another_process(address: str, name: str) -> None:
    again = pickle.loads(pickle.dumps(new_lock(address, name, timeout_s=3)))
    assert (again.name, again.timeout_s) == (name, 3)
    with again(1):
        pass


def test_a_holder_that_lost_its_lock_does_not_write(address: str, name: str, tmp_path: Path) -> None:
    """It is lost between the look and the write, which is when it matters."""
    lock = new_lock(address, name)
    objects = FaultyObjects(open_objects(tmp_path / "t.lance"), [call_after(lambda _: take_away(lock), "head")])
    with pytest.raises(StoreUnavailable):
        LockedPut(lock).put_new(objects, "_versions/1.manifest", b"late")
    assert objects.inner.head("_versions/1.manifest") is None
    with new_lock(address, name, timeout_s=20, lease_s=LEASE_S)(1):
        pass


def take_away(lock: PostgresLock | DynamoLock) -> None:
    """What a cut cable, or a process that was stopped for long, comes to."""
    if isinstance(lock, DynamoLock):
        held: list[Any] = list(held_leases())
        (lease,) = [lease for lease in held if lease._lock is lock]  # others may be left from other tests
        lease._beaten_at = LONG_AGO
        return
    with lock._database.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'")


def held_leases() -> list[object]:
    import gc

    from conroi.locks.dynamodb import HeldLease

    return [found for found in gc.get_objects() if isinstance(found, HeldLease)]  # type: ignore[return-value]


def test_a_commit_whose_lock_was_lost_after_its_write_looks_what_became_of_it(
    postgres: PostgresServer, name: str, tmp_path: Path
) -> None:
    lock = postgres_lock(postgres.address(), name)
    conroi.create_table(tmp_path / "t.lance", [{"row": 1}])
    from tests.support.instruments import table_on

    faulty = FaultyObjects(
        open_objects(tmp_path / "t.lance"), [call_after(lambda _: take_away(lock), "put", "_versions/*.manifest")]
    )
    table = table_on(faulty, putter=LockedPut(lock)).append([{"row": 2}])
    assert (len(faulty.hits), table.version, rows(table)) == (1, 2, [1, 2])


def test_a_dead_lease_is_taken_over_once(moto: S3Server, aws: None, name: str) -> None:
    lock = dynamodb_lock(dynamodb_address(moto.endpoint, "shared"), name, lease_s=LEASE_S)
    assert lock.replace_beat(None, "of a dead one")
    assert not lock.replace_beat(None, "mine")
    assert lock.replace_beat("of a dead one", "mine")
    assert not lock.replace_beat("of a dead one", "of a third"), "the beat that it saw is no longer there"
    assert not lock.remove_beat("of a dead one")
    assert lock.remove_beat("mine")


def test_a_lease_must_last() -> None:
    with pytest.raises(InvalidInputError):
        dynamodb_lock("dynamodb://t", "x", lease_s=0)


@pytest.mark.parametrize("kind", ["postgres", "dynamodb"])
def test_one_of_eight_processes_creates_a_version_under_the_lock(
    kind: str, request: pytest.FixtureRequest, rclone: S3Server
) -> None:
    """On a server that ignores conditions; that many win there without a lock is shown in test_races.py."""
    if kind == "postgres":
        address, rounds = request.getfixturevalue("postgres").address(), 10
    else:
        address, rounds = dynamodb_address(request.getfixturevalue("moto").endpoint, "shared"), 2
    race = Race(rclone.new_uri(), f"{kind} lock", rclone.options, lock_address=address, rounds=rounds)
    assert_one_winner_each(race, run_race(race))
