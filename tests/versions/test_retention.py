"""The notes that collectors leave."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

import conroi
from conroi.format.on_disk import EXPIRED_DIR
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.testing import FaultyObjects, Script, fail
from conroi.versions.retention import (
    Forgetting,
    Retention,
    collected_until_ns,
    end_of_dead_collector,
    is_running,
    note_sweep,
    other_ages,
    retention_of,
    watermark,
)

pytestmark = pytest.mark.contract("M3")

RETAINED, EXPIRING, COLLECTED = Retention.RETAINED, Retention.EXPIRING, Retention.COLLECTED


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return open_objects(tmp_path)


def test_the_watermark_never_sinks(objects: Objects) -> None:
    high = Forgetting(objects, [5, 6, 7], "a" * 32)
    low = Forgetting(objects, [1, 2], "b" * 32)
    for note in (high, low):
        assert watermark(objects) == 7
        note.done()
    assert watermark(objects) == 7
    assert [retention_of(objects, version) for version in (2, 3, 7, 8)] == [
        COLLECTED,
        RETAINED,
        COLLECTED,
        RETAINED,
    ]


def test_versions_are_going_before_they_are_gone(objects: Objects) -> None:
    note = Forgetting(objects, [1, 2, 3], "a" * 32)
    assert retention_of(objects, 2) is EXPIRING
    note.only([1, 3])
    assert (retention_of(objects, 1), retention_of(objects, 2)) == (EXPIRING, RETAINED)
    note.done()
    assert (retention_of(objects, 1), retention_of(objects, 2)) == (COLLECTED, RETAINED)


def test_a_collector_that_died_after_its_last_record_is_ended_without_losing_it(objects: Objects) -> None:
    """Found by a simulation (database_registers, seed 10061492): the record was replaced by itself, and deleted."""
    note = Forgetting(FaultyObjects(objects, Script([fail("delete")])), [1, 2], "a" * 32)
    with pytest.raises(conroi.StoreError):
        note.done()
    (running,) = [path for path in objects.list_names(EXPIRED_DIR) if is_running(path)]
    end_of_dead_collector(objects, running, set())
    assert watermark(objects) == 2
    assert [retention_of(objects, version) for version in (1, 2, 3)] == [COLLECTED, COLLECTED, RETAINED]
    assert len(list(objects.list_names(EXPIRED_DIR))) == 1


def test_two_collectors_of_the_same_versions_forget_nothing_of_each_other(objects: Objects) -> None:
    first, second = Forgetting(objects, [1, 4], "a" * 32), Forgetting(objects, [2, 4], "b" * 32)
    threads = [threading.Thread(target=note.done) for note in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [version for version in range(6) if retention_of(objects, version) is COLLECTED] == [1, 2, 4]


def test_many_runs_leave_one_note(objects: Objects) -> None:
    for version in range(1, 30):
        Forgetting(objects, [version], f"{version:032d}").done()
    assert len(list(objects.list_names("_conroi/forgotten"))) == 1
    assert (retention_of(objects, 1), retention_of(objects, 29), watermark(objects)) == (
        COLLECTED,
        COLLECTED,
        29,
    )


def test_of_a_dead_collector_only_what_it_deleted_is_gone(objects: Objects) -> None:
    Forgetting(objects, [1, 2], "a" * 32)
    path = next(iter(objects.list_names("_conroi/forgotten")))
    assert is_running(path)
    end_of_dead_collector(objects, path, there={2})
    assert (watermark(objects), retention_of(objects, 1), retention_of(objects, 2)) == (
        2,
        COLLECTED,
        RETAINED,
    )


def test_a_note_that_cannot_be_read_is_an_error_and_no_guess(objects: Objects) -> None:
    objects.put("_conroi/forgotten/00000000000000000007.x", b"{")
    assert retention_of(objects, 8) is RETAINED
    with pytest.raises(conroi.CorruptionError):
        retention_of(objects, 7)


def test_the_sweep_never_goes_back(objects: Objects) -> None:
    assert collected_until_ns(objects) == 0
    note_sweep(objects, 500)
    note_sweep(objects, 300)
    assert collected_until_ns(objects) == 500
    note_sweep(objects, 900)
    assert len(list(objects.list_names("_conroi/swept"))) == 1


def test_the_temporary_file_of_a_killed_collector_does_not_stop_the_next(tmp_path: Path) -> None:
    """A collector that is killed while it writes its note leaves a temporary file, which may be cut off."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"n": 1}])
    with other_ages(0, 0):
        for name in (".tmp_conroi_0123456789abcdef_1_1", ".tmp_conroi_fedcba9876543210_1_2"):
            path = tmp_path / "lake" / "t.lance" / "_conroi" / "forgotten" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("" if name.endswith("1") else '{"versions": [[1, 1]]}')
        lake["t"].append([{"n": 2}])
        lake.expire(timedelta(0), keep=1, dry_run=False)
        lake.gc(min_age=timedelta(0), dry_run=False)
    assert not list(tmp_path.rglob(".tmp_conroi_*"))
    assert lake["t"].to_arrow()["n"].to_pylist() == [1, 2]
    assert lake.doctor().is_healthy
