"""Three ways to make a version real, one promise: whole and only once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from conroi.errors import StoreUnavailable
from conroi.format.naming import ManifestNaming
from conroi.locks.file import FileLock
from conroi.storage import open_objects
from conroi.storage.objects import ObjectExists, Objects
from conroi.testing import (
    CountingObjects,
    Fault,
    FaultyObjects,
    Gate,
    SeededEnvironment,
    call_before,
    fail,
    lose_answer,
)
from conroi.versions.folder import ConditionalPut, LockedPut, PutNew, RenameIfAbsent

PATH = ManifestNaming.V2.path(7)


@pytest.fixture(params=["conditional", "rename", "locked"])
def putter(request: pytest.FixtureRequest, tmp_path: Path) -> PutNew:
    if request.param == "conditional":
        return ConditionalPut()
    if request.param == "rename":
        return RenameIfAbsent(SeededEnvironment(1))
    return LockedPut(FileLock(tmp_path / "commit.lock"))


@pytest.mark.contract("T1")
def test_the_second_to_put_a_version_is_told_so(putter: PutNew, objects: Objects) -> None:
    putter.put_new(objects, PATH, b"first")
    with pytest.raises(ObjectExists) as caught:
        putter.put_new(objects, PATH, b"second")
    assert caught.value.path == PATH
    assert objects.get(PATH) == b"first"
    assert [info.path for info in objects.list("_versions")] == [PATH], "nothing staged or temporary is left"


def test_rename_stages_under_a_name_that_is_no_version(tmp_path: Path) -> None:
    objects = open_objects(tmp_path / "t")
    faulty = FaultyObjects(objects, [fail("rename_if_absent")])
    with pytest.raises(StoreUnavailable):
        RenameIfAbsent(SeededEnvironment(1)).put_new(faulty, PATH, b"data")
    staged = f"{PATH}-{SeededEnvironment(1).new_uuid()}"
    assert list(objects.list_names("")) == [staged], "kept: it is unknown whether the rename happened"


class RecordingLock:
    """Remembers who went in and out."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @contextlib.contextmanager
    def __call__(self, version: int) -> Generator[None]:
        self.log.append(f"lock {version}")
        try:
            yield
        finally:
            self.log.append("release")


@pytest.mark.contract("T1")
def test_a_lock_gets_the_version_and_is_released_after_the_put(tmp_path: Path) -> None:
    lock = RecordingLock()
    counting = CountingObjects(open_objects(tmp_path / "t"))
    LockedPut(lock).put_new(counting, PATH, b"data")
    assert lock.log == ["lock 7", "release"]
    assert counting.ever.by_verb_and_kind() == {("head", "manifest"): 1, ("put", "manifest"): 1}


@pytest.mark.contract("T1")
def test_a_lock_is_released_when_the_version_is_there_already(tmp_path: Path) -> None:
    lock, objects = RecordingLock(), open_objects(tmp_path / "t")
    objects.put(PATH, b"theirs")
    with pytest.raises(ObjectExists):
        LockedPut(lock).put_new(objects, PATH, b"mine")
    assert lock.log == ["lock 7", "release"]
    assert objects.get(PATH) == b"theirs"


@pytest.mark.contract("T1")
@pytest.mark.parametrize("fault", [fail("head"), fail("put"), lose_answer("put")], ids=["head", "put", "lost answer"])
def test_a_lock_is_released_when_the_storage_fails(fault: Fault, tmp_path: Path) -> None:
    lock = RecordingLock()
    with pytest.raises(StoreUnavailable):
        LockedPut(lock).put_new(FaultyObjects(open_objects(tmp_path / "t"), [fault]), PATH, b"mine")
    assert lock.log == ["lock 7", "release"]


@pytest.mark.contract("T1")
def test_no_writer_gets_in_between_the_check_and_the_put(tmp_path: Path) -> None:
    objects, lock, gate = open_objects(tmp_path / "t"), tmp_path / "commit.lock", Gate()
    slow = LockedPut(FileLock(lock))
    faulty = FaultyObjects(objects, [call_before(gate, "put")])
    writer = threading.Thread(target=slow.put_new, args=(faulty, PATH, b"slow"))
    writer.start()
    gate.wait_for_arrival()  # it looked, and is about to write
    impatient = LockedPut(FileLock(lock, timeout_s=0.5, environment=SeededEnvironment(1)))
    with pytest.raises(Exception, match="Waited"):
        impatient.put_new(objects, PATH, b"fast")
    gate.open()
    writer.join(30)
    assert objects.get(PATH) == b"slow"


@pytest.mark.contract("T1")
def test_control_without_a_lock_a_writer_does(tmp_path: Path) -> None:
    objects, gate = open_objects(tmp_path / "t"), Gate()
    unlocked = LockedPut(lambda _version: contextlib.nullcontext())
    faulty = FaultyObjects(objects, [call_before(gate, "put")])
    writer = threading.Thread(target=unlocked.put_new, args=(faulty, PATH, b"slow"))
    writer.start()
    gate.wait_for_arrival()
    unlocked.put_new(objects, PATH, b"fast")
    gate.open()
    writer.join(30)
    assert objects.get(PATH) == b"slow", "both were told that they created it, and one was overwritten"


def test_pylance_takes_the_same_lock(tmp_path: Path) -> None:
    lock = RecordingLock()
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": [1]}), uri, commit_lock=lock)
    lance.write_dataset(pa.table({"a": [2]}), uri, mode="append", commit_lock=lock)
    assert lock.log == ["lock 1", "release", "lock 2", "release"]


def test_pylance_waits_for_a_file_lock_that_we_hold(tmp_path: Path) -> None:
    uri, lock = str(tmp_path / "t.lance"), FileLock(tmp_path / "commit.lock")
    lance.write_dataset(pa.table({"a": [1]}), uri)
    impatient = FileLock(tmp_path / "commit.lock", timeout_s=0.2)
    with lock(2), pytest.raises(Exception, match="Waited"):
        lance.write_dataset(pa.table({"a": [2]}), uri, mode="append", commit_lock=impatient)
    assert lance.dataset(uri).count_rows() == 1
    lance.write_dataset(pa.table({"a": [2]}), uri, mode="append", commit_lock=impatient)
    assert lance.dataset(uri).count_rows() == 2
