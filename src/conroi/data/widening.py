"""Schema evolution: which columns of incoming data are new, and which types of a table must widen to hold it.

A type widens only where every value that it can hold is preserved exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

_INT_BITS: dict[pa.DataType, int] = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_UINT_BITS: dict[pa.DataType, int] = {pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32, pa.uint64(): 64}
_EXACT_BITS: dict[pa.DataType, int] = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
"""So many bits of an integer a float holds exactly."""
_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class Evolution:
    """What a table's columns must become before it can take data of some schema."""

    new: tuple[pa.Field[Any], ...]
    widened: Mapping[str, pa.DataType]

    def __bool__(self) -> bool:
        return bool(self.new or self.widened)


def evolution(table: pa.Schema, data: pa.Schema, keep: Sequence[str] = ()) -> Evolution:
    """The columns that the table lacks, and the types that its columns need, except for those whose type must stay."""
    new = tuple(field.with_nullable(True) for field in data if field.name not in table.names)
    widened: dict[str, pa.DataType] = {}
    for field in data:
        if field.name in table.names and field.name not in keep:
            there = table.field(field.name).type
            wide = wider(there, field.type)
            if wide is not None and not wide.equals(there):
                widened[field.name] = wide
    return Evolution(new, widened)


def wider(there: pa.DataType, coming: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds every value of both exactly; None if there is none.

    >>> wider(pa.int32(), pa.int64()), wider(pa.int64(), pa.int32()), wider(pa.null(), pa.string())
    (DataType(int64), DataType(int64), DataType(string))
    """
    if there.equals(coming) or pa.types.is_null(coming):
        return there
    if pa.types.is_null(there):
        return coming
    if pa.types.is_integer(there) and pa.types.is_integer(coming):
        return _wider_integer(there, coming)
    if pa.types.is_floating(there) and pa.types.is_floating(coming):
        return max(there, coming, key=lambda type_: _EXACT_BITS[type_])
    if pa.types.is_integer(there) and pa.types.is_floating(coming):
        bits = _INT_BITS[there] - 1 if there in _INT_BITS else _UINT_BITS[there]
        fitting = [float_ for float_, exact in _EXACT_BITS.items() if exact >= max(bits, _EXACT_BITS[coming])]
        return fitting[0] if fitting else None
    if pa.types.is_decimal(there) and pa.types.is_decimal(coming):
        scale = max(there.scale, coming.scale)
        precision = max(there.precision - there.scale, coming.precision - coming.scale) + scale
        return None if precision > 38 else pa.decimal128(precision, scale)
    if pa.types.is_timestamp(there) and pa.types.is_timestamp(coming) and there.tz == coming.tz:
        return pa.timestamp(_finer(there.unit, coming.unit), there.tz)
    if pa.types.is_fixed_size_list(there) and pa.types.is_fixed_size_list(coming):
        item = wider(there.value_type, coming.value_type)
        same_size = there.list_size == coming.list_size
        return pa.list_(there.value_field.with_type(item), there.list_size) if item is not None and same_size else None
    if pa.types.is_list(there) and pa.types.is_list(coming):
        item = wider(there.value_type, coming.value_type)
        return None if item is None else pa.list_(there.value_field.with_type(item))
    return None


def _finer(a: Any, b: Any) -> Any:
    return max(a, b, key=_UNITS.index)


def _wider_integer(there: pa.DataType, coming: pa.DataType) -> pa.DataType | None:
    for same in (_INT_BITS, _UINT_BITS):
        if there in same and coming in same:
            return max(there, coming, key=lambda type_: same[type_])
    needed = max(_INT_BITS.get(type_, 0) or 2 * _UINT_BITS[type_] for type_ in (there, coming))
    return next((type_ for type_, bits in _INT_BITS.items() if bits >= needed), None)


def hints(data: object, table: pa.Schema) -> pa.Schema:
    """The table's columns whose types fit the values of a list of dicts; the types of the others are inferred."""
    if not isinstance(data, Sequence) or isinstance(data, str | bytes):
        return table
    rows = [row for row in cast("Sequence[object]", data) if isinstance(row, Mapping)]
    return pa.schema([field for field in table if _fits([row.get(field.name) for row in rows], field.type)])


def _fits(values: list[Any], type_: pa.DataType) -> bool:
    try:
        array: Any = pa.array(values, type_)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False
    # pyarrow cuts a float to an integer without a word.
    return not pa.types.is_integer(type_) or array.to_pylist() == values
