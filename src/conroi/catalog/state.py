"""Catalog state: the rows of the lake at one version, and the position of each row in `__manifest`.

A state is an immutable value. The next one is computed from the records in the commit that created it, so a reader that
follows the history does not read the table itself again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyroaring import BitMap

from conroi.catalog.layout import Layout, Place
from conroi.catalog.rows import Row
from conroi.errors import CorruptionError

Changes = Mapping[str, Row | None]
"""New rows by object id; None removes one."""
SETTINGS = "__settings"
"""The row of the lake's settings, in a database; a lake in its own folder has them in the config of `__manifest`."""


@dataclass(frozen=True)
class LakeState:
    """All rows of one version of `__manifest`."""

    version: int
    timestamp_ns: int
    rows: Mapping[str, Row]
    places: Mapping[str, Place] = field(default_factory=dict[str, Place])
    dead: Mapping[int, BitMap] = field(default_factory=dict[int, BitMap])
    """The deleted rows of each other fragment."""
    physical: Mapping[int, int] = field(default_factory=dict[int, int])
    """How many rows each fragment has, deleted ones included."""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """The settings of `__manifest`."""

    def setting(self, name: str) -> str | None:
        """A setting that the lake has stored about itself."""
        row = self.rows.get(SETTINGS)
        return self.config.get(name) if row is None else row.notes.get(name)

    @property
    def small(self) -> int | None:
        """The fragment that is written anew with every publication, as long as it is small: the newest one.

        All readers of the same fragments must choose the same one, whether they read incrementally or in full.
        """
        return max(self.physical, default=None)

    def table(self, object_id: str) -> Row | None:
        """The row of a table of this id."""
        row = self.rows.get(object_id)
        return row if row is not None and row.is_table else None

    def tables(self) -> list[Row]:
        """All tables, by id."""
        return [self.rows[key] for key in sorted(self.rows) if self.rows[key].is_table]

    @cached_property
    def unpinned(self) -> frozenset[str]:
        """Tables that other software listed and the lake never published: their rows pin no version."""
        return frozenset(key for key, row in self.rows.items() if _is_unpinned(row))

    def seen_at(self, moment_ns: int) -> LakeState:
        """The state as a snapshot: tables without a pin are read as of this time."""
        if not self.unpinned:
            return self
        seen = {key: replace(self.rows[key], moment_ns=moment_ns) for key in self.unpinned}
        return replace(self, rows={**self.rows, **seen})

    def with_rows(self, rows: Mapping[str, Row]) -> LakeState:
        """The state with these rows in place of its own of the same ids."""
        return replace(self, rows={**self.rows, **rows}) if rows else self

    def changed(self, changes: Changes) -> dict[str, Row]:
        """The rows after these changes."""
        rows = dict(self.rows)
        for object_id, row in changes.items():
            if row is None:
                rows.pop(object_id, None)
            else:
                rows[object_id] = row
        return rows

    def following(
        self, version: int, timestamp_ns: int, changes: Changes, layout: Layout, new_fragment: int
    ) -> LakeState:
        """The state after a publication with this layout; its rows are in `new_fragment`."""
        rows = self.changed(changes)
        places = dict(self.places)
        physical = dict(self.physical)
        dead = dict(self.dead)
        for object_id in changes:
            places.pop(object_id, None)
        for fragment in layout.removed:
            physical.pop(fragment, None)
            dead.pop(fragment, None)
        for fragment, offsets in layout.deleted.items():
            dead[fragment] = dead.get(fragment, BitMap()) | offsets
        places.update(written_places(layout.written, new_fragment))
        if layout.written:
            physical[new_fragment] = len(layout.written)
        state = LakeState(version, timestamp_ns, rows, places, dead, physical, self.config)
        if "unpinned" in self.__dict__:  # follows from what changed, so that 10,000 rows are looked at once
            new = {key for key, row in changes.items() if row is not None and _is_unpinned(row)}
            state.__dict__["unpinned"] = (self.unpinned - changes.keys()) | new
        return state


def _is_unpinned(row: Row) -> bool:
    try:
        return row.is_table and row.pin is None
    except CorruptionError:  # raised when that table is opened; the others are fine
        return False


def written_places(object_ids: Iterable[str], fragment: int) -> dict[str, Place]:
    """The positions of rows in a fragment of ours: in the order of their ids."""
    return {object_id: (fragment, offset) for offset, object_id in enumerate(object_ids)}
