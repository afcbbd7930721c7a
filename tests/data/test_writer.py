"""Data files of a stream: how batches become files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

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


def without_offsets(type_: pa.DataType, rows: int) -> pa.Array[Any]:
    """Empty lists or maps, or structs of them, as Arrow for Java makes them: an array without values has no offsets.

    Behind the end of its buffer is something else.
    """
    hole = pa.py_buffer(b"\xb4" * 64).slice(32, 0)
    if rows == 0 and not pa.types.is_struct(type_):
        children = [without_offsets(type_.field(n).type, 0) for n in range(type_.num_fields)]
        return pa.Array.from_buffers(type_, 0, [None, hole, hole][: 2 if children else 3], 0, 0, cast("Any", children))
    if pa.types.is_struct(type_):
        children = [without_offsets(field.type, rows) for field in type_]
        return pa.Array.from_buffers(type_, rows, [None], 0, 0, cast("Any", children))
    offsets = pa.py_buffer(bytes(4 * (rows + 1)))
    inside = without_offsets(type_.field(0).type, 0)
    return pa.Array.from_buffers(type_, rows, [None, offsets], 0, 0, cast("Any", [inside]))


TEXTS = pa.list_(pa.string())


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize(
    ("type_", "data_format"),
    [
        (TEXTS, "2.0"),
        (TEXTS, "2.1"),
        (pa.list_(TEXTS), "2.1"),
        (pa.list_(pa.struct([("a", pa.binary())])), "2.1"),
        (pa.struct([("a", TEXTS), ("b", TEXTS)]), "2.1"),
        (pa.map_(pa.string(), pa.string()), "2.2"),
    ],
    ids=str,
)
def test_arrays_without_values_need_no_offsets(
    tmp_path: Path, type_: pa.DataType, data_format: str, start: int
) -> None:
    """Found on PySpark 4.1: pylance took what is behind the end of the buffer for an offset."""
    hollow = without_offsets(type_, 5)
    hollow.validate(full=True)
    rows = pa.table({"id": range(5), "v": hollow}).slice(start)
    table = conroi.create_table(tmp_path / "t", rows, data_format=data_format)
    value = {"a": [], "b": []} if pa.types.is_struct(type_) else []
    assert table.to_arrow().to_pylist() == [{"id": number, "v": value} for number in range(start, 5)]


def has_dictionary(path: Path, column: int) -> bool:
    """Whether pylance wrote the column of the only data file with a dictionary."""
    (file,) = (path / "data").glob("*.lance")
    pages = LanceFileReader(str(file)).metadata().columns[column].pages
    return any("dictionary: Some" in str(page.encoding) for page in pages)


def test_narrow_integers_have_no_dictionary_and_the_table_says_nothing_of_it(tmp_path: Path) -> None:
    """A dictionary of integers that fit two bytes is no smaller than their packed bits, and slower to read."""
    rows = 100_000
    columns = {
        "narrow": [n % 100 for n in range(rows)],
        "nulls": [n % 100 if n % 3 else None for n in range(rows)],
        "wide": [n % 100 * 10**12 for n in range(rows)],
        "negative": [n % 100 - 50 for n in range(rows)],
        "own": [n % 100 for n in range(rows)],
    }
    own = pa.field("own", pa.int64(), metadata={"lance-encoding:dict-divisor": "2"})
    schema = pa.schema([*(pa.field(name, pa.int64()) for name in list(columns)[:-1]), own])
    table = conroi.create_table(tmp_path / "t", pa.table(columns, schema=schema))
    assert [has_dictionary(tmp_path / "t", number) for number in range(5)] == [False, False, True, True, True]
    found = lance.dataset(tmp_path / "t")
    for read in (found.to_table(), table.to_arrow()):
        assert read.to_pydict() == columns
    assert table.schema.field("narrow").metadata is found.schema.field("narrow").metadata is None
    assert found.schema.field("own").metadata == {b"lance-encoding:dict-divisor": b"2"}
    assert table.append(pa.table({name: values[:2] for name, values in columns.items()})).count_rows() == rows + 2


def test_integers_that_grow_after_the_first_rows_of_a_file_come_back(tmp_path: Path) -> None:
    first = pa.record_batch({"n": pa.array(range(2_000), pa.int64())})
    later = pa.record_batch({"n": pa.array([2**62, -1, None, 7], pa.int64())})
    table = conroi.create_table(tmp_path / "t", pa.RecordBatchReader.from_batches(first.schema, [first, later]))
    assert lance.dataset(tmp_path / "t").to_table()["n"].to_pylist() == [*range(2_000), 2**62, -1, None, 7]
    assert table.to_arrow(filter="n > 1998")["n"].to_pylist() == [1_999, 2**62]
