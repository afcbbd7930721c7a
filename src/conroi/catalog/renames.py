"""Staged catalog changes of a transaction: tables created, dropped and renamed so far. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from conroi.catalog.catalog import no_table
from conroi.catalog.names import parents, shown
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.errors import AlreadyExistsError


@dataclass(frozen=True, slots=True)
class Named:
    """A table under the name that it has in the transaction."""

    row: Row
    was: str | None
    """Its name at the base; None for a table that the transaction creates."""


class Names:
    """The names of tables as one transaction sees them, on top of the state that it began with."""

    def __init__(self, base: LakeState) -> None:
        self._base = base
        self._changed: dict[str, Named | None] = {}
        """By name: the table that has it now, None if it was removed."""

    def get(self, key: str) -> Named | None:
        """The table of this name."""
        if key in self._changed:
            return self._changed[key]
        row = self._base.table(key)
        return None if row is None else Named(row, key)

    def require(self, key: str) -> Named:
        """The table of this name; NotFoundError if there is none."""
        named = self.get(key)
        if named is None:
            raise no_table(key, self._base)
        return named

    def check_free(self, key: str) -> None:
        """AlreadyExistsError if a table or a namespace has the name, or a table has the name of its namespace."""
        taken = self.get(key)
        there = taken.row if taken is not None else self._base.rows.get(key)
        if there is not None and (taken is not None or not there.is_table):
            raise AlreadyExistsError(
                f"There is a {there.object_type} {shown(key)!r} already.",
                table=shown(key),
                hint="Open it with lake[name], inside a transaction with tx[name]; or choose another name.",
            )
        for parent in parents(key):
            if self.get(parent) is not None:
                raise AlreadyExistsError(
                    f"{shown(parent)!r} is a table, so nothing can be inside it.",
                    table=shown(parent),
                    hint="Choose another name, or rename the table first.",
                )

    def add(self, row: Row) -> None:
        self.check_free(row.object_id)
        self._changed[row.object_id] = Named(row, None)

    def forget(self, key: str) -> Named:
        """Remove the name; returns the table that had it."""
        named = self.require(key)
        self._changed[key] = None
        return named

    def rename(self, key: str, wanted: str) -> Named:
        """Rename a table; returns the table with the new name."""
        named = self.require(key)
        self.check_free(wanted)
        self._changed[key] = None
        self._changed[wanted] = Named(named.row.renamed(wanted), named.was)
        return Named(named.row.renamed(wanted), named.was)

    def arrange(self, moves: Mapping[str, str | None]) -> None:
        """Rename tables, or remove them (None), all at once: names may be swapped."""
        tables = {key: self.require(key) for key in moves}
        self._changed |= dict.fromkeys(moves)
        for key, wanted in moves.items():
            if wanted is not None:
                self._changed[wanted] = Named(tables[key].row.renamed(wanted), tables[key].was)

    def put(self, row: Row) -> None:
        """Add a table under a name that `arrange` has freed."""
        self._changed[row.object_id] = Named(row, None)

    def all(self) -> list[str]:
        """The names of all tables."""
        kept = {row.object_id for row in self._base.tables()} - self._changed.keys()
        return sorted(kept | {key for key, named in self._changed.items() if named is not None})

    # ------------------------------------------------------------------------ at the end

    def leaving(self) -> frozenset[str]:
        """The names of the base whose tables do not have them any more."""
        return frozenset(
            key
            for key, named in self._changed.items()
            if self._base.table(key) is not None and (named is None or named.was != key)
        )

    def rows(self, published: Collection[str]) -> dict[str, Row | None]:
        """The rows that change without a new version of their tables; `published` are those that get one."""
        rows: dict[str, Row | None] = {key: None for key in self.leaving() if self._changed[key] is None}
        for key, named in self._changed.items():
            if named is not None and named.was not in (None, key) and key not in published:
                rows[key] = named.row
        return rows
