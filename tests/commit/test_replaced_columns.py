"""Rows that were written for a column which a concurrent commit replaced are not lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from tests.support.arrow import column_values
from tests.support.instruments import interrupted


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(tmp_path / "t", pa.table({"id": pa.array([1], pa.int32()), "v": [10]}))


def widen(table: conroi.Table) -> None:
    conroi.open_table(table.uri).alter_columns({"id": {"type": pa.int64()}})


def data(table: conroi.Table, *, is_concurrent: bool) -> pa.RecordBatchReader:
    """One row, during the writing of which the type of a column is changed."""
    schema = pa.schema([pa.field("id", pa.int32()), pa.field("v", pa.int64())])

    def batches():
        yield pa.record_batch([pa.array([2], pa.int32()), pa.array([20], pa.int64())], schema=schema)
        if is_concurrent:
            widen(table)

    return pa.RecordBatchReader.from_batches(schema, batches())


@pytest.mark.contract("W9", "T4")
def test_an_append_beside_a_concurrent_change_of_type_is_refused_and_loses_nothing(table: conroi.Table):
    with pytest.raises(conroi.RetryableConflict) as caught:  # a stream can be read only once
        table.append(data(table, is_concurrent=True))
    assert "id" in str(caught.value) or "columns" in str(caught.value)
    table.append(data(table, is_concurrent=False))
    assert conroi.open_table(table.uri).to_arrow()["id"].to_pylist() == [1, 2]


@pytest.mark.contract("W9", "T4")
def test_data_that_can_be_read_again_is_written_again(table: conroi.Table):
    rows = [{"id": 2, "v": 20}]

    class Changing(list[dict[str, int]]):
        """Rows whose first read triggers a concurrent change of the table."""

        def __iter__(self):
            if conroi.open_table(table.uri).version == 1:
                widen(table)
            return super().__iter__()

    table.append(Changing(rows))
    assert sorted(column_values(conroi.open_table(table.uri).to_arrow()["id"])) == [1, 2]


@pytest.mark.contract("W9")
def test_in_a_transaction_too(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"id": pa.array([1], pa.int32())}))
    tx = lake.begin()
    tx["t"].append([{"id": 2}])
    lake["t"].alter_columns({"id": {"type": pa.int64()}})
    with pytest.raises(conroi.RetryableConflict):
        tx.commit()
    assert lake["t"].to_arrow()["id"].to_pylist() == [1]


def test_a_column_that_was_dropped_or_renamed_does_not_stop_an_append(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"id": [1], "a": [1], "b": [1]}))
    tx = lake.begin()
    tx["t"].append([{"id": 2, "a": 2, "b": 2}])
    lake["t"].drop_columns(["a"]).rename_columns({"b": "c"})
    tx.commit()
    assert lake["t"].to_arrow().to_pylist() == [{"id": 1, "c": 1}, {"id": 2, "c": 2}]


@pytest.mark.contract("W9", "T4")
def test_an_update_of_rows_beside_a_concurrent_change_of_type_is_done_again(table: conroi.Table):
    """It writes whole rows, so also the column that is replaced meanwhile."""
    interrupted(table, lambda: widen(table)).update({"v": "11"}, mode="rows")
    assert conroi.open_table(table.uri).to_arrow().to_pylist() == [{"id": 1, "v": 11}]


@pytest.mark.contract("T4")
def test_a_delete_beside_a_concurrent_new_column_commits(table: conroi.Table):
    interrupted(table, lambda: conroi.open_table(table.uri).drop_columns(["v"])).delete("id = 1")
    assert conroi.open_table(table.uri).to_arrow().to_pylist() == []
