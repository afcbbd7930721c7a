"""Tables of every make that pylance has: read, free of contradictions, and equal after our rewrite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

from conroi.format import lance_pb2 as pb
from conroi.format.flags import require_readable
from conroi.format.manifest import check_name_fits, check_transaction_fits, manifest_problems
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from conroi.format.naming import parse_manifest_name
from conroi.format.schema import schema_from_fields
from conroi.format.transaction import decode_transaction
from tests.format.pylance_tables import rows


def file_version(version: str) -> Callable[[Path], None]:
    return lambda root: lance.write_dataset(rows(0, 3), root, data_storage_version=version)  # type: ignore[return-value]


def detached(root: Path) -> None:
    ds = lance.write_dataset(rows(0, 3), root)
    fragments = lance.fragment.write_fragments(rows(3, 2), root)
    lance.LanceDataset.commit(root, lance.LanceOperation.Append(fragments), read_version=ds.version, detached=True)


def branch(root: Path) -> None:
    ds = lance.write_dataset(rows(0, 3), root)
    lance.write_dataset(rows(3, 3), ds.create_branch("side"), mode="append")


def clone(root: Path) -> None:
    source = lance.write_dataset(rows(0, 3), root.with_name("source"))
    source.delete("id = 1")
    source.shallow_clone(root, source.version)
    lance.dataset(root).delete("id = 2")


def deferred_remap(root: Path) -> None:
    lance.write_dataset(rows(0, 10), root)
    ds = lance.write_dataset(rows(10, 10), root, mode="append")
    ds.create_scalar_index("id", "BTREE")
    ds.optimize.compact_files(defer_index_remap=True)


def emptied(root: Path) -> None:
    ds = lance.write_dataset(rows(0, 3), root, enable_stable_row_ids=True)
    ds.delete("true")
    lance.write_dataset(rows(5, 3), root, mode="overwrite")


def many_columns(root: Path) -> None:
    ds = lance.write_dataset(rows(0, 3), root)
    ds.add_columns(pa.schema([("later", pa.int32())]))
    ds.alter_columns(cast("Any", {"path": "name", "name": "title"}))
    ds.drop_columns(["tags"])
    ds.update_field_metadata({"title": {"note": "x"}})
    ds.tags.create("t", 2)


MAKERS: dict[str, Callable[[Path], None]] = {
    "file version 0.1": file_version("0.1"),
    "file version 2.0": file_version("2.0"),
    "file version 2.1": file_version("2.1"),
    "file version 2.3": file_version("2.3"),
    "detached": detached,
    "branch": branch,
    "clone": clone,
    "deferred remap": deferred_remap,
    "emptied": emptied,
    "many columns": many_columns,
}


@pytest.mark.contract("T2", "T3", "T13")
@pytest.mark.parametrize("maker", MAKERS)
def test_a_table_of_any_make_is_understood(maker: str, tmp_path: Path):
    root = tmp_path / "t.lance"
    MAKERS[maker](root)
    paths = sorted(root.rglob("*.manifest"))
    assert paths
    for path in paths:
        file = decode_manifest_file(path.read_bytes())
        require_readable(file.manifest.head)
        assert list(manifest_problems(file.manifest)) == []
        name = parse_manifest_name(path.name)
        assert name is not None
        check_name_fits(name, file.manifest)
        assert file.transaction is not None
        check_transaction_fits(file.manifest, decode_transaction(file.transaction))
        again = decode_manifest_file(encode_manifest_file(file.manifest, file.transaction))
        assert comparable(again.manifest.full()) == comparable(file.manifest.full())
        assert again.manifest.indices == file.manifest.indices


def comparable(manifest: pb.Manifest) -> pb.Manifest:
    for name in ("index_section", "transaction_section", "transaction_section_deprecated"):
        manifest.ClearField(name)
    return manifest


@pytest.mark.parametrize("maker", MAKERS)
def test_the_schema_of_a_table_of_any_make_is_the_one_that_pylance_shows(maker: str, tmp_path: Path):
    root = tmp_path / "t.lance"
    MAKERS[maker](root)
    manifest = decode_manifest_file(min((root / "_versions").glob("1*.manifest")).read_bytes()).manifest
    shown = lance.dataset(root).schema
    assert schema_from_fields(manifest.fields, manifest.head.schema_metadata).equals(shown, check_metadata=True)


@pytest.mark.parametrize(
    "maker", sorted(set(MAKERS) - {"file version 0.1"})
)  # which keeps dictionaries in the manifest file
def test_pylance_opens_our_rewrite_of_a_table_of_any_make(maker: str, tmp_path: Path):
    root = tmp_path / "t.lance"
    MAKERS[maker](root)
    before = lance.dataset(root).to_table()
    for path in root.rglob("*.manifest"):
        file = decode_manifest_file(path.read_bytes())
        path.write_bytes(encode_manifest_file(file.manifest, file.transaction))
    assert lance.dataset(root).to_table() == before
    lance.write_dataset(before, root, mode="append")
    assert lance.dataset(root).count_rows() == 2 * before.num_rows
