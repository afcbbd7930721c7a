"""Clocks that stopped or were set: a commit lands on the newest version, whatever one of them says (F2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import conroi
from conroi.environment import Environment, SystemEnvironment, moment, seconds_since
from conroi.storage import open_objects
from conroi.storage.local_folders import settable_times
from conroi.storage.objects import Objects
from conroi.testing import CountingObjects, connect_through
from tests.support.aging import make_older
from tests.support.instruments import CloudLike, table_on

pytestmark = pytest.mark.contract("T16")

HOUR_S = 3600.0


@pytest.fixture(autouse=True)
def settable() -> Iterator[None]:
    """make_older() works: local files are as old as their modification time."""
    with settable_times():
        yield


class Clocks(SystemEnvironment):
    """Each of the two clocks can be moved by itself; `stopped` stops both, as a paused virtual machine does."""

    def __init__(self) -> None:
        super().__init__()
        self.steady_ahead_s = self.wall_ahead_s = 0.0
        self.stopped: tuple[float, int] | None = None

    def monotonic(self) -> float:
        return self.stopped[0] if self.stopped else super().monotonic() + self.steady_ahead_s

    def now_ns(self) -> int:
        return self.stopped[1] if self.stopped else super().now_ns() + round(self.wall_ahead_s * 1e9)

    def stop(self) -> None:
        self.stopped = self.monotonic(), self.now_ns()


def suspended(clocks: Clocks) -> None:
    """An hour passed while the machine slept, and the steady clock does not count it."""
    clocks.wall_ahead_s = HOUR_S


def set_back(clocks: Clocks) -> None:
    """An hour passed, and the wall clock was set back by two."""
    clocks.steady_ahead_s, clocks.wall_ahead_s = HOUR_S, -HOUR_S


def paused(clocks: Clocks) -> None:
    """An hour passed, and neither clock counts it."""
    clocks.stop()


HAPPENED = {"suspended": suspended, "wall clock set back": set_back}
Change = Callable[[Clocks], None]


def numbers(table: conroi.Table) -> list[int]:
    found: list[Any] = table.to_arrow()["id"].to_pylist()
    return sorted(found)


def on_storage(is_cloud: bool) -> Callable[[Objects], Objects]:
    return CloudLike if is_cloud else lambda objects: objects


def append_two_and_expire(table: conroi.Table) -> None:
    for number in (3, 4):
        table = table.append([{"id": number}])
    make_older(table.uri, hours=1)
    removed = table.expire(timedelta(seconds=60), keep=1, dry_run=False).removed
    assert removed[-1] == 3, "the version that comes after the one that the writer knows"


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
@pytest.mark.parametrize("happened", HAPPENED.values(), ids=HAPPENED)
def test_a_table_is_committed_on_its_newest_version(happened: Change, is_cloud: bool, tmp_path: Path) -> None:
    clocks = Clocks()
    conroi.create_table(tmp_path / "t", [{"id": 1}])
    writer = table_on(on_storage(is_cloud)(open_objects(tmp_path / "t")), environment=clocks).append([{"id": 2}])
    append_two_and_expire(conroi.open_table(tmp_path / "t"))
    happened(clocks)
    assert writer.append([{"id": 9}]).version == 5
    assert numbers(conroi.open_table(tmp_path / "t")) == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
@pytest.mark.parametrize("happened", HAPPENED.values(), ids=HAPPENED)
def test_a_lake_is_committed_on_its_newest_version(happened: Change, is_cloud: bool, tmp_path: Path) -> None:
    clocks = Clocks()
    uri = str(tmp_path / "lake")
    conroi.connect(uri).create_table("t", [{"id": 1}])
    writer = connect_through(uri, on_storage(is_cloud), environment=clocks)
    writer["t"].append([{"id": 2}])
    collected_after = writer.version
    other = conroi.connect(uri)
    for number in (3, 4):
        other["t"].append([{"id": number}])
    make_older(uri, hours=1)
    assert collected_after + 1 in other.expire(timedelta(seconds=60), keep=1, dry_run=False).removed
    happened(clocks)
    writer["t"].append([{"id": 9}])
    assert numbers(conroi.connect(uri)["t"]) == [1, 2, 3, 4, 9]
    assert conroi.connect(uri).doctor().is_healthy


def test_on_local_disk_no_clock_is_needed_at_all(tmp_path: Path) -> None:
    clocks = Clocks()
    conroi.create_table(tmp_path / "t", [{"id": 1}])
    writer = conroi.open_table(tmp_path / "t", environment=clocks).append([{"id": 2}])
    paused(clocks)
    append_two_and_expire(conroi.open_table(tmp_path / "t"))
    assert writer.append([{"id": 9}]).version == 5
    assert numbers(conroi.open_table(tmp_path / "t")) == [1, 2, 3, 4, 9]


def test_a_lake_on_local_disk_needs_no_clock_either(tmp_path: Path) -> None:
    clocks = Clocks()
    uri = str(tmp_path / "lake")
    writer = conroi.connect(uri, environment=clocks)
    writer.create_table("t", [{"id": 1}])
    writer["t"].append([{"id": 2}])
    paused(clocks)
    other = conroi.connect(uri)
    for number in (3, 4):
        other["t"].append([{"id": number}])
    make_older(uri, hours=1)
    other.expire(timedelta(seconds=60), keep=1, dry_run=False)
    writer["t"].append([{"id": 9}])
    assert numbers(conroi.connect(uri)["t"]) == [1, 2, 3, 4, 9]


def test_a_suspended_writer_looks_whether_its_files_are_still_there(tmp_path: Path) -> None:
    """Its transaction stands open during suspend, and gc takes what it wrote."""
    clocks = Clocks()
    uri = str(tmp_path / "lake")
    writer = conroi.connect(uri, environment=clocks)
    writer.create_table("t", [{"id": 1}])
    tx = writer.begin()
    tx["t"].append([{"id": 2}])
    make_older(uri, hours=48)
    conroi.connect(uri).gc(min_age="1d", dry_run=False)
    clocks.wall_ahead_s = 48 * HOUR_S
    with pytest.raises(conroi.RetryableConflict, match="may have been collected"):
        tx.commit()
    assert numbers(conroi.connect(uri)["t"]) == [1]


@pytest.mark.parametrize("ahead_s", [5 * HOUR_S, -5 * HOUR_S])
def test_a_wall_clock_that_jumps_by_hours_loses_and_doubles_nothing(ahead_s: float, tmp_path: Path) -> None:
    clocks = Clocks()
    lake = conroi.connect(tmp_path / "lake", environment=clocks)
    lake.create_table("t", [{"id": 0}])
    for number in range(1, 7):
        clocks.wall_ahead_s = ahead_s if number % 2 else 0.0
        with lake.begin() as tx:
            clocks.wall_ahead_s += ahead_s / 2
            tx["t"].append([{"id": number}])
    assert numbers(conroi.connect(lake.uri)["t"]) == [0, 1, 2, 3, 4, 5, 6]
    times = [commit.timestamp for commit in lake.history()]
    assert times == sorted(times, reverse=True), "a version is never dated before the one that it follows"


def test_the_time_that_passed_is_what_the_faster_clock_says() -> None:
    clocks = Clocks()
    clocks.stop()
    then = moment(clocks)
    steady_s, wall_ns = then
    for steady_passed, wall_passed, expected in [(5.0, 90.0, 90.0), (90.0, 5.0, 90.0), (7.0, -3600.0, 7.0)]:
        clocks.stopped = steady_s + steady_passed, wall_ns + round(wall_passed * 1e9)
        assert seconds_since(clocks, then) == pytest.approx(expected)


def test_the_system_clock_counts_the_time_of_suspend() -> None:
    import time

    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no CLOCK_BOOTTIME")
    environment: Environment = SystemEnvironment()
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= environment.monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_quick_append_to_an_object_store_asks_for_no_watermark(tmp_path: Path) -> None:
    """The protection costs a quick writer no request."""
    conroi.create_table(tmp_path / "t", [{"id": 1}])
    counting = CountingObjects(CloudLike(open_objects(tmp_path / "t")))
    table = table_on(counting).append([{"id": 2}])
    with counting.measure() as measured:
        table.append([{"id": 3}])
    assert (measured.requests("list"), measured.requests("put_if_absent")) == (0, 1)
