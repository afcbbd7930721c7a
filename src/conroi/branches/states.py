"""Lake states for diff and merge: their tables by identity, each at its pinned version."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from conroi.branches.lake_ref import LakeRef
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import shown
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.catalog.tables import table_files
from conroi.data.table_version import TableVersion
from conroi.errors import about

_OWN = "__"
"""Rows whose names begin with this are the lake's own."""


@dataclass(frozen=True)
class TableAtState:
    """A table at the version that a state pins."""

    side: Side
    row: Row

    @property
    def name(self) -> str:
        """Its id in the state."""
        return self.row.object_id

    @cached_property
    def pinned(self) -> TableVersion:
        with about(shown(self.row.object_id)):
            catalog = self.side.catalog
            files = table_files(catalog, self.row)
            return TableVersion(files, catalog.snapshot(self.row))

    def is_same_version(self, other: TableAtState) -> bool:
        """Whether two branches have the very same version: transaction ids are unique."""
        one, two = self.row.pin, other.row.pin
        return one is not None and two is not None and (one.version, one.transaction) == (two.version, two.transaction)


@dataclass(frozen=True)
class Side:
    """One state of a lake, with access to its tables."""

    catalog: Catalog
    state: LakeState

    @staticmethod
    def of(lake: LakeRef) -> Side:
        return Side(lake.catalog, lake.pinned or lake.catalog.current())

    @property
    def label(self) -> str:
        return f"{self.catalog.identity.name}@{self.state.version}"

    @cached_property
    def tables(self) -> dict[str, TableAtState]:
        """By identity, whatever their names."""
        return {row.incarnation: TableAtState(self, row) for row in self.state.tables()}

    @cached_property
    def namespaces(self) -> dict[str, Row]:
        """By name, which is the identity of a namespace."""
        rows = [row for row in self.state.rows.values() if not row.is_table]
        return {f"namespace {row.object_id}": row for row in rows if not row.object_id.startswith(_OWN)}
