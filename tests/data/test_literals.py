"""Parameters and literals: the value arrives in its exact type, and no value changes the SQL around it."""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import conroi
from conroi.data.sql import bound, literal

pytestmark = pytest.mark.contract("E5")

UTC = datetime.UTC
BERLIN = datetime.timezone(datetime.timedelta(hours=1))
MOMENT = datetime.datetime(2026, 3, 1, 12, 30, 15, 123456)

VALUES: list[tuple[Any, pa.DataType]] = [
    (0, pa.int64()),
    (-(2**63), pa.int64()),
    (2**63 - 1, pa.int64()),
    (2**64 - 1, pa.uint64()),
    (-128, pa.int8()),
    (1.5, pa.float64()),
    (0.1, pa.float64()),
    (5e-324, pa.float64()),
    (1.7976931348623157e308, pa.float64()),
    (-1e300, pa.float64()),
    (math.inf, pa.float64()),
    (-math.inf, pa.float64()),
    (True, pa.bool_()),
    (False, pa.bool_()),
    ("", pa.string()),
    ("it's", pa.string()),
    ("'; DROP TABLE t; --", pa.string()),
    ("a\\'b", pa.string()),
    ("--\n/* x */ :y", pa.string()),
    ("\x00\U0001f600", pa.string()),
    (b"", pa.binary()),
    (b"\x00'\xff", pa.binary()),
    (b"\x00'\xff", pa.large_binary()),
    (datetime.date(1, 1, 1), pa.date32()),
    (datetime.date(2026, 2, 28), pa.date32()),
    (MOMENT, pa.timestamp("us")),
    (datetime.datetime(1, 1, 1), pa.timestamp("us")),
    (datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), pa.timestamp("us")),
    (MOMENT.replace(tzinfo=UTC), pa.timestamp("us", "UTC")),
    (MOMENT.replace(tzinfo=BERLIN), pa.timestamp("us", "Europe/Berlin")),
    (datetime.time(23, 59, 59, 999999), pa.time64("us")),
    (datetime.timedelta(days=-1, microseconds=7), pa.duration("us")),
    (Decimal("0.00"), pa.decimal128(10, 2)),
    (Decimal("-12345678.90"), pa.decimal128(10, 2)),
    (Decimal("1E+3"), pa.decimal128(10, 2)),
    (Decimal("99999999999999999999999999999999999999"), pa.decimal128(38, 0)),
    (uuid.UUID(int=7), pa.string()),
    (np.int32(7), pa.int32()),
    (np.float64(2.5), pa.float64()),
    (pa.scalar(123456789, pa.timestamp("ns")), pa.timestamp("ns")),
    (pa.scalar(1, pa.timestamp("s", "UTC")), pa.timestamp("s", "UTC")),
    (pa.scalar("x"), pa.string()),
]


@pytest.mark.parametrize(("value", "type_"), VALUES, ids=str)
def test_a_value_finds_and_sets_exactly_itself(value: Any, type_: pa.DataType):
    plain = str(value) if isinstance(value, uuid.UUID) else value
    plain = plain.as_py() if isinstance(plain, pa.Scalar) and not pa.types.is_timestamp(type_) else plain
    held = cast("Any", plain).value if isinstance(plain, pa.Scalar) else plain
    there = pa.array([held, None], type_)
    table = conroi.create_table(f"memory://{uuid.uuid4().hex}", pa.table({"id": [1, 2], "v": there}))
    assert table.to_arrow(filter="v = :v", params={"v": value})["id"].to_pylist() == [1]
    assert table.to_arrow(filter="v IN :v", params={"v": [value]})["id"].to_pylist() == [1]
    for after in (
        table.update({"v": conroi.literal(value)}, "v IS NULL"),
        table.delete("true").append(table).update({"v": ":new"}, "id = :id", params={"new": value, "id": 2}),
    ):
        both = after.to_arrow()["v"].combine_chunks()
        assert both[0].equals(both[1])
        assert both.type == type_


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=60, deadline=None)
def test_a_text_never_leaves_its_quotes(value: str, other: str):
    """The SQL reads back as the one value, whatever is in it, beside any other."""
    sql = bound("s = :a OR s = :b", {"a": value, "b": other})
    assert sql == "s = '" + value.replace("'", "''") + "' OR s = '" + other.replace("'", "''") + "'"
    table = _TEXTS
    assert table.count_rows("s = :a OR :b = 'no such text, surely'", params={"a": value, "b": other}) == (
        1 if value == "plain" else 0
    )


