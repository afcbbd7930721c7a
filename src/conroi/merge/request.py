"""The request of a merge: its clauses, checked, with the columns that each of them reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from conroi.data.arrow_types import metadata_of
from conroi.data.casts import checked_columns
from conroi.data.incoming import fit
from conroi.data.keys import is_comparable, key_columns_of
from conroi.data.table_version import TableVersion, unknown_column
from conroi.errors import InvalidInputError
from conroi.format.fields import column_field_ids


class RowKind(Enum):
    """Which rows a clause is about."""

    MATCHED = "matched"
    """A row of the source and one of the target with the same key."""
    SOURCE_ONLY = "not matched"
    """A row of the source whose key the target does not have."""
    TARGET_ONLY = "not matched by source"
    """A row of the target whose key the source does not have."""


class Action(Enum):
    """What a clause does with its rows."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Clause:
    """One `when_…` of a merge. Of several for the same rows, the first whose condition holds wins."""

    rows: RowKind
    action: Action
    values: Mapping[str, str] | None = None
    """New values by column, as expressions over `source.…` and `target.…`; None takes all columns of the source."""
    condition: str | None = None

    @property
    def takes_all(self) -> bool:
        """Whether it takes the source's columns as they are."""
        return self.values is None and self.action is not Action.DELETE

    def texts(self) -> list[str]:
        """All expressions in it."""
        return [*(self.values or {}).values(), *([self.condition] if self.condition else [])]


@dataclass(frozen=True)
class Request:
    """A merge request; the same here and in a task on another machine."""

    on: tuple[str, ...]
    clauses: tuple[Clause, ...]

    def has(self, rows: RowKind, action: Action | None = None) -> bool:
        """Whether a clause is about these rows (and does this with them)."""
        return any(c.rows is rows and action in (None, c.action) for c in self.clauses)

    def is_on_key(self, pinned: TableVersion) -> bool:
        """Whether rows are matched by the table's declared key."""
        return set(self.on) == set(pinned.key)

    # ------------------------------------------------------------------------ the source

    def check(self, pinned: TableVersion, source: pa.Schema) -> None:
        """InvalidInputError or NotFoundError if the columns do not fit the request."""
        for column in self.on:
            self._check_matched(pinned, source, column)
        for clause in self.clauses:
            for column in clause.values or {}:
                pinned.field(column)
        if self._takes_all():
            checked_columns(source, self._wanted(pinned), table=pinned.root)

    def _check_matched(self, pinned: TableVersion, source: pa.Schema, column: str) -> None:
        if column not in pinned.schema.names:
            raise unknown_column(pinned, column)
        if column not in source.names:
            raise InvalidInputError(
                f"The source has no column {column!r} to match on.",
                table=pinned.root,
                hint=f"It has {', '.join(source.names)}.",
            )
        if not is_comparable(type_ := pinned.schema.field(column).type):
            raise InvalidInputError(
                f"Rows cannot be matched on column {column!r}, which holds {type_}.",
                table=pinned.root,
                hint="Match on columns with plain values.",
            )

    def _takes_all(self) -> bool:
        return any(clause.takes_all for clause in self.clauses)

    def _wanted(self, pinned: TableVersion) -> pa.Schema:
        if any(clause.takes_all and clause.action is Action.INSERT for clause in self.clauses):
            return pinned.schema
        return _nullable(pinned.schema)  # an update leaves columns that are missing as they are

    def fitted(self, pinned: TableVersion, source: pa.Table) -> pa.Table:
        """The source's columns that the table has (those that matter), in its types."""
        self.check(pinned, source.schema)
        return _cast(pinned, source if self._takes_all() else source.select(list(self.on)), self.on)

    def keys(self, pinned: TableVersion, source: pa.Table) -> pa.Table:
        """The source's keys (k0, k1, …), in the table's types."""
        return key_columns_of(_cast(pinned, source.select(list(self.on)), self.on), self.on)

    # ------------------------------------------------------------------------ the change

    @property
    def only_deletes_matched(self) -> bool:
        """Whether all it can do is delete rows that match: then it does not matter how many rows match one."""
        return all(clause.rows is RowKind.MATCHED and clause.action is Action.DELETE for clause in self.clauses)

    def brings_new_keys(self, pinned: TableVersion) -> bool:
        """Whether rows must still be compared with the table by its declared key, since matching did not do that."""
        key = set(pinned.key)
        if not key:
            return False
        changed = {column for c in self.clauses if c.action is Action.UPDATE for column in c.values or {}}
        return key != set(self.on) or not key.isdisjoint(changed) or self._inserts_other_keys(key)

    def _inserts_other_keys(self, key: set[str]) -> bool:
        """Whether an insert clause computes the key instead of taking the source's."""
        computed = [c.values for c in self.clauses if c.action is Action.INSERT and c.values is not None]
        return any(values.get(column) != f"(source.{column})" for values in computed for column in key)

    def changed_fields(self, pinned: TableVersion, *, inserts: bool) -> list[int]:
        """The fields whose values may differ in the new rows."""
        clauses = [c for c in self.clauses if c.action is Action.UPDATE]
        if inserts or any(clause.values is None for clause in clauses):
            return sorted(field.id for field in pinned.manifest.fields)
        columns = sorted({column for clause in clauses for column in clause.values or {}})
        return column_field_ids(pinned.manifest.fields, columns)


