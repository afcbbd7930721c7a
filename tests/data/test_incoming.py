"""Incoming rows that have the table's schema already, or nearly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import conroi
from conroi.data.incoming import to_reader


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (pa.string_view(), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.list_(pa.string_view()), pa.list_(pa.string())),
        (pa.struct([("a", pa.string_view())]), pa.struct([("a", pa.string())])),
        (pa.struct([("a_view", pa.string())]), pa.struct([("a_view", pa.string())])),
        (pa.string(), pa.string()),
    ],
)
def test_views_become_plain_types(given: pa.DataType, plain: pa.DataType) -> None:
    rows = pa.Table.from_batches([], pa.schema([pa.field("v", given, metadata={"m": "1"})]))
    found = to_reader(rows).schema.field("v")
    assert (found.type, found.metadata) == (plain, {b"m": b"1"})


def test_a_null_is_refused_although_the_schema_is_the_table_s_own(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    table = conroi.create_table(tmp_path / "t", schema)
    assert table.schema.equals(schema, check_metadata=True)
    batch = pa.RecordBatch.from_arrays([pa.array([1, None]), pa.array(["a", "b"])], schema=schema)
    with pytest.raises(conroi.InvalidInputError, match="'id' may not be null, but the data has 1 nulls"):
        table.append(pa.Table.from_batches([batch]))
    assert table.latest().version == 1


def test_a_batch_gets_the_metadata_of_its_stream() -> None:
    schema = pa.schema([pa.field("v", pa.int64(), metadata={"m": "1"})], metadata={"s": "2"})
    other: Any = pa.record_batch({"v": [1]})
    (batch,) = to_reader(pa.RecordBatchReader.from_batches(schema, [other]))
    assert batch.schema.equals(schema, check_metadata=True)
    assert batch.column("v").to_pylist() == [1]


def test_a_blob_threshold_is_refused_although_the_types_are_the_table_s_own(tmp_path: Path) -> None:
    def rows(threshold: str) -> pa.Table:
        marks = {"lance-encoding:blob-inline-size-threshold": threshold}
        schema = pa.schema([pa.field("b", pa.large_binary(), metadata=marks)])
        return pa.Table.from_arrays([pa.array([b"x"], pa.large_binary())], schema=schema)

    table = conroi.create_table(tmp_path / "t", rows("1000"))
    assert table.schema.equals(rows("1000").schema, check_metadata=True)
    assert table.append(rows("1000")).count_rows() == 2
    with pytest.raises(conroi.InvalidInputError, match="asks for lance-encoding:blob-inline-size-threshold"):
        table.append(rows("2000"))
