"""Blobs inside structs and lists, and blobs that a function computes: the same verbs, the right bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("T28")

LARGE = b"y" * 300_000


def in_struct(values: list[bytes | None]) -> pa.Array[Any]:
    parts = [pa.array(range(len(values)), pa.int64()), lance.blob_array(values)]
    return pa.StructArray.from_arrays(parts, fields=[pa.field("n", pa.int64()), lance.blob_field("b")])


def in_list(values: list[bytes | None]) -> pa.Array[Any]:
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), lance.blob_array(values))


MAKERS = {"struct": in_struct, "list": in_list}


def table_of(kind: str, ids: list[int], values: list[bytes | None]) -> pa.Table:
    return pa.table({"id": ids, "x": MAKERS[kind](values)})


def contents(table: conroi.Table, kind: str) -> dict[int, bytes | None]:
    """The bytes by id, as pylance reads them."""
    rows = lance.dataset(table.uri).scanner(blob_handling="all_binary").to_table().to_pylist()
    return {row["id"]: row["x"]["b"] if kind == "struct" else row["x"][0] for row in rows}


@pytest.fixture(params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def table(tmp_path: Path, kind: str) -> conroi.Table:
    return conroi.create_table(tmp_path / "t", table_of(kind, [3, 1, 2], [b"three", None, LARGE]))


def test_rows_with_them_are_updated(table: conroi.Table, kind: str) -> None:
    """B7."""
    table = table.update({"id": "id + 10"}, where="id >= 2", mode="rows")
    assert contents(table, kind) == {13: b"three", 1: None, 12: LARGE}


def test_rows_with_them_are_merged(table: conroi.Table, kind: str) -> None:
    merge = table.merge(table_of(kind, [2, 4], [b"new", b"four"]), on="id")
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert contents(done.table, kind) == {3: b"three", 1: None, 2: b"new", 4: b"four"}


def test_rows_with_them_are_sorted(table: conroi.Table, kind: str) -> None:
    table = table.compact("id")
    assert list(contents(table, kind).items()) == [(1, None), (2, LARGE), (3, b"three")]


def test_a_function_computes_blobs(tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", pa.table({"id": [1, 2]})).append(pa.table({"id": [3]}))

    def blobs(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [LARGE if number == 2 else b"x" * number for number in column_values(batch["id"])]
        return pa.record_batch([lance.blob_array(values)], names=["b"])

    table = table.add_columns(blobs)
    rows = lance.dataset(table.uri).scanner(blob_handling="all_binary").to_table().to_pylist()
    assert {row["id"]: row["b"] for row in rows} == {1: b"x", 2: LARGE, 3: b"xxx"}
    assert not conroi.open_table(table.uri).doctor(deep=True).findings


def test_blobs_of_a_newer_release_go_into_a_column_of_an_older_one(tmp_path: Path) -> None:
    """A column made by pylance 13 has no place for ranges; blobs that use none fit all the same."""
    old = type(lance.blob_array([b"x"]).type)
    storage = pa.StructArray.from_arrays(
        [pa.array([b"old"], pa.large_binary()), pa.array([None], pa.string())], names=["data", "uri"]
    )
    table = conroi.create_table(tmp_path / "t", pa.table({"id": [1], "b": _as_blob(old, storage)}))
    assert table.schema.field("b").type.storage_type.num_fields == 2
    table = table.append(pa.table({"id": [2], "b": lance.blob_array([LARGE])}))
    rows = lance.dataset(table.uri).scanner(blob_handling="all_binary").to_table().to_pylist()
    assert {row["id"]: row["b"] for row in rows} == {1: b"old", 2: LARGE}


def _as_blob(blob_type: Any, storage: pa.Array[Any]) -> pa.Array[Any]:
    return pa.ExtensionArray.from_storage(
        blob_type.__arrow_ext_deserialize__(storage.type, blob_type().__arrow_ext_serialize__()), storage
    )


@pytest.mark.parametrize(
    ("made_with", "asked", "is_taken"),
    [
        ({"inline_size_threshold": 100}, {}, True),
        ({"inline_size_threshold": 100}, {"inline_size_threshold": 100}, True),
        ({"inline_size_threshold": 100}, {"inline_size_threshold": 5}, False),
        ({}, {"inline_size_threshold": 65536, "dedicated_size_threshold": 4194304}, True),
        ({}, {"dedicated_size_threshold": 5}, False),
        ({}, {"pack_file_size_threshold": 1 << 30}, True),
        ({}, {"pack_file_size_threshold": 5}, False),
    ],
)
def test_other_thresholds_than_those_of_the_table_are_refused_as_by_pylance(
    made_with: dict[str, int], asked: dict[str, int], is_taken: bool, tmp_path: Path
) -> None:
    def rows(number: int, **thresholds: int) -> pa.Table:
        schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("b", **thresholds)])  # type: ignore[arg-type]
        return pa.Table.from_arrays([pa.array([number]), lance.blob_array([b"x"])], schema=schema)

    lance.write_dataset(rows(1, **made_with), tmp_path / "p", data_storage_version="2.2")
    table = conroi.create_table(tmp_path / "c", rows(1, **made_with), data_format="2.2")
    if is_taken:
        lance.write_dataset(rows(2, **asked), tmp_path / "p", mode="append")
        assert table.append(rows(2, **asked)).count_rows() == 2
        return
    with pytest.raises(OSError, match="blob threshold"):
        lance.write_dataset(rows(2, **asked), tmp_path / "p", mode="append")
    with pytest.raises(conroi.InvalidInputError, match="threshold"):
        table.append(rows(2, **asked))
    assert table.latest().count_rows() == 1
