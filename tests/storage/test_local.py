"""What is particular to a local folder: syncing, names without links, no traces."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from conroi.errors import InvalidInputError, NotFoundError, StoreError, StoreUnavailable
from conroi.storage import local_folders, open_objects
from conroi.storage.objects import ObjectExists, Objects

Events = list[tuple[str, str]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """What is synced, and when names appear, in order."""
    seen: Events = []
    fsync, link, replace = os.fsync, os.link, os.replace

    def seen_fsync(file: int) -> None:
        name = os.readlink(f"/proc/self/fd/{file}")
        seen.append(("sync folder" if os.path.isdir(name) else "sync file", name))
        fsync(file)

    def full(target: str, how: Mapping[str, Any]) -> str:
        return os.readlink(f"/proc/self/fd/{how['dst_dir_fd']}") + f"/{target}"

    def seen_link(source: str, target: str, **how: Any) -> None:
        seen.append(("name", full(target, how)))
        link(source, target, **how)

    def seen_replace(source: str, target: str, **how: Any) -> None:
        seen.append(("name", full(target, how)))
        replace(source, target, **how)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "link", seen_link)
    monkeypatch.setattr(os, "replace", seen_replace)
    return seen


WRITES: list[Callable[[Objects], None]] = [
    lambda objects: objects.put("f/new", b"x"),
    lambda objects: objects.put_if_absent("f/new", b"x"),
    lambda objects: objects.copy("f/old", "f/new"),
    lambda objects: objects.copy_if_absent("f/old", "f/new"),
]


@pytest.mark.parametrize("write", WRITES)
def test_durable_syncs_the_file_before_it_has_its_name_and_the_folder_after(
    write: Callable[[Objects], None], tmp_path: Path, events: Events
) -> None:
    objects = open_objects(tmp_path, durable=True)
    objects.put("f/old", b"x")
    events.clear()
    write(objects)
    assert [event for event, _ in events] == ["sync file", "name", "sync folder"]
    assert events[1:] == [("name", str(tmp_path / "f/new")), ("sync folder", str(tmp_path / "f"))]


def test_durable_rename_syncs_the_folder(tmp_path: Path, events: Events) -> None:
    objects = open_objects(tmp_path, durable=True)
    objects.put("f/old", b"x")
    events.clear()
    objects.rename_if_absent("f/old", "f/new")
    assert events == [("name", str(tmp_path / "f/new")), ("sync folder", str(tmp_path / "f"))]


def test_durable_syncs_new_folders_into_their_parents(tmp_path: Path, events: Events) -> None:
    open_objects(tmp_path / "lake" / "t", durable=True).put("f/new", b"x")
    synced = [name for event, name in events if event == "sync folder"]
    assert synced == [str(tmp_path / "lake" / "t"), str(tmp_path / "lake"), str(tmp_path), str(tmp_path / "lake/t/f")]


def test_durable_syncs_what_pylance_wrote_when_asked(tmp_path: Path, events: Events) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    (data,) = (f"data/{name}" for name in os.listdir(tmp_path / "t" / "data"))
    open_objects(tmp_path / "t", durable=True).sync([data])
    assert events == [
        ("sync file", str(tmp_path / "t" / data)),
        ("sync folder", str(tmp_path / "t" / "data")),
        ("sync folder", str(tmp_path / "t")),
    ]


@pytest.mark.parametrize("write", WRITES)
def test_nothing_is_synced_unless_durable(write: Callable[[Objects], None], tmp_path: Path, events: Events) -> None:
    objects = open_objects(tmp_path)
    objects.put("f/old", b"x")
    write(objects)
    objects.rename_if_absent("f/old", "f/renamed")
    objects.sync(["f/new"])
    assert {event for event, _ in events} == {"name"}


def test_nothing_temporary_is_left_behind(tmp_path: Path) -> None:
    objects = open_objects(tmp_path)
    objects.put("f/a", b"x")
    for attempt in (objects.put_if_absent, lambda path, _: objects.copy_if_absent("f/a", path)):
        with pytest.raises(ObjectExists):
            attempt("f/a", b"y")
    assert os.listdir(tmp_path / "f") == ["a"]


def test_a_temporary_file_is_no_version_to_pylance(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    (tmp_path / "t" / "_versions" / ".tmp_conroi_0123").write_bytes(b"half a mani")
    opened = lance.dataset(tmp_path / "t")
    assert [version["version"] for version in opened.versions()] == [1]


def no_links(*_: object, **_how: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_disk_without_links_renames_without_replacing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    objects = open_objects(tmp_path)
    objects.put_if_absent("f/a", b"first")
    with pytest.raises(ObjectExists):
        objects.put_if_absent("f/a", b"second")
    objects.put("f/b", b"staged")
    with pytest.raises(ObjectExists):
        objects.rename_if_absent("f/b", "f/a")
    assert (objects.get("f/a"), objects.get("f/b")) == (b"first", b"staged")
    objects.rename_if_absent("f/b", "f/c")
    assert sorted(os.listdir(tmp_path / "f")) == ["a", "c"]


def test_a_disk_that_can_do_neither_points_to_a_commit_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(local_folders, "_renameat2", lambda: None)
    objects = open_objects(tmp_path)
    with pytest.raises(StoreError) as caught:
        objects.put_if_absent("f/a", b"first")
    assert "commit lock" in (caught.value.hint or "")
    assert os.listdir(tmp_path / "f") == []
    objects.put("f/a", b"a plain put still works, and is all that a lock needs")


def test_a_link_whose_answer_was_lost_is_still_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_twice(source: str, target: str, **how: Any) -> None:
        link(source, target, **how)
        link(source, target, **how)  # a network disk sends it again

    monkeypatch.setattr(os, "link", link_twice)
    objects = open_objects(tmp_path)
    objects.put_if_absent("f/a", b"mine")
    with pytest.raises(ObjectExists):
        objects.put_if_absent("f/a", b"other")
    assert objects.get("f/a") == b"mine"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StoreError),
        (errno.EACCES, StoreError),
        (errno.EIO, StoreUnavailable),
        (errno.ESTALE, StoreUnavailable),
    ],
)
def test_a_disk_that_fails_gives_a_typed_error_and_leaves_nothing(
    code: int, kind: type[StoreError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_write(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    objects = open_objects(tmp_path)
    monkeypatch.setattr(os, "write", no_write)
    with pytest.raises(kind) as caught:
        objects.put("f/a", b"x")
    monkeypatch.undo()
    assert type(caught.value) is kind
    assert "f/a" in str(caught.value)
    assert os.listdir(tmp_path / "f") == []


def test_a_name_that_is_too_long_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        open_objects(tmp_path).put("f/" + "x" * 300, b"x")


def test_a_file_where_a_folder_should_be_is_not_found_or_refused(tmp_path: Path) -> None:
    objects = open_objects(tmp_path)
    objects.put("a", b"x")
    assert objects.head("a/b") is None
    assert list(objects.list("a")) == []
    with pytest.raises(NotFoundError):
        objects.get("a/b")
    with pytest.raises(InvalidInputError):
        objects.put("a/b", b"x")


def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        open_objects(tmp_path).put("f/a", b"x")
    finally:
        os.umask(before)
    assert os.stat(tmp_path / "f" / "a").st_mode & 0o777 == 0o640
