"""What a merge reads: fragments that differ, and of a fragment in which rows were deleted only those rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import conroi
from conroi.data.columns import COLUMNS
from conroi.data.keys import PARTS
from tests.branches.test_diff import bytes_of, read_bytes


def _lake(folder: Path, rows: int, files: int, key: str | None) -> conroi.Lake:
    """A table of rows that do not compress, neither their keys, in several files; `at` counts them."""
    lake = conroi.connect(folder)
    random = np.random.default_rng(7)
    ids = random.permutation(rows) * 1_000_003 + (1 << 50)
    each = rows // files
    for n in range(files):
        part = slice(n * each, (n + 1) * each)
        arrays = {"id": ids[part], "n": random.integers(10, 1 << 60, each), "at": np.arange(rows)[part]}
        data = pa.table({name: pa.array(values) for name, values in arrays.items()})
        if n:
            lake["big"].append(data)
        else:
            lake.create_table("big", data, key=key)
    return lake


def _merge(folder: Path, rows: int, files: int, key: str | None) -> int:
    """Ten rows of two files changed on a branch, one of a third file on main; percent of the table that was read."""
    lake = _lake(folder, rows, files, key)
    size = bytes_of(lake["big"].uri)
    lake.branches.create("dev")
    dev = lake.branch("dev")
    dev["big"].update({"n": "1"}, where="at < 5", mode="rows")
    dev["big"].delete(f"at >= {rows - 3}")
    dev["big"].append(pa.table({"id": [1, 2], "n": [1, 1], "at": [rows, rows + 1]}))
    lake["big"].update({"n": "2"}, where=f"at = {rows // 2}", mode="rows")
    again = conroi.connect(folder)
    PARTS.clear()  # keys that this process has seen
    COLUMNS.clear()

    before = read_bytes()
    result = again.merge("dev")
    spent = read_bytes() - before

    (table,) = result.tables
    counts = (table.kind, table.inserted, table.updated, table.deleted)
    assert counts == (("merged", 2, 5, 3) if key else ("merged", 7, 0, 8))
    assert Counter(lake["big"].to_arrow(columns=["n"], filter="n < 10")["n"].to_pylist()) == {1: 7, 2: 1}
    assert lake["big"].count_rows() == rows - 1
    before = read_bytes()
    conroi.connect(folder)["big"].to_arrow()
    assert read_bytes() - before > size / 2, "the instrument sees what pylance reads"
    print(f"{spent:,} of {size:,} bytes")
    return spent * 100 // size


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.contract("B11")
def test_a_merge_of_ten_rows_reads_only_the_fragments_that_differ(tmp_path: Path, key: str | None) -> None:
    percent = _merge(tmp_path / "lake", 400_000, 40, key)
    assert percent < 8, "two fragments of forty hold the rows that changed; their keys are read, and deleted rows"


@pytest.mark.soak
@pytest.mark.contract("B11")
def test_also_of_five_million_rows(tmp_path: Path) -> None:
    assert _merge(tmp_path / "lake", 5_000_000, 50, "id") < 4
