"""Data comes in as whatever people have, and goes out as whatever they want."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections import OrderedDict
from collections.abc import Callable

import lance
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import conroi

ARROW = pa.table({"id": [1, 2], "name": ["a", None]})
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


class OnlyAStream:
    """Another library: all it can do is hand over an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return ARROW.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Callable[[], object]] = {
    "pyarrow table": lambda: ARROW,
    "table of several chunks": lambda: pa.concat_tables([ARROW.slice(0, 1), ARROW.slice(1)]),
    "record batch": lambda: ARROW.to_batches()[0],
    "reader": lambda: ARROW.to_reader(),
    "reader of empty and full batches": lambda: pa.RecordBatchReader.from_batches(
        ARROW.schema, [ARROW.to_batches()[0].slice(0, 0), *ARROW.to_batches(), ARROW.to_batches()[0].slice(2)]
    ),
    "dataset scanner": lambda: ds.dataset(ARROW).scanner().to_reader(),
    "another library's stream": OnlyAStream,
    "pandas": lambda: pd.DataFrame({"id": [1, 2], "name": ["a", None]}),
    "pandas with an index of its own": lambda: pd.DataFrame({"id": [1, 2], "name": ["a", None]}, index=[7, 9]),
    "pandas with nullable types": lambda: pd.DataFrame({"id": [1, 2], "name": ["a", None]}).convert_dtypes(),
    "polars": lambda: pl.DataFrame({"id": [1, 2], "name": ["a", None]}),
    "list of dicts": lambda: ROWS,
    "list of dicts with gaps": lambda: [{"id": 1, "name": "a"}, {"id": 2}],
    "tuple of mappings": lambda: tuple(OrderedDict(row) for row in ROWS),
    "pylance scan": lambda: lance.write_dataset(ARROW, "memory://").scanner().to_reader(),
    "a table of ours": lambda: conroi.create_table(f"memory://{uuid.uuid4().hex}", ARROW).to_arrow(),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_made_from_anything(form: str, uri: str) -> None:
    made = conroi.create_table(uri, FORMS[form]())  # type: ignore[arg-type]
    assert made.to_arrow().to_pylist() == ROWS


@pytest.mark.parametrize("form", FORMS)
def test_anything_can_be_appended(form: str, uri: str) -> None:
    table = conroi.create_table(uri, ARROW.schema)
    appended = table.append(FORMS[form]())  # type: ignore[arg-type]
    assert appended.to_arrow().to_pylist() == ROWS
    assert appended.schema == table.schema


def test_lists_of_dicts_take_their_types_from_the_table(uri: str) -> None:
    schema = pa.schema(
        {"d": pa.decimal128(10, 2), "t": pa.timestamp("us"), "v": pa.list_(pa.float32(), 2), "b": pa.int8()}
    )
    row = {"d": decimal.Decimal("1.50"), "t": datetime.datetime(2026, 1, 2), "v": [1.0, 2.0], "b": 3}
    table = conroi.create_table(uri, schema).append([row])
    assert table.to_arrow().to_pylist() == [row]


def test_an_empty_frame_makes_an_empty_table_with_its_columns(uri: str) -> None:
    empty = conroi.create_table(uri, ARROW.slice(0, 0))
    assert (empty.count_rows(), empty.schema.names, empty.version) == (0, ["id", "name"], 1)
    assert empty.append(ROWS).count_rows() == 2


def test_rows_come_out_in_every_form(uri: str) -> None:
    table = conroi.create_table(uri, ARROW)
    assert table.to_arrow() == ARROW
    assert pa.Table.from_batches(table.to_batches()) == ARROW
    pd.testing.assert_frame_equal(table.to_pandas(), ARROW.to_pandas())
    assert table.to_polars().to_dicts() == ROWS
    assert table.to_lance().to_table() == ARROW
    assert isinstance(table.to_lance(), lance.LanceDataset)


def test_columns_filters_limits_and_batches(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"id": range(10), "v": range(10)}))
    assert table.to_arrow(["v"], "id >= 8").to_pylist() == [{"v": 8}, {"v": 9}]
    assert table.to_arrow({"double": "v * 2"}, "id = 3").to_pylist() == [{"double": 6}]
    assert table.to_arrow(limit=3)["id"].to_pylist() == [0, 1, 2]
    assert table.to_arrow(limit=0).num_rows == 0
    assert [batch.num_rows for batch in table.to_batches(batch_size=4)] == [4, 4, 2]
    assert table.to_arrow(["id"], "id = 4", with_row_id=True).to_pylist() == [{"id": 4, "_rowid": 4}]
    assert table.to_pandas(["id"], "id < 2")["id"].tolist() == [0, 1]
    assert table.to_polars({"x": "id + 1"})["x"].to_list() == list(range(1, 11))


def test_counts_come_from_metadata_unless_there_is_a_filter(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"id": range(10)})).delete("id < 3")
    assert (table.count_rows(), len(table), table.count_rows("id % 2 = 0")) == (7, 7, 3)


def test_a_read_is_of_the_pinned_version_beside_concurrent_commits(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"id": [1]}))
    batches = table.to_batches()
    table.overwrite(pa.table({"id": [2]}))
    assert [batch.to_pylist() for batch in batches] == [[{"id": 1}]]
    assert table.to_arrow().to_pylist() == [{"id": 1}]
