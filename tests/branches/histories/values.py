"""Column types of the model, their values in canonical form, and safe casts between them.

In canonical form equal values are equal objects: one NaN, no -0.0, lists as tuples, structs by field id.
"""

from __future__ import annotations

import datetime
import decimal
import math
import struct
import typing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa

NAN = "NaN"
"""Floats are compared as keys are: there is one NaN, and it equals itself."""

TYPES: dict[str, pa.DataType] = {
    "i32": pa.int32(),
    "i64": pa.int64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "str": pa.string(),
    "lstr": pa.large_string(),
    "bool": pa.bool_(),
    "ts_ms": pa.timestamp("ms"),
    "ts_us": pa.timestamp("us"),
    "dec10": pa.decimal128(10, 2),
    "dec20": pa.decimal128(20, 2),
    "bin": pa.binary(),
    "li32": pa.list_(pa.int32()),
    "li64": pa.list_(pa.int64()),
    "lf64": pa.list_(pa.float64()),
    "v32": pa.list_(pa.float32(), 2),
    "v64": pa.list_(pa.float64(), 2),
    "dict": pa.dictionary(pa.int32(), pa.string()),
}
RETYPES: dict[str, tuple[str, ...]] = {
    "i32": ("i64", "f64"),
    "i64": ("i32", "f64"),
    "f32": ("f64",),
    "f64": ("f32",),
    "str": ("lstr",),
    "lstr": ("str",),
    "ts_ms": ("ts_us",),
    "ts_us": ("ts_ms",),
    "dec10": ("dec20",),
    "dec20": ("dec10",),
    "li32": ("li64",),
    "li64": ("li32",),
    "v32": ("v64",),
    "v64": ("v32",),
    "dict": ("str",),
}
SIMPLE = ("i32", "i64", "str", "lstr", "bool")
"""Types whose values can stand in a condition, with the same meaning everywhere."""
BIG = 2**40
"""Fits an int64 and no int32."""

POOLS: dict[str, tuple[Any, ...]] = {
    "i32": (0, 1, 2, 3),
    "i64": (0, 1, 2, 3, BIG),
    "f32": (0.5, 1.5, float("nan"), -0.0, 0.0),
    "f64": (0.5, 1.5, float("nan"), -0.0, 0.0, 0.1),
    "str": ("a", "b", "c"),
    "lstr": ("a", "b", "c"),
    "bool": (True, False),
    "ts_ms": (0, 1000, 5),
    "ts_us": (0, 1000, 5),
    "dec10": ("1.25", "2.50"),
    "dec20": ("1.25", "2.50", "123456789012.25"),
    "bin": (b"x", b"y"),
    "li32": ([], [1], [1, 2]),
    "li64": ([], [1], [1, BIG]),
    "lf64": ([], [float("nan")], [1.0, None], [-0.0]),
    "v32": ([0.5, 1.5], [float("nan"), 1.0]),
    "v64": ([0.5, 1.5], [float("nan"), -0.0], [0.1, 0.5]),
    "dict": ("a", "b", "c"),
}


class CannotCast(Exception):
    """The value has no equal of the other type."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a field of a struct; `fid` is what it is known by, whatever its name and type."""

    fid: int
    name: str
    type: str
    """A name in TYPES, or "struct"."""
    nullable: bool = True
    children: tuple[Column, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    """Field metadata."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """All but the notes."""
        return (self.fid, self.name, self.type, self.nullable, tuple(child.shape for child in self.children))

    @property
    def fids(self) -> set[int]:
        """Its own id and those of fields inside."""
        return {self.fid}.union(*(child.fids for child in self.children))


@cache
def arrow_type(column: Column) -> pa.DataType:
    if column.type != "struct":
        return TYPES[column.type]
    return pa.struct([pa.field(child.name, arrow_type(child)) for child in column.children])


@cache
def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(each.name, arrow_type(each), nullable=each.nullable) for each in columns])


def canonical(raw: Any, column: Column) -> Any:
    """A value as Arrow hands it out, or as a step writes it, in canonical form."""
    if raw is None:
        return None
    kind = column.type
    if kind in ("i32", "i64", "str", "lstr", "bool", "bin", "dict"):
        return raw
    if kind == "struct":
        return tuple((child.fid, canonical(raw.get(child.name), child)) for child in column.children)
    if kind in ("f32", "f64"):
        return _number(raw, single=kind == "f32")
    if kind in ("li32", "li64"):
        return tuple(raw)
    if kind in ("lf64", "v32", "v64"):
        return tuple(None if each is None else _number(each, single=kind == "v32") for each in raw)
    if kind in ("dec10", "dec20"):
        return decimal.Decimal(raw)
    assert kind in ("ts_ms", "ts_us"), kind
    if isinstance(raw, datetime.datetime):
        since = raw - datetime.datetime(1970, 1, 1)
        return since // datetime.timedelta(microseconds=1)
    return raw * 1000 if kind == "ts_ms" else raw


def _number(raw: float, *, single: bool) -> float | str:
    if math.isnan(raw):
        return NAN
    return (_single(raw) if single else raw) + 0.0


def _single(number: float) -> float:
    return struct.unpack("f", struct.pack("f", number))[0]


def raw_of(value: Any, column: Column) -> Any:
    """A canonical value as Arrow hands it out."""
    if value is None:
        return None
    if column.type == "struct":
        inside = dict(value)
        return {child.name: raw_of(inside[child.fid], child) for child in column.children}
    if value == NAN and column.type in ("f32", "f64"):
        return float("nan")
    if isinstance(value, tuple):
        return [float("nan") if each == NAN else each for each in value]
    if column.type in ("ts_ms", "ts_us"):
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=typing.cast("int", value))
    return value


def cast(value: Any, before: Column, after: Column) -> Any:
    """The value in the other type; CannotCast if it has no equal there. Floats are rounded."""
    if value is None or before.shape == after.shape:
        return value
    if before.type == "struct":
        inside, known = dict(value), {child.fid: child for child in before.children}
        return tuple(
            (child.fid, cast(inside[child.fid], known[child.fid], child) if child.fid in known else None)
            for child in after.children
        )
    return _CASTS.get(after.type, lambda same: same)(value)


def _int64(value: float | str) -> int:
    if isinstance(value, str) or value != int(value):
        raise CannotCast
    return int(value)


def _int32(value: float | str) -> int:
    if not -(2**31) <= _int64(value) < 2**31:
        raise CannotCast
    return _int64(value)


def _float(value: float | str) -> float | str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and abs(value) > 2**53:
        raise CannotCast
    return float(value)


def _milliseconds(value: int) -> int:
    if value % 1000:
        raise CannotCast
    return value


def _short_decimal(value: decimal.Decimal) -> decimal.Decimal:
    if abs(value) >= 10**8:
        raise CannotCast
    return value


_CASTS: dict[str, Any] = {
    "i64": _int64,
    "i32": _int32,
    "f64": _float,
    "f32": lambda value: value if isinstance(value, str) else _single(value) + 0.0,
    "ts_ms": _milliseconds,
    "dec10": _short_decimal,
    "li32": lambda value: tuple(_int32(each) for each in value),
    "v32": lambda value: tuple(each if isinstance(each, str) else _single(each) + 0.0 for each in value),
}


def retyped(column: Column, type_: str) -> Column:
    return replace(column, type=type_)


def literal(value: Any) -> str:
    """A value of a simple type in SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else str(value)
