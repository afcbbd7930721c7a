"""The newest version of a table is read once by a process, and again when the file under its name is another one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import conroi
from conroi.errors import NotFoundError
from conroi.format.naming import ManifestNaming
from conroi.storage import open_objects
from conroi.testing import CountingObjects
from tests.support.instruments import CloudLike, table_on

BEFORE, AFTER, NEW = [{"id": 1}], [{"id": 100}], [{"id": 2}]


def written(folder: Path, rows: list[dict[str, int]], versions: int) -> conroi.Table:
    table = conroi.create_table(folder, rows)
    for _ in range(versions - 1):
        table = table.append(rows)
    return table


@pytest.mark.parametrize("is_newest", [True, False], ids=["newest handle", "old handle"])
@pytest.mark.parametrize("versions", [1, 2, 3, 4, 9])
def test_a_table_that_was_created_again_is_not_taken_for_the_old_one(tmp_path: Path, versions: int, is_newest: bool):
    folder = tmp_path / "t"
    first = written(folder, BEFORE, 1)
    newest = first.append(BEFORE).append(BEFORE)
    shutil.rmtree(folder)
    written(folder, AFTER, versions)

    done = (newest if is_newest else first).append(NEW)

    assert done.version == versions + 1
    assert done.to_arrow()["id"].to_pylist() == [100] * versions + [2]
    assert conroi.open_table(folder).to_arrow() == done.to_arrow()


def test_a_folder_that_was_restored_from_a_copy_is_read_again(tmp_path: Path):
    folder, copy = tmp_path / "t", tmp_path / "copy"
    written(copy, AFTER, 3)
    table = written(folder, BEFORE, 3)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    assert table.latest().to_arrow()["id"].to_pylist() == [100] * 3
    assert table.append(NEW).to_arrow()["id"].to_pylist() == [100] * 3 + [2]


@pytest.mark.parametrize("is_newest", [True, False], ids=["newest handle", "old handle"])
def test_a_table_that_was_deleted_is_not_continued(tmp_path: Path, is_newest: bool):
    first = written(tmp_path / "t", BEFORE, 1)
    newest = first.append(BEFORE)
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(NotFoundError):
        (newest if is_newest else first).append(NEW)
    assert not (tmp_path / "t" / "_versions").exists()


@pytest.mark.parametrize("store", ["local", "cloud"])
def test_an_old_handle_reads_the_newest_manifest_only_where_a_change_would_be_missed(tmp_path: Path, store: str):
    written(tmp_path / "t", BEFORE, 1)
    objects = open_objects(str(tmp_path / "t"))
    counting = CountingObjects(CloudLike(objects) if store == "cloud" else objects)
    first = table_on(counting)
    first.append(NEW)
    with counting.measure() as measured:
        assert first.append(NEW).version == 3
    assert measured.requests("get", "manifest") == (0 if store == "local" else 1)


def test_a_version_of_another_process_is_read(tmp_path: Path):
    first = written(tmp_path / "t", BEFORE, 1)
    first.append(BEFORE)
    conroi.open_table(tmp_path / "t").append(AFTER)
    assert first.append(NEW).to_arrow()["id"].to_pylist() == [1, 1, 100, 2]


def test_another_name_of_the_file_is_no_change(tmp_path: Path):
    """A writer removes the temporary name of a manifest after others have seen it."""
    written(tmp_path / "t", BEFORE, 1)
    counting = CountingObjects(open_objects(str(tmp_path / "t")))
    first = table_on(counting)
    manifest = tmp_path / "t" / ManifestNaming.V2.path(first.append(NEW).version)
    os.link(manifest, tmp_path / "copy")
    (tmp_path / "copy").unlink()
    with counting.measure() as measured:
        assert first.append(NEW).version == 3
    assert measured.requests("get", "manifest") == 0
    assert measured.requests("list") == 0
