"""Real tables, made by pylance, whose bytes the tests compare with ours."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa

from conroi.format.manifest_file import ManifestFile, decode_manifest_file

KEY = "lance-schema:unenforced-primary-key"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={KEY: "true"}),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ],
    metadata={"owner": "tests"},
)


def rows(first: int, count: int) -> pa.Table:
    """Rows with the ids first, first + 1, …"""
    ids = range(first, first + count)
    columns = {"id": list(ids), "name": [f"n{i}" for i in ids], "tags": [["a"] * (i % 3) for i in ids]}
    return pa.table(columns, schema=SCHEMA)


def make_busy_table(root: Path, *, stable_row_ids: bool) -> Path:
    """A table with a version of every kind that pylance's verbs make."""
    uri = str(root)
    ds = lance.write_dataset(rows(0, 60), uri, enable_stable_row_ids=stable_row_ids)
    ds = lance.write_dataset(rows(60, 40), uri, mode="append")
    ds.create_scalar_index("id", "BTREE")
    ds.delete("id % 7 = 3")
    ds.update({"name": "'changed'"}, where="id % 5 = 0")
    merge = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.use_index(False).execute(rows(95, 20))
    ds.update_config({"team": "blue"})
    ds.add_columns({"twice": "id * 2"})
    ds.optimize.compact_files()
    ds.drop_columns(["name"])
    ds.restore() if ds.version == 1 else lance.dataset(uri, version=3).restore()
    return root


def manifest_paths(root: Path) -> list[Path]:
    """The manifest files of a table, oldest version first."""
    return sorted((root / "_versions").glob("*.manifest"), reverse=True)


def manifest_files(root: Path) -> list[ManifestFile]:
    """All versions of a table, oldest first."""
    return [decode_manifest_file(path.read_bytes()) for path in manifest_paths(root)]
