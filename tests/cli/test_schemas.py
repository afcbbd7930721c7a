"""Schemas as people write them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from conroi.cli.failures import UsageProblem
from conroi.cli.schemas import parsed_schema, parsed_type

pytestmark = pytest.mark.contract("C1")


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("int64", pa.int64()),
        ("BIGINT", pa.int64()),
        ("int", pa.int32()),
        ("text", pa.string()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us")),
        ("timestamp[ms]", pa.timestamp("ms")),
        ("timestamp[us, tz=Europe/Berlin]", pa.timestamp("us", "Europe/Berlin")),
        ("timestamp[ns, UTC]", pa.timestamp("ns", "UTC")),
        ("timestamp[us, tz=+01:00]", pa.timestamp("us", "+01:00")),
        ("time32[ms]", pa.time32("ms")),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        ("decimal(10)", pa.decimal128(10, 0)),
        ("decimal256(40, 2)", pa.decimal256(40, 2)),
        ("float32[768]", pa.list_(pa.float32(), 768)),
        ("list<string>", pa.list_(pa.string())),
        ("list<item: string not null>", pa.list_(pa.field("item", pa.string(), nullable=False))),
        ("fixed_size_list<item: float>[3]", pa.list_(pa.float32(), 3)),
        ("struct<a: int64, b: list<double>>", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])),
    ],
)
def test_a_type_is_parsed(text: str, type_: pa.DataType) -> None:
    assert parsed_type(text) == type_


def test_what_arrow_prints_is_read_again() -> None:
    for type_ in (
        pa.timestamp("us", "UTC"),
        pa.decimal128(5, 1),
        pa.list_(pa.struct([("a", pa.list_(pa.float32(), 2))])),
        pa.large_list(pa.large_string()),
        pa.duration("ns"),
    ):
        assert parsed_type(str(type_)) == type_


def test_columns_on_lines_with_comments_and_odd_names() -> None:
    schema, key = parsed_schema('# orders\n"odd name" int64 key not null,\nb: string not null # said\nc double')
    assert schema == pa.schema(
        [
            pa.field("odd name", pa.int64(), nullable=False),
            pa.field("b", pa.string(), nullable=False),
            pa.field("c", pa.float64()),
        ]
    )
    assert key == ("odd name",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a strng",
        "a int64 b string",
        "a int64,, b string",
        "a list<string",
        "a decimal(99, 2)",
        "a int64, a string",
        "a timestamp[parsec]",
        "a int64)",
        "a float32[]",
        "a float32[99999999999999999999]",
        "a " + "list<" * 5000,
    ],
)
def test_what_is_no_schema_is_wrong_usage_with_a_hint(text: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        parsed_schema(text)
    assert raised.value.hint
