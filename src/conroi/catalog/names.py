"""Names of tables and namespaces: `sales.orders` for people, `sales$orders` in `__manifest`; and the names that one
transaction sees, which it may have created, dropped and renamed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conroi.errors import AlreadyExistsError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from conroi.catalog.rows import Row
    from conroi.catalog.state import LakeState

SEPARATOR = "$"
LONGEST_PART = 128
LONGEST_NAME = 200
_PART = re.compile(r"\w[\w\- ]*", re.UNICODE)


def object_id(name: str) -> str:
    """The id of a table or namespace; InvalidInputError if nothing can have that name."""
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"{name!r} is not a name.", hint='Give text, such as "orders" or "sales.orders".')
    parts = name.split(".")
    for part in parts:
        _check_part(part, name)
    if len(name) > LONGEST_NAME:
        raise InvalidInputError(
            f"The name {name[:40]!r}… has {len(name)} characters.", hint=f"Use {LONGEST_NAME} at most."
        )
    return SEPARATOR.join(parts)


def known_id(name: str, ids: Container[str]) -> str:
    """The id of an existing table, whatever other software called it; else as `object_id` gives it."""
    if isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        written = name.replace(".", SEPARATOR)
        if written in ids and not written.startswith("__"):
            return written
    return object_id(name)


def _check_part(part: str, name: str) -> None:
    shown = name if len(name) <= LONGEST_NAME else name[:40] + "…"
    if not _PART.fullmatch(part) or part.startswith("__") or part != part.strip():
        raise InvalidInputError(
            f"{shown!r} cannot be the name of a table.",
            hint="Use letters, digits, _ and -, with a dot between namespace and table; names with __ in front are "
            "the lake's own.",
        )
    if len(part) > LONGEST_PART:
        raise InvalidInputError(
            f"A part of the name {shown!r} has {len(part)} characters.", hint=f"Use {LONGEST_PART} at most."
        )


def shown(object_id: str) -> str:
    """The name as people write it."""
    return object_id.replace(SEPARATOR, ".")


def parents(object_id: str) -> list[str]:
    """The namespaces that it is in, outermost first."""
    parts = object_id.split(SEPARATOR)
    return [SEPARATOR.join(parts[:count]) for count in range(1, len(parts))]


def folder_name(object_id: str) -> str:
    """A folder name for it that every file system and object store accepts."""
    return re.sub(r"[^A-Za-z0-9_\-]", "_", object_id)


def no_table(object_id: str, state: LakeState) -> NotFoundError:
    """The error for a table that does not exist."""
    names = [shown(row.object_id) for row in state.tables()]
    known = f"It has {', '.join(names[:10])}{', …' if len(names) > 10 else ''}." if names else "It has no table yet."
    return NotFoundError(
        f"The lake has no table {shown(object_id)!r} at version {state.version}.",
        table=shown(object_id),
        hint=f"{known} create_table() makes one.",
    )


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

    def changes(self, published: Collection[str]) -> tuple[dict[str, Row | None], frozenset[str]]:
        """The rows that change without a new version of their tables (`published` are those that get one), and the
        names of the base whose tables do not have them any more.
        """
        rows: dict[str, Row | None] = {}
        leaving: set[str] = set()
        for key, named in self._changed.items():
            if self._base.table(key) is not None and (named is None or named.was != key):
                leaving.add(key)
                if named is None:
                    rows[key] = None
        for key, named in self._changed.items():
            if named is not None and named.was not in (None, key) and key not in published:
                rows[key] = named.row
        return rows, frozenset(leaving)


def not_written(uri: str, location: str, row: Row) -> NotFoundError:
    name = shown(row.object_id)
    if row.moment_ns is None:
        return NotFoundError(
            f"The lake lists table {name!r}, but its folder {location} has no version.",
            table=uri,
            hint="Another software declared it and has not written it yet; drop it, or write it there.",
        )
    return NotFoundError(
        f"The lake lists table {name!r}, but its folder {location} had no version yet at the time of this snapshot.",
        table=uri,
        hint="Open a newer version of the lake; inside a transaction, begin a new one.",
    )
