"""Values that a column cannot hold as they are, given as Python dicts or as Arrow, in every call that takes rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import conroi

BERLIN = dt.datetime(2024, 1, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
EXACT = dt.datetime(2024, 1, 1, 12, 0, 0, 123_456)

LOSSY: list[tuple[Any, pa.DataType]] = [
    (5.99, pa.int32()),
    (Decimal("5.9"), pa.int32()),
    (float("nan"), pa.int64()),
    (-0.5, pa.uint8()),
    (300, pa.int8()),
    (2**64, pa.int64()),
    (1e300, pa.float32()),
    (-1e300, pa.float16()),
    (2**53 + 1, pa.float64()),
    (Decimal("1.239"), pa.decimal128(5, 2)),
    (BERLIN, pa.timestamp("us")),
    (EXACT, pa.timestamp("s")),
    (EXACT, pa.timestamp("ms", "UTC")),
    (EXACT, pa.date32()),
    (EXACT, pa.date64()),
    (5.5, pa.timestamp("us")),
    (dt.time(1, 2, 3, 456), pa.time32("s")),
    (dt.time(1, 2, tzinfo=dt.UTC), pa.time64("us")),
    (dt.timedelta(microseconds=5), pa.duration("s")),
    ({"a": 1, "more": 2}, pa.struct([("a", pa.int8())])),
    ({"a": 1.5}, pa.struct([("a", pa.int8())])),
    ([1, 2.5], pa.list_(pa.int8())),
    ([[1.0], [1e300]], pa.list_(pa.list_(pa.float32()))),
    ([1.0, 1e300], pa.list_(pa.float32(), 2)),
    ([1.0, 2.0, 3.0], pa.list_(pa.float32(), 2)),
    ([("k", 1.5)], pa.map_(pa.string(), pa.int8())),
    ("\ud800", pa.string()),
    (b"\xff", pa.string()),
]
FITTING: list[tuple[Any, pa.DataType, Any]] = [
    (5.0, pa.int32(), 5),
    (Decimal("5"), pa.int32(), 5),
    (0.1, pa.float32(), 0.10000000149011612),
    (float("inf"), pa.float32(), float("inf")),
    (BERLIN, pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1, 11, tzinfo=ZoneInfo("UTC"))),
    (dt.datetime(2024, 1, 1), pa.date32(), dt.date(2024, 1, 1)),
    (EXACT.replace(microsecond=0), pa.timestamp("s"), dt.datetime(2024, 1, 1, 12)),
    ({"a": 1}, pa.struct([("a", pa.int8()), ("b", pa.int8())]), {"a": 1, "b": None}),
    ([1, None, 3.0], pa.list_(pa.int8()), [1, None, 3]),
]

TAKERS: dict[str, Callable[[conroi.Lake, Any], object]] = {
    "append": lambda lake, rows: lake["t"].append(rows),
    "overwrite": lambda lake, rows: lake["t"].overwrite(rows),
    "overwrite where": lambda lake, rows: lake["t"].overwrite(rows, where="id = 1"),
    "insert": lambda lake, rows: lake.insert("t", rows),
    "insert of the table": lambda lake, rows: lake["t"].insert(rows),
    "concat": lambda lake, rows: lake.concat("t", [rows]),
    "write": lambda lake, rows: lake.write("t", rows),
    "merge": lambda lake, rows: lake["t"].merge(rows, on="id").when_not_matched_insert_all().execute(),
    "transaction": lambda lake, rows: _in_transaction(lake, rows),
    "transaction of a table": lambda lake, rows: _in_table_transaction(lake, rows),
}


def _in_transaction(lake: conroi.Lake, rows: Any) -> None:
    with lake.begin() as tx:
        tx["t"].append(rows)


def _in_table_transaction(lake: conroi.Lake, rows: Any) -> None:
    with lake["t"].begin() as tx:
        tx.append(rows)


def lake_with(tmp_path: Path, type_: pa.DataType) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", pa.schema([("id", pa.int64()), ("x", type_)]))
    return lake


@pytest.mark.contract("U2")
@pytest.mark.parametrize(("value", "type_"), LOSSY, ids=lambda each: repr(each)[:40])
def test_a_value_that_does_not_fit_is_refused(tmp_path: Path, value: Any, type_: pa.DataType):
    """C2: 5.99 was stored as 5, 1e300 as infinity, a time without its zone."""
    lake = lake_with(tmp_path, type_)
    with pytest.raises(conroi.InvalidInputError, match="'x'") as caught:
        lake["t"].append([{"id": 1, "x": value}])
    assert caught.value.hint
    assert (lake["t"].version, lake["t"].count_rows()) == (1, 0)


@pytest.mark.contract("U2")
@pytest.mark.parametrize(("value", "type_", "stored"), FITTING, ids=lambda each: repr(each)[:40])
def test_a_value_that_fits_is_taken(tmp_path: Path, value: Any, type_: pa.DataType, stored: Any):
    lake = lake_with(tmp_path, type_)
    assert lake["t"].append([{"id": 1, "x": value}]).to_arrow()["x"].to_pylist() == [stored]


@pytest.mark.contract("U2")
@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (5.99, pa.int32()),
        (1e300, pa.float32()),
        (BERLIN, pa.timestamp("us")),
        ({"a": 1, "b": 2}, pa.struct([("a", pa.int8())])),
    ],
    ids=["fraction", "range", "zone", "struct"],
)
def test_every_call_that_takes_rows_refuses_it(tmp_path: Path, taker: str, value: Any, type_: pa.DataType):
    lake = lake_with(tmp_path, type_)
    with pytest.raises(conroi.InvalidInputError):
        TAKERS[taker](lake, [{"id": 1, "x": value}])
    assert (lake["t"].version, lake["t"].count_rows()) == (1, 0)


@pytest.mark.contract("U2")
@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (pa.array([1e300]), pa.float32()),
        (pa.array([[1e300]]), pa.list_(pa.float32())),
        (pa.array([{"a": 1e300}]), pa.struct([("a", pa.float32())])),
        (pa.array([BERLIN]), pa.timestamp("us")),
    ],
    ids=["range", "in a list", "in a struct", "zone"],
)
def test_arrow_data_is_not_cut_either(tmp_path: Path, taker: str, values: Any, type_: pa.DataType):
    lake = lake_with(tmp_path, type_)
    if taker == "overwrite" and pa.types.is_timestamp(type_):  # the data bring their own columns
        assert lake["t"].overwrite(pa.table({"id": [1], "x": values})).schema.field("x").type == values.type
        return
    with pytest.raises(conroi.InvalidInputError):
        TAKERS[taker](lake, pa.table({"id": [1], "x": values}))
    assert (lake["t"].version, lake["t"].count_rows()) == (1, 0)


@pytest.mark.contract("U2")
def test_a_table_made_from_rows_has_the_columns_of_all_rows(tmp_path: Path):
    """Another member of the class: pyarrow takes the columns of the first row, and drops those of the others."""
    table = conroi.create_table(tmp_path / "t", [{"a": 1}, {"b": "x", "a": 2}])
    assert table.to_arrow().to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


@pytest.mark.contract("U2")
@pytest.mark.parametrize(
    "rows",
    [
        [{"x": EXACT}, {"x": BERLIN}],  # the first says that there is no zone
        [{"x": dt.date(2024, 1, 1)}, {"x": EXACT}],
        [{"x": True}, {"x": 2}],
        [{1: "a number as name"}],
    ],
    ids=["zone", "date", "bool", "name"],
)
def test_a_table_made_from_rows_that_do_not_go_together_is_refused(tmp_path: Path, rows: Any):
    with pytest.raises(conroi.InvalidInputError):
        conroi.create_table(tmp_path / "t", rows)
    with pytest.raises(conroi.NotFoundError):
        conroi.open_table(tmp_path / "t")


@pytest.mark.contract("U2", "U3")
def test_text_that_is_not_utf8_is_refused(tmp_path: Path):
    """D8: it was committed, and the table could not be read any more."""
    lake = lake_with(tmp_path, pa.string())
    offsets, data = pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")
    bad = pa.StringArray.from_buffers(1, offsets, data)
    for taker in TAKERS.values():
        with pytest.raises(conroi.InvalidInputError, match="UTF"):
            taker(lake, pa.table({"id": [1], "x": bad}))
    with pytest.raises(conroi.InvalidInputError, match="UTF"):
        lake.create_table("new", pa.table({"id": [1], "x": bad}))
    assert (lake["t"].version, lake.tables()) == (1, ["t"])


@pytest.mark.contract("U3")
def test_a_stream_whose_batches_are_not_what_it_says_is_refused(tmp_path: Path):
    lake = lake_with(tmp_path, pa.string())
    said = pa.schema([("id", pa.int64()), ("x", pa.string())])
    for batch in (pa.record_batch({"id": [1], "x": [2]}), pa.record_batch({"id": [1]}), pa.record_batch({"q": [1]})):
        for taker in TAKERS.values():
            with pytest.raises(conroi.InvalidInputError, match=r"stream|Arrow"):
                taker(lake, pa.RecordBatchReader.from_batches(said, [batch]))
    assert (lake["t"].version, lake["t"].count_rows()) == (1, 0)