def checked_on(on: Sequence[str] | str, table: str) -> tuple[str, ...]:
    """The columns to match on."""
    columns = (on,) if isinstance(on, str) else tuple(on)
    if not columns or len(set(columns)) != len(columns) or not all(columns):
        raise InvalidInputError(
            f"on={on!r} does not say which columns to match.",
            table=table,
            hint="Give one column, or several different ones.",
        )
    return columns


def _cast(pinned: TableVersion, rows: pa.Table, on: Sequence[str]) -> pa.Table:
    # A key that is null matches nothing, so it is no error here; one that is inserted is refused later.
    fitted = fit(rows.to_reader(), _nullable(pinned.schema), table=pinned.root).read_all()
    for column in on:
        _refuse_other_keys(rows[column], fitted[column], column, pinned.root)
    return fitted


def _refuse_other_keys(given: pa.ChunkedArray[Any], fitted: pa.ChunkedArray[Any], column: str, table: str) -> None:
    """A key that is another one in the table's type would match rows that it is not the key of."""
    if given.type.equals(fitted.type) or isinstance(fitted.type, pa.BaseExtensionType) or pa.types.is_null(given.type):
        return
    is_timed = pa.types.is_timestamp(given.type) and pa.types.is_timestamp(fitted.type)
    # A time without a zone is kept as the same number as in UTC, which is what Spark's TIMESTAMP comes as.
    zones = {given.type.tz, fitted.type.tz} if is_timed else set[str | None]()
    if None in zones and zones - {None, "UTC"}:
        raise InvalidInputError(
            f"The source's {column!r} is {given.type} and the table's {fitted.type}: one of them has no time zone.",
            table=table,
            hint="Give the source's column the time zone of the table's, or take it away.",
        )
    if not _bits(given).equals(_bits(fitted.cast(given.type))):
        raise InvalidInputError(
            f"The source's {column!r} ({given.type}) has a value that {fitted.type} does not hold exactly, "
            "so it equals no key of the table.",
            table=table,
            hint="Round the source's column yourself, or change the table's with alter_columns().",
        )


def _bits(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """The values in a form in which the same keys, NaN among them, are equal."""
    found = key_columns_of(pa.table([column], names=["k"]), ["k"]).column(0).combine_chunks()
    return found.view(pa.int64()) if pa.types.is_floating(found.type) else found


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_nullable(True) for f in schema], metadata=metadata_of(schema))
