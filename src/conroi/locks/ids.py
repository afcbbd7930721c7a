"""Lock ids: the id of each table's insert lock is generated once, stored in the table's row, and cached.

The cache is keyed by the table's id and folder, not by its name: a table that is dropped and created again under its
name is another table with another lock, and so is the same table on another branch.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from conroi.catalog.catalog import Catalog, no_table
from conroi.catalog.names import shown
from conroi.catalog.publishing import Order, Publishing
from conroi.catalog.records import Notes
from conroi.catalog.rows import Row, new_lock_id
from conroi.catalog.state import LakeState
from conroi.errors import RetryableConflict


class LockIds:
    """The lock ids of one lake."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[tuple[str, str | None], int] = {}
        self._guard = threading.Lock()
        self.lookups = 0
        """Number of cache misses."""

    def of(self, row: Row) -> int:
        """The lock id of this table; generated if it has none."""
        with self._guard:
            known = self._known.get((row.incarnation, row.location))
        if known is not None and row.lock in (None, known):
            return known
        self.lookups += 1
        found = row.lock
        if found is None:
            found = self._registered(row)
        with self._guard:
            self._known[row.incarnation, row.location] = found
        return found

    def _registered(self, row: Row) -> int:
        """Publish an id for the table, unless it has one; of concurrent callers exactly one succeeds."""
        while True:
            state = self._catalog.state()
            now = state.table(row.object_id)
            if now is None or now.incarnation != row.incarnation:
                raise no_table(row.object_id, state)
            if now.lock is not None:
                return now.lock
            _register(self._catalog, state, [now])

    def backfill(self) -> list[str]:
        """Give every table of the lake without a lock id one, in one publication; returns their names."""
        while True:
            state = self._catalog.state()
            rows = [row for row in state.tables() if row.lock is None]
            if not rows or _register(self._catalog, state, rows):
                return [shown(row.object_id) for row in rows]


def _register(catalog: Catalog, state: LakeState, rows: list[Row]) -> bool:
    notes = Notes(f"lock ids for {', '.join(shown(row.object_id) for row in rows[:5])}{' …' if rows[5:] else ''}")
    amendments = [Registration(row.object_id, row.incarnation, new_lock_id(catalog.environment)) for row in rows]
    try:
        Publishing(catalog, Order(state, amendments=amendments, notes=notes)).run()
    except RetryableConflict:
        return False
    return True


@dataclass(frozen=True)
class Registration:
    """A lock id for a table that has none at the time of the publication."""

    object_id: str
    incarnation: str
    lock: int

    def check(self, row: Row | None) -> None:
        if row is None or row.incarnation != self.incarnation or row.lock is not None:
            raise RetryableConflict(
                "A concurrent worker was first to give the table its lock id, or it no longer exists.",
                table=shown(self.object_id),
                hint="Look at the table again.",
            )

    def amended(self, row: Row) -> Row:
        return row.with_lock(self.lock)
