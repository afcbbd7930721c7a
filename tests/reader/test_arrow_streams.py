"""A table, a staged table and a table of the past are Arrow streams for every library that takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import conroi

pytestmark = pytest.mark.contract("E1")


def _in_duckdb(rows: Any) -> list[int]:
    return [row[0] for row in duckdb.sql("SELECT id FROM rows ORDER BY id").fetchall()]


READERS: dict[str, Callable[[Any], list[int]]] = {
    "pyarrow": lambda table: pa.table(table)["id"].to_pylist(),
    "reader": lambda table: pa.RecordBatchReader.from_stream(table).read_all()["id"].to_pylist(),
    "polars": lambda table: pl.DataFrame(table)["id"].to_list(),
    "pandas": lambda table: pd.DataFrame.from_arrow(table)["id"].tolist(),  # pyright: ignore
    "duckdb": _in_duckdb,
}


@pytest.mark.parametrize("library", READERS)
def test_every_kind_of_table_is_a_stream(lake: conroi.Lake, library: str):
    read = READERS[library]
    past = lake.at(lake.version)["orders"]
    lake["orders"].delete("id >= 8")
    assert read(past) == list(range(10))
    assert read(lake["orders"]) == list(range(8))
    with lake.begin() as tx:
        tx["orders"].delete("id < 5")
        tx["orders"].append([{"id": 100, "name": None, "amount": None}])
        assert read(tx["orders"]) == [5, 6, 7, 100]
    assert read(lake["orders"]) == [5, 6, 7, 100]


def test_a_table_can_be_written_into_another_one(lake: conroi.Lake):
    more = lake.create_table("more", [{"id": 50, "name": "x", "amount": 1.0}])
    assert lake["orders"].append(more).count_rows() == 11
    assert lake["more"].overwrite(lake["orders"]).count_rows() == 11
    merged = lake["orders"].merge(lake["more"], on="id").when_matched_update_all().when_not_matched_insert_all()
    assert merged.execute().rows_updated == 11
    assert lake.create_table("copy", lake.at(3)["orders"]).to_arrow()["id"].to_pylist() == list(range(10))


def test_a_table_can_be_written_into_itself_inside_a_transaction(lake: conroi.Lake):
    with lake.begin() as tx:
        tx["sales.customers"].append(tx["sales.customers"])
        tx["sales.customers"].append(tx["sales.customers"])
        tx.create_table("copy", tx["sales.customers"])
    assert lake["sales.customers"].count_rows() == 8
    assert lake["copy"].count_rows() == 8


def test_blobs_are_written_with_their_bytes(uri: str):
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    lake = conroi.connect(uri)
    rows = pa.table({"b": pa.array([b"one", b"two"], pa.large_binary())}, schema=pa.schema([blob]))
    lake.create_table("a", rows)
    lake.create_table("copy", lake["a"])
    found = lake["copy"].to_lance().scanner(blob_handling="all_binary").to_table()
    assert found["b"].to_pylist() == [b"one", b"two"]


def test_a_stream_stays_at_its_version(lake: conroi.Lake):
    stream = lake["orders"].to_reader(batch_size=4)
    lake["orders"].delete("true")
    assert stream.read_all().num_rows == 10


def test_a_stream_is_not_held_as_a_whole(uri: str):
    """10 batches are on their way at most, of a table of 200."""
    table = conroi.create_table(uri, pa.table({"id": range(200_000)}))
    before = pa.total_allocated_bytes()
    reader = table.to_reader(batch_size=1000)
    first = reader.read_next_batch()
    assert first.num_rows == 1000
    assert pa.total_allocated_bytes() - before < 200_000 * 8 / 4


def test_a_reader_takes_columns_a_filter_and_a_limit(lake: conroi.Lake):
    found = lake["orders"].to_reader(["name"], "id >= :low", limit=2, params={"low": 3}).read_all()
    assert found.to_pylist() == [{"name": "n3"}, {"name": "n4"}]


def test_a_stream_of_a_collected_version_says_so(tmp_path: Any):
    table = conroi.create_table(tmp_path / "t.lance", [{"id": 1}])
    table.overwrite([{"id": 2}])
    for file in (tmp_path / "t.lance").rglob("*"):
        if file.is_file() and ("data" in file.parts or file.name.endswith(f"{2**64 - 2}.manifest")):
            file.unlink()
    with pytest.raises(conroi.VersionExpired):
        table.append(table)


def test_a_staged_table_cannot_be_scanned_after_its_transaction(lake: conroi.Lake):
    tx = lake.begin()
    tx["orders"].append([{"id": 77, "name": "a", "amount": 0.0}])
    lazy = tx["orders"].to_polars_lazy()
    assert lazy.collect().height == 11
    tx.rollback()
    with pytest.raises(conroi.ClosedError, match="was rolled back"):
        lazy.collect()
