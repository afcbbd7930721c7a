"""A `__manifest` without the key mark is refused, and migrated on request; the mark is there to stay."""

from __future__ import annotations

from pathlib import Path

import lance
import lance_namespace
import pyarrow as pa
import pytest

import conroi
import conroi.catalog
from conroi.catalog.manifest_rows import SCHEMA
from conroi.format.fields import key_columns
from tests.support.refusals import assert_helpful

UNMARKED = pa.schema([field.remove_metadata() for field in SCHEMA])


def unmarked(folder: Path, names: list[str | None], schema: pa.Schema = UNMARKED) -> Path:
    """A lake that other software wrote: tables by path, and a list of them that has no key."""
    rows = [{"object_id": name, "object_type": "table", "location": f"{name}.lance"} for name in names]
    lance.write_dataset(pa.Table.from_pylist(rows, schema=schema), str(folder / "__manifest"))
    for name in {name for name in names if name}:
        lance.write_dataset(pa.table({"a": [1, 2]}), str(folder / f"{name}.lance"))
    return folder


def marked_key(folder: Path) -> tuple[str, ...]:
    """The key as the manifest has it."""
    return key_columns(conroi.open_table(str(folder / "__manifest"))._pinned.manifest.fields)


@pytest.mark.contract("P7")
def test_a_list_of_tables_without_the_mark_is_refused_and_the_remedy_works(tmp_path: Path):
    unmarked(tmp_path, ["orders", "rates"])
    with pytest.raises(conroi.UnsupportedError) as caught:
        conroi.connect(tmp_path)
    assert_helpful(caught.value, conroi.UnsupportedError, "conroi.catalog.migrate(uri)")
    assert conroi.catalog.migrate(tmp_path) == 2
    lake = conroi.connect(tmp_path)
    assert lake.tables() == ["orders", "rates"]
    lake["orders"].append([{"a": 3}])
    assert conroi.connect(tmp_path)["orders"].count_rows() == 3
    namespace = lance_namespace.connect("dir", {"root": str(tmp_path)})
    listed = namespace.list_tables(lance_namespace.ListTablesRequest(id=[]))
    assert sorted(listed.tables) == ["orders", "rates"]


@pytest.mark.contract("P7")
def test_migrating_twice_or_a_lake_that_needs_it_not_does_nothing(tmp_path: Path):
    unmarked(tmp_path / "old", ["orders"])
    assert conroi.catalog.migrate(tmp_path / "old") == 2
    assert conroi.catalog.migrate(tmp_path / "old") == 2
    lake = conroi.connect(tmp_path / "other")
    assert conroi.catalog.migrate(tmp_path / "other") == lake.version == 1


@pytest.mark.contract("P7")
def test_a_name_that_is_there_twice_is_told_and_nothing_is_marked(tmp_path: Path):
    unmarked(tmp_path, ["orders", "orders", "rates"])
    with pytest.raises(conroi.DuplicateKeyError) as caught:
        conroi.catalog.migrate(tmp_path)
    assert_helpful(caught.value, conroi.DuplicateKeyError, "orders")
    assert marked_key(tmp_path) == ()


@pytest.mark.contract("P7")
def test_a_name_that_is_missing_is_told(tmp_path: Path):
    nullable = pa.schema([field.with_nullable(True) for field in UNMARKED])
    unmarked(tmp_path, ["orders", None], nullable)
    with pytest.raises(conroi.InvalidInputError, match="null"):
        conroi.catalog.migrate(tmp_path)


@pytest.mark.contract("P7")
def test_a_table_called_manifest_that_is_none_is_refused(tmp_path: Path):
    lance.write_dataset(pa.table({"object_id": ["a"]}), str(tmp_path / "__manifest"))
    for use in (conroi.connect, conroi.catalog.migrate):
        with pytest.raises(conroi.UnsupportedError) as caught:
            use(tmp_path)
        assert_helpful(caught.value, conroi.UnsupportedError, "object_type")
    assert marked_key(tmp_path) == ()


def test_there_must_be_something_to_migrate(tmp_path: Path):
    with pytest.raises(conroi.NotFoundError) as caught:
        conroi.catalog.migrate(tmp_path)
    assert_helpful(caught.value, conroi.NotFoundError, "conroi.connect(uri)")
    assert not list(tmp_path.iterdir())


@pytest.mark.contract("P7")
def test_the_mark_is_there_from_the_beginning_and_stays(tmp_path: Path):
    lake = conroi.connect(tmp_path)
    assert marked_key(tmp_path) == ("object_id",)
    for number in range(100):
        lake.create_namespace(f"n{number}")  # enough that its fragments are written anew at times
    assert marked_key(tmp_path) == ("object_id",)
    manifest = lance.dataset(str(tmp_path / "__manifest"))
    manifest.optimize.compact_files()
    assert marked_key(tmp_path) == ("object_id",)
    again = conroi.connect(tmp_path)
    assert len(again.namespaces()) == 100
    again.create_table("orders", [{"a": 1}])
    assert marked_key(tmp_path) == ("object_id",)
    assert lake.tables() == ["orders"]


@pytest.mark.contract("P7")
def test_a_pylance_namespace_that_adds_a_table_keeps_the_mark(tmp_path: Path):
    lake = conroi.connect(tmp_path)
    lake.create_table("orders", [{"a": 1}])
    namespace = lance_namespace.connect("dir", {"root": str(tmp_path)})
    lance.write_dataset(pa.table({"a": [1]}), namespace_client=namespace, table_id=["theirs"])
    assert marked_key(tmp_path) == ("object_id",)
    assert lake.tables() == ["orders", "theirs"]
    assert lake["theirs"].append([{"a": 2}]).count_rows() == 2
