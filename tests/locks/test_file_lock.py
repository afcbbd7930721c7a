"""The commit lock on a file: one holder, over threads and processes, and never a dead one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conroi.errors import InvalidInputError, StoreError, TooMuchContention
from conroi.locks.file import FileLock
from conroi.testing import SeededEnvironment

pytestmark = pytest.mark.contract("T1")

HOLD = """
import sys
from conroi.locks.file import FileLock
with FileLock(sys.argv[1])(1):
    print("held", flush=True)
    sys.stdin.read()
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until its input ends or it is killed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_only_one_thread_is_inside(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    inside, most = 0, 0

    def work(_: int) -> None:
        nonlocal inside, most
        with lock(1):
            inside += 1
            most = max(most, inside)
            os.sched_yield()
            inside -= 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(64)))
    assert most == 1


def test_another_process_has_to_wait_and_hears_who_holds_it(tmp_path: Path) -> None:
    holder = start_holder(tmp_path / "lock")
    try:
        world = SeededEnvironment(1)
        with (
            pytest.raises(TooMuchContention) as caught,
            FileLock(tmp_path / "lock", timeout_s=5, environment=world)(7),
        ):
            pass
        assert f"pid {holder.pid}" in str(caught.value)
        assert caught.value.version == 7
        assert 5 <= world.monotonic() < 5.1, "waited as long as it was told to, and no longer"
    finally:
        holder.communicate("")
    with FileLock(tmp_path / "lock", timeout_s=0)(7):
        pass


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with start_holder(tmp_path / "lock") as holder:
        holder.kill()
    with FileLock(tmp_path / "lock", timeout_s=0)(1):
        pass


def test_it_is_released_when_the_work_fails(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", timeout_s=0)
    with pytest.raises(ZeroDivisionError), lock(1):
        raise ZeroDivisionError
    with lock(2):
        pass


def test_taking_it_twice_in_one_thread_is_refused_instead_of_waiting_for_oneself(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    with lock(1), pytest.raises(InvalidInputError, match="already"), lock(2):
        pass
    with lock(3):
        pass


def test_it_can_be_sent_to_another_process(tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(FileLock(tmp_path / "lock", timeout_s=3)))
    assert (again.path, again.timeout_s) == (str(tmp_path / "lock"), 3)
    with again(1):
        pass


def test_a_lock_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"), FileLock(tmp_path / "no" / "lock")(1):
        pass
    with pytest.raises((StoreError, InvalidInputError)), FileLock(tmp_path)(1):
        pass
