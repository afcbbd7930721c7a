"""The rows of the conformance cases."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

NAN, INF = float("nan"), float("inf")


def _target() -> pa.Table:
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
            "grp": pa.array(["a", "a", "b", "b", None, "c"]),
            "v": pa.array([10, 20, 30, None, 50, 60], pa.int32()),
        }
    )


SOURCE = pa.table(
    {
        "id": pa.array([2, 3, 4, 7, 8], pa.int64()),
        "grp": pa.array(["x", "b", None, "y", "z"]),
        "v": pa.array([200, 300, None, 700, 800], pa.int32()),
        "op": pa.array(["u", "d", "u", "i", None]),
    }
)
"""Changes for `t`: three rows match."""

DOUBLED = pa.table({"id": pa.array([2, 2, 9, 9], pa.int64()), "v": pa.array([1, 2, 3, 4], pa.int32())})
"""Two rows for one row of `t`, and two rows that match none."""

NUMBERS = pa.table(
    {
        "id": pa.array(range(9), pa.int64()),
        "f": pa.array([1.5, NAN, INF, None, -0.0, 0.0, -INF, 7.25, 0.1], pa.float32()),
        "d": pa.array([1.5, NAN, INF, None, -0.0, 0.0, -INF, 7.25, 0.1], pa.float64()),
        "byte": pa.array([1, -128, 127, None, 0, 5, 6, 7, 8], pa.int8()),
        "short": pa.array([1, -(2**15), 2**15 - 1, None, 0, 5, 6, 7, 8], pa.int16()),
        "int": pa.array([1, -(2**31), 2**31 - 1, None, 0, 5, 6, 7, 8], pa.int32()),
        "long": pa.array([1, -(2**63), 2**63 - 1, None, 0, 5, 6, 7, 2**53 + 1], pa.int64()),
        "dec": pa.array(
            [Decimal(x) if x else None for x in ("1.50", "-99999999.99", "", "0.00", "0.10", "2", "3.33", "1.5", "9")],
            pa.decimal128(10, 2),
        ),
        "big": pa.array(
            [Decimal(x) if x else None for x in ("1", "-1", "", "0", "9" * 38, "2", "3", "1", "9" * 20)],
            pa.decimal128(38, 0),
        ),
    }
)

TEXTS = pa.table(
    {
        "id": pa.array(range(12), pa.int64()),
        "s": pa.array(["a", "", "ü€😀", None, "it's", "100%", "a_b", "Z", "aB", "a\\b", " a ", 'q"q']),
        "b": pa.array([b"a", b"", b"\x00\xff", None, b"it's", b"\xff", b"ab", b"Z", b"\x80", b"a\\b", b" ", b'"']),
        "flag": pa.array([True, False, None] * 4),
    }
)


def _at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


TIMES = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "day": pa.array(
            [date(2026, 3, 29), date(1, 1, 1), date(9999, 12, 31), None, date(1969, 12, 31), date(1970, 1, 1),
             date(2024, 2, 29), date(1582, 10, 15)]
        ),
        "at": pa.array(
            [_at(2026, 3, 29, 1, 30), _at(1900, 1, 1), _at(9999, 12, 31, 23, 59, 59, 999999), None,
             _at(1969, 12, 31, 23, 59, 59, 999999), _at(1970, 1, 1), _at(2026, 10, 25, 0, 30),
             _at(2026, 10, 25, 1, 30)],
            pa.timestamp("us", "UTC"),
        ),
        "local": pa.array(
            [datetime(2026, 3, 29, 2, 30), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), None,
             datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1), datetime(2026, 10, 25, 2, 30),
             datetime(2026, 10, 25, 2, 30, 0, 1)],
            pa.timestamp("us"),
        ),
    }
)  # fmt: skip

NESTED = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "p": pa.array(
            [{"x": 1, "q": {"y": "a", "z": [1, 2]}}, {"x": None, "q": None}, None, {"x": 4, "q": {"y": None, "z": []}}],
            pa.struct([("x", pa.int32()), ("q", pa.struct([("y", pa.string()), ("z", pa.list_(pa.int64()))]))]),
        ),
        "l": pa.array([[1, None, 3], [], None, [4]], pa.list_(pa.int32())),
        "m": pa.array([[("a", 1), ("b", None)], [], None, [("c", 3)]], pa.map_(pa.string(), pa.int32())),
        "ls": pa.array(
            [[{"k": "a", "n": 1}, None], [], None, [{"k": None, "n": 4}]],
            pa.list_(pa.struct([("k", pa.string()), ("n", pa.int32())])),
        ),
    }
)

ODD = pa.table(
    {
        "select": pa.array([1, 2, 3], pa.int64()),
        "a b": pa.array(["x", "y", None]),
        "ünï": pa.array([10, None, 30], pa.int32()),
        "Mixed": pa.array(["M", "N", "O"]),
        "flag?": pa.array([True, False, None]),
        "quo'te\"s": pa.array([7, 8, 9], pa.int64()),
        "名": pa.array(["一", "二", "三"]),
    }
)

TABLES: dict[str, pa.Table] = {
    "t": _target(),
    "k": _target(),
    "s": SOURCE,
    "dup": DOUBLED,
    "empty": _target().slice(0, 0),
    "none": SOURCE.slice(0, 0),
    "num": NUMBERS,
    "txt": TEXTS,
    "times": TIMES,
    "nest": NESTED,
    "odd": ODD,
}
KEYS = {"k": "id"}
