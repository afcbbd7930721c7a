"""Rows given as Python dicts: an Arrow table of them in the table's types, without loss."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, cast

import numpy as np
import pyarrow as pa

from conroi.arguments import printable, shortened
from conroi.errors import InvalidInputError

Loss = Callable[[Any], str | None]
"""What would be lost of a value; None if nothing."""

_LARGEST = {"halffloat": 65_519.99, "float": 3.4028235677973362e38}
"""What becomes infinite beyond this, by type."""
MOST_LEVELS = 64
"""How deep lists and dicts may be inside each other."""
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}


def rows_to_table(given: Sequence[object], schema: pa.Schema | None) -> pa.Table:
    """The rows, with the types of the schema for the columns that it has; other types are inferred."""
    rows = _checked_rows(given)
    if not rows:
        if schema is None:
            raise InvalidInputError("An empty list has no schema.", hint="Give a pyarrow schema instead.")
        return pa.Table.from_batches([], schema)
    named = dict.fromkeys(name for row in rows for name in row)
    wanted = {} if schema is None else {field.name: field for field in schema}
    fields = [field for name, field in wanted.items() if name in named]
    unknown = [name for name in named if name not in wanted]
    fields += [pa.field(name, _inferred(name, rows)) for name in (sorted(unknown) if wanted else unknown)]
    if not fields:
        raise InvalidInputError("The rows have no columns.", hint="Give each row at least one value.")
    return pa.Table.from_arrays([_column(field, rows) for field in fields], schema=pa.schema(fields))


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


def _checked_rows(given: Sequence[object]) -> Sequence[Mapping[str, Any]]:
    for row in given:
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"A list of dicts was expected, but it holds a {type(row).__name__}.",
                hint='Write rows as [{"id": 1, "name": "a"}, …].',
            )
        for name, value in cast("Mapping[object, object]", row).items():
            if not isinstance(name, str):
                raise InvalidInputError(
                    f"{shortened(name)} is the name of a column, but not text.", hint='Write {"id": 1}.'
                )
            if not _is_shallow(value, MOST_LEVELS):
                raise InvalidInputError(
                    f"Column {shortened(name)} has more than {MOST_LEVELS} lists and dicts inside each other.",
                    hint="Give the value fewer levels; one that contains itself cannot be stored.",
                )
    return cast("Sequence[Mapping[str, Any]]", given)


def _is_shallow(value: object, levels: int) -> bool:
    """Whether not more than so many lists and dicts are inside each other: pyarrow has no limit, and crashes."""
    if isinstance(value, Mapping):
        inside: Iterable[object] = cast("Mapping[object, object]", value).values()
    elif isinstance(value, list | tuple | set | frozenset):
        inside = cast("Iterable[object]", value)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        inside = cast("Iterable[object]", value.flat)
    else:
        return True
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inside)


def _inferred(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.DataType:
    try:
        return pa.array([row.get(name) for row in rows]).type
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"Column {name!r} has values of different types: {error}",
            hint="Make them all of one type, or create the table from a pyarrow schema first.",
        ) from error


def _column(field: pa.Field[Any], rows: Sequence[Mapping[str, Any]]) -> pa.Array[Any]:
    _refuse_loss(field, rows)
    try:
        return pa.array([row.get(field.name) for row in rows], field.type)
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
        if pa.types.is_null(field.type):
            raise InvalidInputError(
                f"Column {field.name!r} of the table can hold only nulls: it had no other value when it was created.",
                hint=f'Give it a type first: alter_columns({{{field.name!r}: {{"type": pa.string()}}}}).',
            ) from error
        raise InvalidInputError(
            f"Column {field.name!r} has a value that does not fit {field.type}: {printable(error)}",
            hint="Check that every value has its column's type.",
        ) from error


def _refuse_loss(field: pa.Field[Any], rows: Iterable[Mapping[str, Any]]) -> None:
    loss = _loss_of(field.type)
    if loss is None:
        return
    for row in rows:
        value = row.get(field.name)
        lost = None if value is None else loss(value)
        if lost is not None:
            raise InvalidInputError(
                f"Column {field.name!r} has the value {shortened(value)}, which does not fit {field.type}: {lost}.",
                hint="Nothing is cut or rounded silently: convert the value first, or change the column with "
                "alter_columns().",
            )


def _loss_of(type_: pa.DataType) -> Loss | None:
    """What tells whether a value would lose something in this type; None where pyarrow itself refuses."""
    if isinstance(type_, pa.BaseExtensionType):
        return _loss_of(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return _loss_of(type_.value_type)
    if pa.types.is_integer(type_):
        return _fraction
    if str(type_) in _LARGEST:
        return _beyond(_LARGEST[str(type_)])
    if pa.types.is_temporal(type_):
        return _loss_of_time(type_)
    if pa.types.is_struct(type_):
        return _in_struct({type_.field(number).name: type_.field(number).type for number in range(type_.num_fields)})
    if pa.types.is_map(type_):
        return _in_map(_loss_of(type_.key_type), _loss_of(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        inside = _loss_of(type_.value_type)
        return None if inside is None else _in_list(inside)
    return None


def _fraction(value: Any) -> str | None:
    is_number = isinstance(value, Decimal | Real) and not isinstance(value, int)
    return f"the fraction of {shortened(value)} would be lost" if is_number and value % 1 else None


def _beyond(largest: float) -> Loss:
    def loss(value: Any) -> str | None:
        is_finite = isinstance(value, Real) and abs(float(value)) != float("inf")
        return f"{shortened(value)} would become infinite" if is_finite and abs(float(value)) > largest else None

    return loss


def _loss_of_time(type_: pa.DataType) -> Loss:
    unit = "day" if pa.types.is_date(type_) else str(getattr(type_, "unit", ""))
    has_zone = pa.types.is_timestamp(type_) and type_.tz is not None

    def loss(value: Any) -> str | None:
        if isinstance(value, dt.datetime) and unit == "day":
            return "the time of day would be lost" if value.time() != dt.time() or value.tzinfo else None
        if isinstance(value, dt.datetime | dt.time) and value.tzinfo is not None and not has_zone:
            return "the time zone would be lost"
        if isinstance(value, dt.datetime | dt.time):
            return _finer(value.microsecond, unit)
        if isinstance(value, dt.timedelta):
            return _finer(value.microseconds, unit)
        return _fraction(value)

    return loss


def _finer(microseconds: int, unit: str) -> str | None:
    return f"it is finer than the column's unit, {unit}" if microseconds % _MICROSECONDS.get(unit, 1) else None


def _in_struct(types: Mapping[str, pa.DataType]) -> Loss:
    inside = {name: _loss_of(type_) for name, type_ in types.items()}

    def loss(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return None
        for name, each in cast("Mapping[object, Any]", value).items():
            if name not in inside:
                return f"the struct has no field {shortened(name)}"
            check = inside[cast("str", name)]
            lost = None if check is None or each is None else check(each)
            if lost is not None:
                return lost
        return None

    return loss


def _in_list(inside: Loss) -> Loss:
    def loss(value: Any) -> str | None:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            return None
        return next((lost for each in cast("Any", value) if each is not None and (lost := inside(each))), None)

    return loss


def _in_map(key: Loss | None, item: Loss | None) -> Loss:
    def loss(value: Any) -> str | None:
        pairs = value.items() if isinstance(value, Mapping) else value
        if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
            return None
        for pair in cast("Any", pairs):
            for check, each in zip((key, item), pair, strict=False):
                lost = None if check is None or each is None else check(each)
                if lost is not None:
                    return lost
        return None

    return loss
