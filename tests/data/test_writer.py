"""Data files of a stream: how batches become files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import conroi


@pytest.mark.parametrize(
    ("batches", "files"),
    [
        ([10], [4, 4, 2]),
        ([4, 4], [4, 4]),
        ([1, 0, 2, 3], [4, 2]),
        ([3, 6], [4, 4, 1]),
        ([0, 0], []),
        ([], []),
    ],
)
def test_batches_are_cut_into_files_of_the_limit(tmp_path: Path, batches: list[int], files: list[int]) -> None:
    table = conroi.create_table(tmp_path / "t", pa.schema({"n": pa.int64()}))
    pinned, first, parts = table.pinned, 0, list[pa.RecordBatch]()
    for count in batches:
        parts.append(pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())}))
        first += count
    done: list[int] = []
    writer = replace(pinned.writer(), rows_per_file=4)
    written = writer.write(pa.RecordBatchReader.from_batches(pinned.schema, parts), done.append)
    assert [fragment.physical_rows for fragment in written.fragments] == files
    assert written.rows == sum(files)
    assert done == [sum(files[: number + 1]) for number in range(len(files))]
    assert len(list((tmp_path / "t" / "data").glob("*.lance"))) == len(files)


def test_rows_in_several_files_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = conroi.create_table(tmp_path / "t", pa.schema({"n": pa.int64()}))
    kind = type(table.pinned)
    made = kind.writer
    monkeypatch.setattr(kind, "writer", lambda *given: replace(made(*given), rows_per_file=3))
    batches = [pa.record_batch({"n": [0, 1]}), pa.record_batch({"n": [2, 3, 4, 5, 6]}), pa.record_batch({"n": [7]})]
    table = table.append(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert table.to_arrow()["n"].to_pylist() == list(range(8))
    assert [fragment.physical_rows for fragment in table.pinned.manifest.fragments] == [3, 3, 2]
