"""Type mapping from Arrow to ClickHouse columns."""

from __future__ import annotations

from zoneinfo import available_timezones

import pyarrow as pa

from conroi.errors import UnsupportedError
from conroi.export.engine import name, text

_PLAIN: dict[pa.DataType, str] = {
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.uint8(): "UInt8",
    pa.uint16(): "UInt16",
    pa.uint32(): "UInt32",
    pa.uint64(): "UInt64",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "String",
    pa.large_string(): "String",
}
_OLD = {**_PLAIN, pa.bool_(): "UInt8", pa.date32(): "Date"}
_NEW = {
    **_PLAIN,
    pa.float16(): "Float32",
    pa.bool_(): "Bool",
    pa.binary(): "String",
    pa.large_binary(): "String",
    pa.date32(): "Date32",
    pa.date64(): "Date32",
}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def column_type(field: pa.Field[pa.DataType], *, is_old: bool, is_key: bool = False) -> str:
    """The type that a column of this kind gets in a table that an export makes."""
    said = _type(field.type, is_old)
    if said is None:
        raise UnsupportedError(
            f"The column {field.name!r} has the type {field.type}, which this ClickHouse has none for.",
            hint="Export it as another type, or make the target's table yourself.",
        )
    is_compound = said.startswith(("Array", "Tuple", "Map"))
    return f"Nullable({said})" if field.nullable and not is_compound and not is_key else said


def _type(type_: pa.DataType, is_old: bool) -> str | None:
    known = (_OLD if is_old else _NEW).get(type_)
    if known is not None:
        return known
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return f"Array({column_type(type_.value_field, is_old=is_old)})"
    return None if is_old else _newer(type_)


def _known_zone(zone: str) -> str:
    """The name of a time zone; it comes from the data, and only names that are known go into a statement."""
    if zone not in available_timezones():
        raise UnsupportedError(
            f"ClickHouse has no time zone {zone!r}.", hint='Cast the column to pa.timestamp("us", "UTC") first.'
        )
    return zone


def _newer(type_: pa.DataType) -> str | None:
    if pa.types.is_timestamp(type_):
        return f"DateTime64({_DIGITS[type_.unit]}, {text(_known_zone(type_.tz or 'UTC'))})"
    if pa.types.is_decimal(type_):
        return f"Decimal({type_.precision}, {type_.scale})"
    if pa.types.is_dictionary(type_):
        return _type(type_.value_type, False)
    if pa.types.is_struct(type_):
        return f"Tuple({', '.join(f'{name(f.name)} {column_type(f, is_old=False)}' for f in type_)})"
    return None