_TEXTS = conroi.create_table(f"memory://{uuid.uuid4().hex}", [{"s": "plain"}])


@pytest.mark.parametrize(
    "text",
    ["a = ':x'", 'a = ":x"', "`:x` = 1", "a = 1 -- :x", "a = 1 /* :x */", "a::x = 1", "a = 'it''s :x'"],
)
def test_what_is_quoted_or_a_comment_or_a_cast_is_no_parameter(text: str):
    with pytest.raises(conroi.InvalidInputError, match="no parameter :x"):
        bound(text, {"x": 1})
    assert bound(text + "\n AND b = :y", {"y": 1}) == text + "\n AND b = 1"


@pytest.mark.parametrize(
    ("text", "params", "said"),
    [
        ("id = :id", {}, "no value"),
        ("id = :id", {"other": 1}, "no value"),
        ("id = 1", {"id": 1}, "no parameter"),
        ("id = :id", {"id": 2**64}, "64 bits"),
        ("id = :id", {"id": -(2**63) - 1}, "64 bits"),
        ("id = :id", {"id": "\ud800"}, "Unicode"),
        ("id = :id", {"id": object()}, "object"),
        ("id = :id", {"id": {"a": 1}}, "dict"),
        ("id = :id", {"id": Decimal("NaN")}, "decimal"),
        ("id = :id", {"id": Decimal("1e40")}, "38 digits"),
        ("id IN :id", {"id": []}, "empty list"),
        ("id IN :id", {"id": [[1]]}, "list"),
        ("id = :id", [1], "mapping"),
    ],
)
def test_what_cannot_be_bound_is_refused(text: str, params: Any, said: str):
    table = conroi.create_table(f"memory://{uuid.uuid4().hex}", [{"id": 1}])
    for verb in (table.delete, table.count_rows, lambda where, params: table.update({"id": "2"}, where, params=params)):
        with pytest.raises(conroi.InvalidInputError, match=said):
            verb(text, params=params)
    assert table.latest().version == 1


def test_parameters_need_a_text():
    import pyarrow.compute as pc

    table = conroi.create_table(f"memory://{uuid.uuid4().hex}", [{"id": 1}])
    with pytest.raises(conroi.InvalidInputError):
        table.count_rows(pc.field("id") == 1, params={"id": 1})
    with pytest.raises(conroi.InvalidInputError):
        table.count_rows(params={"id": 1})


def test_python_values_stand_for_themselves_in_update_and_merge():
    table = conroi.create_table(
        f"memory://{uuid.uuid4().hex}", pa.table({"id": [1], "d": [datetime.date(2026, 1, 1)], "s": ["a"]}), key="id"
    )
    table = table.update({"d": datetime.date(2027, 1, 1), "s": conroi.literal("source.s + 1")})
    assert table.to_arrow().to_pylist() == [{"id": 1, "d": datetime.date(2027, 1, 1), "s": "source.s + 1"}]
    merged = table.merge([{"id": 1, "s": "b"}], on="id").when_matched_update({"s": conroi.literal("O'Hara")}).execute()
    assert merged.table.to_arrow()["s"].to_pylist() == ["O'Hara"]


def test_parameters_in_a_transaction_and_in_overwrite():
    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    lake.create_table("t", [{"id": n, "s": "a"} for n in range(4)])
    with lake.begin() as tx:
        tx["t"].update({"s": ":s"}, "id = :id", params={"s": "x'y", "id": 1})
        tx["t"].delete("id IN :ids", params={"ids": (2, 3)})
        tx["t"].overwrite([{"id": 0, "s": "new"}], "id = :id", params={"id": 0})
    assert sorted(lake["t"].to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 0, "s": "new"},
        {"id": 1, "s": "x'y"},
    ]


def test_null_is_a_value_of_every_column():
    assert literal(None) == "NULL"
    assert literal(pa.scalar(None, pa.int64())) == "NULL"
