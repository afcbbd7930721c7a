"""One column of every Arrow type that a Lance table can have, with the values that are likely to go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, cast
from zoneinfo import ZoneInfo

import pyarrow as pa

from tests.support.pylance import knows_offsets


@dataclass(frozen=True)
class Typed:
    """A type, six values of it in Python, and the type that comes back if that is another one."""

    name: str
    type: pa.DataType
    values: tuple[Any, ...]
    stored: pa.DataType | None = None
    metadata: dict[str, str] | None = None
    formats: tuple[str, ...] = ("2.1", "2.2")
    """The file versions that can hold it; 2.0 is tried where it is named."""

    def __str__(self) -> str:
        return self.name

    @property
    def read_type(self) -> pa.DataType:
        return self.stored or self.type

    def field(self, name: str = "x") -> pa.Field[Any]:
        return pa.field(name, self.type, metadata=self.metadata)


ALL = ("2.0", "2.1", "2.2")
NEWEST = ("2.2",)
UTC = timezone.utc  # noqa: UP017 (pyarrow wants this one)
NEW_YORK = ZoneInfo("America/New_York")
INF, NAN = float("inf"), float("nan")
POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])


def number(type_: pa.DataType, low: int, high: int) -> Typed:
    return Typed(str(type_), type_, (low, high, 0, None, 1, 7), formats=ALL)


def unit(make: Any, unit_: str, *values: Any) -> Typed:
    return Typed(f"{make(unit_)}", make(unit_), values, formats=ALL)


def stamp(unit_: str, zone: str | None, *values: datetime | None) -> Typed:
    return Typed(f"timestamp {unit_} {zone}", pa.timestamp(cast("Any", unit_), cast("Any", zone)), values, formats=ALL)


NUMBERS = [
    Typed("null", pa.null(), (None,) * 6, formats=ALL),
    Typed("bool", pa.bool_(), (True, False, None, True, False, True), formats=ALL),
    number(pa.int8(), -128, 127),
    number(pa.int16(), -(2**15), 2**15 - 1),
    number(pa.int32(), -(2**31), 2**31 - 1),
    number(pa.int64(), -(2**63), 2**63 - 1),
    number(pa.uint8(), 0, 255),
    number(pa.uint16(), 0, 2**16 - 1),
    number(pa.uint32(), 0, 2**32 - 1),
    number(pa.uint64(), 0, 2**64 - 1),
    Typed("half float", pa.float16(), (1.5, -0.0, INF, NAN, None, 65504.0), formats=ALL),
    Typed("float", pa.float32(), (1.5, -0.0, -INF, NAN, None, 2.0**-149), formats=ALL),
    Typed("double", pa.float64(), (0.1, -0.0, INF, NAN, None, 5e-324), formats=ALL),
    Typed(
        "decimal128",
        pa.decimal128(10, 2),
        (*map(Decimal, ("1.50", "-99999999.99", "0.00", "0.01", "7.00")), None),
        formats=ALL,
    ),
    Typed(
        "decimal256",
        pa.decimal256(40, 3),
        (*map(Decimal, ("1" * 37 + ".123", "-0.001", "0.000", "5.000", "6.500")), None),
        formats=ALL,
    ),
]
TEXT = [
    Typed("string", pa.string(), ("", "a", None, "żółć 🐎", "x" * 5000, "a'b\"c\\d\n\0"), formats=ALL),
    Typed("large_string", pa.large_string(), ("", "a", None, "b", "x" * 3000, "ü"), formats=ALL),
    Typed(
        "string_view", pa.string_view(), ("", "a", None, "longer than twelve bytes", "b", "c"), pa.string(), formats=ALL
    ),
    Typed("binary", pa.binary(), (b"", b"\0", None, b"abc", b"\xff" * 3000, b"z"), formats=ALL),
    Typed("large_binary", pa.large_binary(), (b"", b"\0", None, b"abc", b"\xff" * 3000, b"z"), formats=ALL),
    Typed(
        "fixed_size_binary",
        pa.binary(16),
        (b"0123456789abcdef", bytes(16), None, b"\xff" * 16, bytes(16), b"x" * 16),
        formats=ALL,
    ),
    Typed("dictionary of strings", pa.dictionary(pa.int16(), pa.string()), ("a", "b", "a", None, "", "c"), formats=ALL),
    Typed("dictionary of numbers", pa.dictionary(pa.int8(), pa.int64()), (5, 5, None, 7, 0, -1), formats=ALL),
]
TIMES = [
    Typed(
        "date32",
        pa.date32(),
        (date(1970, 1, 1), date(1600, 2, 29), None, date(9999, 12, 31), date(2024, 2, 29), date(1969, 12, 31)),
        formats=ALL,
    ),
    Typed(
        "date64",
        pa.date64(),
        (date(1970, 1, 1), date(1900, 3, 1), None, date(2100, 12, 31), date(2024, 2, 29), date(1969, 12, 31)),
        formats=ALL,
    ),
    unit(pa.time32, "s", time(0), time(23, 59, 59), None, time(1), time(2), time(3)),
    unit(pa.time32, "ms", time(0), time(23, 59, 59, 999000), None, time(1), time(2), time(3)),
    unit(pa.time64, "us", time(0), time(23, 59, 59, 999999), None, time(1), time(2), time(3)),
    unit(pa.time64, "ns", time(0), time(23, 59, 59, 999999), None, time(1), time(2), time(3)),
    *(
        unit(
            pa.duration,
            each,
            timedelta(0),
            timedelta(days=-1),
            None,
            timedelta(days=9000),
            timedelta(seconds=5),
            timedelta(hours=1),
        )
        for each in ("s", "ms", "us", "ns")
    ),
    *(
        stamp(
            each,
            None,
            datetime(1970, 1, 1),
            datetime(1800, 1, 1),
            None,
            datetime(2100, 1, 2, 3, 4, 5),
            datetime(2024, 2, 29),
            datetime(2000, 1, 1),
        )
        for each in ("s", "ms", "us", "ns")
    ),
    *(
        stamp(
            each,
            "UTC",
            datetime(1970, 1, 1, tzinfo=UTC),
            None,
            datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
            datetime(1960, 1, 1, tzinfo=UTC),
            datetime(2024, 2, 29, tzinfo=UTC),
            None,
        )
        for each in ("ms", "ns")
    ),
    stamp(
        "ms",
        "America/New_York",
        *(datetime(2024, month, 10, 1, 30, tzinfo=NEW_YORK) for month in (1, 3, 6, 11)),
        None,
        datetime(1970, 1, 1, tzinfo=NEW_YORK),
    ),
]
if knows_offsets():
    TIMES.append(
        stamp(
            "us",
            "+02:00",
            datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2))),
            None,
            None,
            datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            None,
            None,
        )
    )
LISTS = [
    Typed("list", pa.list_(pa.int32()), ([], [1], None, [None], [1, None, 3], list(range(400))), formats=ALL),
    Typed("large_list", pa.large_list(pa.string()), ([], ["a"], None, [None], ["", "b"], ["c"] * 300), formats=ALL),
    Typed(
        "list of list",
        pa.list_(pa.list_(pa.int64())),
        ([], [[]], None, [None], [[1], [], None], [[None, 2]]),
        formats=ALL,
    ),
    Typed(
        "list of struct",
        pa.list_(POINT),
        ([], [{"x": 1, "y": "a"}], None, [{"x": None, "y": None}], [{"x": 2, "y": ""}] * 3, [{"x": 0, "y": "z"}]),
    ),
    Typed(
        "list of null struct",
        pa.list_(POINT),
        ([], [None], None, [None, {"x": 1, "y": "a"}], [{"x": None, "y": "q"}], [None, None]),
    ),
    Typed(
        "large_list of struct", pa.large_list(POINT), ([], [{"x": 1, "y": "a"}], None, [], [{"x": 2, "y": ""}] * 3, [])
    ),
    Typed(
        "fixed_size_list of float",
        pa.list_(pa.float32(), 4),
        ([1.0, 2.0, 3.0, 4.0], None, [0.0] * 4, [-1.5] * 4, [INF] * 4, [5.0] * 4),
        formats=ALL,
    ),
    Typed(
        "fixed_size_list with nulls",
        pa.list_(pa.int16(), 2),
        ([1, 2], None, [None, 4], [None, None], [5, None], [6, 7]),
    ),
    Typed(
        "fixed_size_list of half float",
        pa.list_(pa.float16(), 2),
        ([1.0, 2.0], [0.5, 0.25], None, [-1.0, 1.0], [0.0, 0.0], [3.0, 4.0]),
        formats=ALL,
    ),
    Typed(
        "fixed_size_list of bool",
        pa.list_(pa.bool_(), 3),
        ([True, False, True], None, [False] * 3, [True] * 3, [True, True, False], [False, True, False]),
    ),
    Typed(
        "fixed_size_list of fixed_size_list",
        pa.list_(pa.list_(pa.int32(), 2), 2),
        ([[1, 2], [3, 4]], None, [[0, 0], [0, 0]], [[5, 6], [7, 8]], [[9, 9], [9, 9]], [[1, 1], [1, 1]]),
    ),
]
NESTED = [
    Typed(
        "struct",
        POINT,
        ({"x": 1, "y": "a"}, {"x": None, "y": None}, None, {"x": 3, "y": ""}, {"x": -1, "y": "e"}, {"x": 0, "y": "f"}),
    ),
    Typed(
        "struct of struct",
        pa.struct([("a", pa.struct([("b", pa.int64()), ("c", pa.list_(pa.string()))])), ("d", pa.bool_())]),
        (
            {"a": {"b": 1, "c": ["x"]}, "d": True},
            {"a": None, "d": None},
            None,
            {"a": {"b": None, "c": []}, "d": False},
            {"a": {"b": 5, "c": None}, "d": True},
            {"a": {"b": 6, "c": [None, ""]}, "d": False},
        ),
    ),
    Typed(
        "list of struct of list",
        pa.list_(pa.struct([("k", pa.string()), ("v", pa.list_(pa.struct([("n", pa.int8())])))])),
        (
            [],
            [{"k": "a", "v": []}],
            None,
            [{"k": None, "v": None}],
            [{"k": "b", "v": [{"n": 1}, {"n": None}]}],
            [{"k": "c", "v": [{"n": 3}]}] * 2,
        ),
    ),
    Typed(
        "map",
        pa.map_(pa.string(), pa.int64()),
        ([], [("a", 1)], None, [("b", None), ("c", 3)], [("", 0)], [("d", -1)]),
        formats=NEWEST,
    ),
    Typed(
        "map of list",
        pa.map_(pa.int32(), pa.list_(pa.string())),
        ([], [(1, ["a"])], None, [(2, None), (3, [])], [(4, [None])], [(5, ["b", "c"])]),
        formats=NEWEST,
    ),
    Typed(
        "list of map",
        pa.list_(pa.map_(pa.string(), pa.int64())),
        ([], [[("a", 1)]], None, [[], [("b", None)]], [[("c", 2)]], [[]]),
        formats=NEWEST,
    ),
    Typed(
        "struct of fixed things",
        pa.struct([("v", pa.list_(pa.float32(), 2)), ("w", pa.binary(2)), ("t", pa.timestamp("us", "UTC"))]),
        (
            {"v": [1.0, 2.0], "w": b"ab", "t": datetime(2024, 1, 1, tzinfo=UTC)},
            None,
            *({"v": None, "w": None, "t": None},) * 4,
        ),
    ),
]
EXTENSIONS = [
    Typed(
        "json", pa.json_(pa.string()), ('{"a":1}', None, "null", "[]", '"text"', '{"b":{"c":[true,1.5]}}'), formats=ALL
    ),
    Typed("uuid", pa.uuid(), (bytes(16), None, b"0123456789abcdef", b"\xff" * 16, bytes(16), None)),
    Typed("fixed shape tensor", pa.fixed_shape_tensor(pa.float32(), [2, 2]), ([1.0, 2.0, 3.0, 4.0], *([0.0] * 4,) * 5)),
]
TYPES = [*NUMBERS, *TEXT, *TIMES, *LISTS, *NESTED, *EXTENSIONS]

NOT_STORED = {
    "interval": pa.month_day_nano_interval(),
    "decimal32": pa.decimal32(5, 2),
    "decimal64": pa.decimal64(10, 2),
    "list view": pa.list_view(pa.int32()),
    "union": pa.dense_union([pa.field("a", pa.int32()), pa.field("b", pa.string())]),
    "run ends": pa.run_end_encoded(pa.int32(), pa.string()),
    "map with sorted keys": pa.map_(pa.string(), pa.int32(), True),
    "fixed_size_list of list": pa.list_(pa.list_(pa.int32()), 2),
    "fixed_size_list of struct": pa.list_(POINT, 2),  # pylance writes it, and then cannot read it beside other columns
}
