"""Target table of an export: its columns, and the id of its lock, which is stored in the table itself.

The id is the default of an ALIAS column: metadata without data, created with the table or added to it. Adding an
existing column is refused, so of several concurrent workers one sets the id and all read it. It is dropped with the
table, stays when the table is renamed, and is the same by whatever address the server is reached.
"""

# ruff: noqa: S608 (every name goes through name(), every value through text(); the rest are numbers)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from conroi.arguments import shortened
from conroi.errors import InvalidInputError, NotFoundError
from conroi.export.columns import column_type
from conroi.export.engine import TABLE_EXISTS, ClickHouseError, Engine, name, text
from conroi.export.rows import ROW
from conroi.export.target import Target

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
