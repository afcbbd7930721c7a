"""Rows for tests of joins: a table that is shared out to tasks, and small ones with every kind of key."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

_chance = random.Random(20)
_DAY = datetime.date(2026, 1, 1)
_ROWS = 3_000
_TEXTS = ["a", "", "ü€😀", "it's", "A", "a ", "zz"]


def _some(values: list[Any], rows: int, nulls: float = 0.1) -> list[Any]:
    return [None if _chance.random() < nulls else _chance.choice(values) for _ in range(rows)]


def _days(numbers: range) -> list[datetime.date]:
    return [_DAY + datetime.timedelta(days=number) for number in numbers]


FACTS = pa.table(
    {
        "i": pa.array(_some([*range(-60, 60), -(2**31), 2**31 - 1], _ROWS), pa.int32()),
        "l": pa.array(_some([*range(-5, 40), -(2**63), 2**63 - 1], _ROWS), pa.int64()),
        "b": pa.array(_some([*range(-128, 128, 7)], _ROWS), pa.int8()),
        "code": pa.array(_some(_TEXTS, _ROWS)),
        "day": pa.array(_some(_days(range(-3, 20)), _ROWS), pa.date32()),
        "n": pa.array(_some([-3, 0, 7, 1000], _ROWS), pa.int32()),
        "wide": pa.array(_some([2**40, -(2**40), 5], _ROWS), pa.int64()),
        "x": pa.array(_some([0.25, -1.5, 1024.0, -0.0], _ROWS), pa.float64()),
        "odd": pa.array(_some([0.5, float("nan"), float("inf"), -0.0], _ROWS, 0.5), pa.float64()),
        "f": pa.array(_some([0.5, -2.25], _ROWS), pa.float32()),
        "money": pa.array(_some([Decimal("1.50"), Decimal("-99.99")], _ROWS), pa.decimal128(10, 2)),
        "flag": pa.array(_some([True, False], _ROWS)),
        "größe €": pa.array(_some([1, 2, 3], _ROWS), pa.int64()),
    }
)

_IDS = list(range(40))
DIMENSION = pa.table(
    {
        "id": pa.array(_IDS, pa.int64()),
        "small": pa.array(_IDS, pa.int16()),
        "label": pa.array([None if n % 9 == 0 else f"label {n % 4}" for n in _IDS]),
        "rate": pa.array([[0.0, -0.0, float("nan"), 1.5, None][n % 5] for n in _IDS], pa.float64()),
        "n": pa.array([None if n % 7 == 0 else n - 20 for n in _IDS], pa.int32()),
        "flag": pa.array([[True, False, None][n % 3] for n in _IDS]),
        "money": pa.array([Decimal(n) / 4 for n in _IDS], pa.decimal128(12, 2)),
        "day": pa.array([None, *_days(range(39))], pa.date32()),
        "at": pa.array([datetime.datetime(2026, 1, 1 + n % 3, tzinfo=datetime.UTC) for n in _IDS]),
        "select": pa.array([f"s{n % 2}" for n in _IDS]),
    }
)

TWICE = pa.table(
    {
        "k": pa.array([1, 1, 2, None, 2, 2, 3, None, -7, 2**31 - 1], pa.int32()),
        "name": pa.array(["x", "y", "x", "x", "x", None, "z", "z", "w", "v"]),
        "weight": pa.array([1, 2, 3, 4, None, 6, 7, 8, 9, 10], pa.int64()),
    }
)
"""Keys that occur more than once, and null keys."""

TEXTS = pa.table(
    {
        "code": pa.array(["a", "", "ü€😀", None, "it's", "missing"]),
        "kind": pa.array(["one", "two", "one", "three", None, "two"]),
    }
)

EMPTY = pa.table({"id": pa.array([], pa.int64()), "label": pa.array([], pa.string())})

TABLES = {"facts": FACTS, "dim": DIMENSION, "twice": TWICE, "texts": TEXTS, "empty": EMPTY}
