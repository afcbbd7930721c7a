"""The target table of an export: its columns in ClickHouse types, and the id of its lock, which it carries itself.

The id is the default of an ALIAS column: metadata without data, created with the table or added to it. Adding a column
that exists is refused, so of many concurrent workers one assigns the id and all read it. It is dropped with the table,
stays when the table is renamed, and is the same by whatever address the server is reached.
"""

# ruff: noqa: S608 (every name goes through name(), every value through text(); the rest are numbers)

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from zoneinfo import available_timezones

import numpy as np
import pyarrow as pa

from conroi.arguments import shortened
from conroi.errors import InvalidInputError, NotFoundError, UnsupportedError
from conroi.export.clickhouse_engine import TABLE_EXISTS, ClickHouseError, Engine, Target, name, text

ROW = "conroi_row"
"""The column with the row's number: each export's are one unbroken run."""
ARROW, LINES = "ArrowStream", "JSONEachRow"


class Numbered:
    """The batches of many sources in one schema, with a number for each row."""

    def __init__(self, readers: Sequence[pa.RecordBatchReader], first: int) -> None:
        self._readers = readers
        schema = readers[0].schema.remove_metadata()
        self._names = schema.names
        self.schema: pa.Schema = schema.append(pa.field(ROW, pa.uint64(), nullable=False))
        self.first = first
        self.next: int = first
        """Behind the last number that was given."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for reader in self._readers:
            for batch in reader:
                if batch.num_rows:
                    yield self._numbered(batch)

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        end = self.next + batch.num_rows
        numbers = pa.array(np.arange(self.next, end, dtype=np.uint64))
        self.next = end
        return pa.RecordBatch.from_arrays([*batch.select(self._names).columns, numbers], names=self.schema.names).cast(
            self.schema
        )


def alike(readers: Sequence[pa.RecordBatchReader]) -> None:
    """Sources that become one run have the same columns."""
    first = set(readers[0].schema.names)
    for reader in readers[1:]:
        if set(reader.schema.names) != first:
            raise InvalidInputError(
                f"The sources have different columns: {sorted(first ^ set(reader.schema.names))}.",
                hint="Give sources with the same columns.",
            )


def as_arrow(rows: Numbered) -> Iterator[bytes]:
    """An Arrow stream, batch by batch."""
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file that hands over what was written since it was asked last."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def as_lines(rows: Numbered) -> Iterator[bytes]:
    """A JSON object for each row, for servers that do not read Arrow."""
    for batch in rows:
        yield "".join(json.dumps(row, default=_in_json) + "\n" for row in batch.to_pylist()).encode()


def _in_json(value: object) -> str:
    assert isinstance(value, date), "no other type is let in for such servers"
    return value.isoformat()


LOCK = "conroi_lock"
_NOT_INSERTED = ("ALIAS", "MATERIALIZED")


@dataclass(frozen=True)
class Described:
    """A table as it is now."""

    columns: frozenset[str]
    """Those that an INSERT may name."""
    has_rows_numbered: bool
    lock: int | None


def describe(engine: Engine, target: Target) -> Described | None:
    """The table; None if it does not exist."""
    rows = engine.ask(
        "SELECT name, default_kind, default_expression FROM system.columns "
        f"WHERE database = {text(target.database)} AND table = {text(target.table)}"
    )
    if not rows:
        return None
    kinds: Mapping[str, tuple[str, str]] = {str(row[0]): (str(row[1]), str(row[2])) for row in rows}
    inserted = frozenset(column for column, (kind, _) in kinds.items() if kind not in _NOT_INSERTED)
    lock = _lock(kinds[LOCK][1], target) if LOCK in kinds else None
    return Described(inserted - {ROW}, ROW in kinds, lock)


def _lock(default: str, target: Target) -> int:
    if not default.isdecimal():
        raise InvalidInputError(
            f"The table {target} has a column {LOCK} that is not an export's.", hint="Rename it, or take another table."
        )
    return int(default)


def checked_order(schema: pa.Schema, order_by: Sequence[str]) -> list[str]:
    """The columns to sort by; InvalidInputError if no table can be created from these columns."""
    names = schema.names
    twice = sorted({each for each in names if names.count(each) > 1})
    if twice:
        raise InvalidInputError(f"Column {', '.join(twice)} appears twice.", hint="Rename one of the columns.")
    unknown = [each for each in order_by if each not in names]
    if unknown:
        raise InvalidInputError(
            f"order_by names {', '.join(map(shortened, unknown[:5]))}, which the rows do not have.",
            hint=f"They have {', '.join(map(shortened, names[:20]))}.",
        )
    return list(order_by)


def create(engine: Engine, target: Target, schema: pa.Schema, order_by: Sequence[str], lock: int) -> None:
    """Create the table; one that was created concurrently is used instead."""
    is_old = not engine.has_arrow
    columns = [f"{name(f.name)} {column_type(f, is_old=is_old, is_key=f.name in order_by)}" for f in schema]
    columns += [f"{ROW} UInt64", f"{LOCK} UInt64 ALIAS {lock}"]
    order = ", ".join([*map(name, order_by), ROW])
    engine.ask(f"CREATE DATABASE IF NOT EXISTS {name(target.database)}")
    try:
        engine.ask(f"CREATE TABLE {target.sql} ({', '.join(columns)}) ENGINE = MergeTree ORDER BY ({order})")
    except ClickHouseError as error:
        if error.code != TABLE_EXISTS:
            raise


def registered(engine: Engine, target: Target, new_lock: int) -> Described:
    """The table with a lock id: its own, or this one if it has none."""
    found = describe(engine, target)
    if found is not None and (found.lock is None or not found.has_rows_numbered):
        adding = [] if found.has_rows_numbered else [f"ADD COLUMN {ROW} UInt64"]
        adding += [] if found.lock is not None else [f"ADD COLUMN {LOCK} UInt64 ALIAS {new_lock}"]
        try:
            engine.ask(f"ALTER TABLE {target.sql} {', '.join(adding)}")
        except ClickHouseError:
            found = describe(engine, target)
            if found is None or found.lock is None:  # not because of a concurrent worker
                raise
        else:
            found = describe(engine, target)
    if found is None:
        raise NotFoundError(
            f"There is no table {target}.", hint="Leave out create=False, or make the table in ClickHouse."
        )
    return found


def check_columns(found: Described, schema: pa.Schema, target: Target) -> None:
    """Columns are matched by name; those that only the target has get their default."""
    unknown = [column for column in schema.names if column not in found.columns]
    if unknown or {ROW, LOCK} & set(schema.names):
        raise InvalidInputError(
            f"The table {target} has no column {', '.join(unknown[:5]) or ROW} that rows can be given.",
            hint=f"Leave it out or rename it; {ROW} and {LOCK} are filled in by the export itself.",
        )


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
