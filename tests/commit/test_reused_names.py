"""A version under a name that was collected: a writer that was paused put it there, and died before it looked.

Found by the model of the publish protocol (docs/model). The name is below the newest version, so nobody may take what
is there for a part of the history: neither a writer whose answer was lost and who looks for its own version, nor a
client that was idle and follows the versions one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import conroi
from conroi.storage.local_folders import settable_times
from conroi.storage.objects import Objects
from conroi.testing import Fault, FaultyObjects, Gate, Script, call_after, connect_through
from conroi.versions.retention import other_ages
from tests.support.aging import make_older
from tests.support.instruments import CloudLike
from tests.support.lakes import Dies, dies, rows, settle

pytestmark = pytest.mark.contract("M3", "T17", "H3")

PUT = ("put_if_absent", "_versions/*.manifest")
BOTH = pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])


@pytest.fixture(autouse=True)
def settable() -> Iterator[None]:
    """make_older() works. Nobody takes a short pause for granted: every process may have stood still."""
    with settable_times(), other_ages(0.0, 3600.0):
        yield


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake")
    for name in ("a", "b"):
        lake.create_table(name, [{"n": 0}])
    return lake


def client(lake: conroi.Lake, is_cloud: bool, *faults: Fault) -> conroi.Lake:
    def wrap(objects: Objects) -> Objects:
        near = CloudLike(objects) if is_cloud else objects
        return FaultyObjects(near, Script(faults)) if objects.root.endswith("__manifest") else near

    return connect_through(str(lake.uri), wrap)


class Paused:
    """A writer of `b` that stands still before its put, and dies after it, before it can look at the watermark."""

    def __init__(self, lake: conroi.Lake, is_cloud: bool) -> None:
        self._gate = Gate()
        tx = client(lake, is_cloud, Fault(before=self._gate, after=dies, verb=PUT[0], path=PUT[1])).begin()
        tx["b"].append([{"n": -1}])
        self._thread = threading.Thread(target=_until_death, args=(tx.commit,))
        self._thread.start()
        self._gate.wait_for_arrival()

    def go_on(self) -> None:
        self._gate.open()
        self._thread.join()


def _until_death(work: Callable[[], object]) -> None:
    try:
        work()
    except Dies:
        return
    raise AssertionError("it was to die")


def go_on_and_collect(lake: conroi.Lake, version: int) -> None:
    other = conroi.connect(lake.uri)
    for number in (10, 11):
        other["a"].append([{"n": number}])
    settle(other)
    make_older(lake.uri, hours=1)
    assert version in other.expire(timedelta(0), keep=1, dry_run=False).removed


@BOTH
def test_a_lost_answer_and_another_version_under_the_collected_name(lake: conroi.Lake, is_cloud: bool) -> None:
    """The writer's own version was there before: its outcome is unknown, and it is not published again."""
    wanted = lake.version + 1
    paused = Paused(lake, is_cloud)

    def stand_still(_request: object) -> None:
        go_on_and_collect(lake, wanted)
        paused.go_on()
        raise conroi.StoreUnavailable("no answer (injected)")

    tx = client(lake, is_cloud, call_after(stand_still, *PUT)).begin()
    tx["a"].append([{"n": 1}])
    with pytest.raises(conroi.CommitStateUnknown):
        tx.commit()
    assert rows(conroi.connect(lake.uri)["a"]) == [0, 1, 10, 11]


@BOTH
def test_an_idle_client_does_not_follow_a_version_under_a_collected_name(lake: conroi.Lake, is_cloud: bool) -> None:
    idle = client(lake, is_cloud)
    wanted = idle.version + 1
    paused = Paused(lake, is_cloud)
    go_on_and_collect(lake, wanted)
    paused.go_on()
    assert (rows(idle["a"]), rows(idle["b"])) == ([0, 10, 11], [0])
    with pytest.raises(conroi.VersionExpired):
        idle.at(version=wanted)
    idle["a"].append([{"n": 12}])
    idle["b"].append([{"n": 13}])
    fresh = conroi.connect(lake.uri)
    assert (rows(fresh["a"]), rows(fresh["b"])) == ([0, 10, 11, 12], [0, 13])
