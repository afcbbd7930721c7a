"""Blobs, which a data file does not describe by itself, are read as a reader reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

import conroi

pytestmark = [pytest.mark.contract("M4"), pytest.mark.contract("T28")]

LARGE = b"y" * 300_000


def blobs(tmp_path: Path, version: str) -> str:
    root = str(tmp_path / "t")
    if version == "2.2":
        column = lance.blob_array([b"small", None, LARGE])
        table = pa.table({"id": [1, 2, 3], "b": column})
    else:
        field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        table = pa.table(
            {"id": [1, 2, 3], "b": [b"small", None, LARGE]}, schema=pa.schema([pa.field("id", pa.int64()), field])
        )
    lance.write_dataset(table, root, data_storage_version=cast("Any", version))
    return root


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_table_with_blobs_is_healthy(tmp_path: Path, version: str, deep: bool) -> None:
    """B1: every table with a blob column was called broken."""
    assert not conroi.open_table(blobs(tmp_path, version)).doctor(deep=deep).findings


def test_blobs_inside_a_struct_are_too(tmp_path: Path) -> None:
    struct = pa.StructArray.from_arrays(
        [pa.array([1, 2]), lance.blob_array([b"x", LARGE])], fields=[pa.field("n", pa.int64()), lance.blob_field("b")]
    )
    lance.write_dataset(pa.table({"s": struct}), str(tmp_path / "t"), data_storage_version="2.2")
    assert not conroi.open_table(str(tmp_path / "t")).doctor(deep=True).findings


def test_a_large_blob_that_is_gone_is_named(tmp_path: Path) -> None:
    """The negative control: the content of blobs is looked at."""
    root = blobs(tmp_path, "2.2")
    for file in Path(root).glob("data/*/*.blob"):
        file.unlink()
    assert "unreadable-rows" in {finding.kind for finding in conroi.open_table(root).doctor(deep=True).findings}
