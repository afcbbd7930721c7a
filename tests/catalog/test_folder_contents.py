"""What is in a folder: a lake, a table of some format, or nothing that we know; and whose table folder it is."""

from __future__ import annotations

import uuid

import pytest

from conroi.catalog.folders import (
    MARKER,
    Marker,
    Released,
    content_of,
    created_in,
    mark,
    mark_again,
    marker,
    put_mark,
)
from conroi.catalog.rows import TABLE, Row
from conroi.errors import CorruptionError
from conroi.format.on_disk import CREATED_MARK
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from tests.support.instruments import CloudLike


@pytest.fixture(params=[False, True], ids=["local", "cloud"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Objects:
    objects = open_objects(str(tmp_path_factory.mktemp("folder")))
    return CloudLike(objects) if request.param else objects


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (MARKER, "a lake"),
        ("__manifest/_versions/1.manifest", "a lake"),
        ("_versions/1.manifest", "a Lance table"),
        ("_delta_log/00000000000000000000.json", "a Delta table"),
        (".hoodie/hoodie.properties", "a Hudi table"),
        ("metadata/v1.metadata.json", "an Iceberg table"),
        ("metadata/readme.txt", None),
        ("data/1.lance", None),
        ("_versions.txt", None),
    ],
)
def test_a_folder_is_known_by_its_files(folder: Objects, path: str, content: str | None) -> None:
    assert content_of(folder) is None
    folder.put(path, b"{}")
    assert content_of(folder) == content


def test_a_lake_is_a_lake_whatever_else_is_in_its_folder(folder: Objects) -> None:
    folder.put("_versions/1.manifest", b"")
    folder.put("metadata/v1.metadata.json", b"")
    assert content_of(folder) == "a Lance table"
    folder.put(MARKER, b"{}")
    assert content_of(folder) == "a lake"


@pytest.fixture
def objects() -> Objects:
    return open_objects(f"memory://{uuid.uuid4().hex}")


def test_a_table_folder_is_ours_if_its_mark_names_it(objects: Objects) -> None:
    assert created_in(objects, "t.lance") is None
    put_mark(objects, "t.lance", "one")
    assert created_in(objects, "t.lance") == "one"
    assert created_in(objects, "copy.lance") is None, "the mark was copied with the folder"
    for damaged in (b"{", b"[]", b'{"table": 1, "folder": "t.lance"}', b'{"table": "one"}'):
        objects.put(CREATED_MARK, damaged)
        assert created_in(objects, "t.lance") is None


def test_a_released_folder_is_not_one_that_the_lake_lists_again() -> None:
    gone = Released(frozenset({"t.lance", "u.lance"}))
    live = [Row("t", TABLE, "t.lance"), Row("v", TABLE, "v.lance")]
    assert [gone.has(each, live) for each in ("t.lance", "u.lance", "v.lance")] == [False, True, False]


def test_the_mark_of_a_lake_is_written_once_and_replaced_on_purpose(objects: Objects) -> None:
    assert marker(objects) is None
    one, two = Marker("sqlite", "one"), Marker("postgresql", "two")
    assert (mark(objects, one), mark(objects, two)) == (one, one)
    mark_again(objects, two)
    assert marker(objects) == two
    objects.put(MARKER, b'{"history": "sqlite"}')
    assert marker(objects) == Marker("sqlite", None), "an older conroi wrote it"
    objects.put(MARKER, b'{"lake": "one"}')
    with pytest.raises(CorruptionError, match=f"The file {MARKER} of the lake cannot be read"):
        marker(objects)
