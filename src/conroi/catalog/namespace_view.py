"""Namespace view: the lake that requests are served from, either the newest state or one snapshot."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from lance_namespace import PermissionDeniedError

from conroi.catalog.catalog import Catalog, LakeTableFiles, location_of, table_files
from conroi.catalog.expectations import Expectation
from conroi.catalog.forking import fork
from conroi.catalog.lance_tags import protection_of
from conroi.catalog.names import parents
from conroi.catalog.namespace_errors import no_namespace, no_table
from conroi.catalog.part import Wanted
from conroi.catalog.publishing import LakePublisher, Order, Outcome, Publishing
from conroi.catalog.records import Notes
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.errors import ConflictError


class LakeLike(Protocol):
    """A lake: `conroi.connect(uri)`, or `lake.at(version)`."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def pinned(self) -> LakeState | None: ...


@dataclass(frozen=True)
class View:
    """A lake, or a snapshot of it."""

    catalog: Catalog
    pinned: LakeState | None = None

    def state(self) -> LakeState:
        """The state that is read."""
        return self.pinned or self.catalog.state()

    def newest(self) -> LakeState:
        """The state that is written to; refused for a snapshot."""
        if self.pinned is not None:
            raise PermissionDeniedError(
                f"This is the lake as it was at version {self.pinned.version}; it can only be read. "
                "Hint: use ConroiNamespace(lake) with the lake itself."
            )
        return self.catalog.state()

    # ------------------------------------------------------------------------ rows

    def row(self, object_id: str, state: LakeState) -> Row:
        """The row of a table; the error of a namespace if there is none."""
        row = state.table(object_id)
        if row is None:
            self.check_parents(object_id, state)
            raise no_table(object_id)
        return row

    def check_parents(self, object_id: str, state: LakeState) -> None:
        """Its parent namespaces must exist."""
        for parent in parents(object_id):
            if not is_namespace(parent, state):
                raise no_namespace(parent)

    def files(self, row: Row) -> LakeTableFiles:
        return table_files(self.catalog, row, LakePublisher(self.catalog))

    def uri(self, row: Row) -> str:
        """The table's URI for pylance; on a branch, its manifest must exist there too."""
        if row.is_inherited:
            fork(self.catalog, row, self.catalog.snapshot(row))
        protection = protection_of(self.catalog)
        if protection is not None:
            protection.opened(location_of(row))
        return self.catalog.objects_of(row).pylance_uri()

    def storage_options(self, row: Row) -> dict[str, str] | None:
        """The storage options that pylance needs."""
        return dict(self.catalog.objects_of(row).storage_options) or None

    # ------------------------------------------------------------------------ publishing

    @contextmanager
    def in_next_place(self, object_ids: Sequence[str]) -> Generator[None]:
        """A request for new versions; if it is refused, the next versions are briefly reserved for its client.

        A refused client must list, read, rebase, stage and send again, while a busy conroi writer needs milliseconds.
        """
        try:
            yield
        except ConflictError:
            self.catalog.reservations.reserve(object_ids)
            raise
        self.catalog.reservations.used(object_ids)

    def publish(
        self,
        base: LakeState,
        message: str | None,
        *,
        rows: Mapping[str, Row | None] | None = None,
        tables: Sequence[Wanted] = (),
        expects: Sequence[Expectation] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Publish rows and tables, all or nothing."""
        notes = Notes(message, properties=properties or {})
        order = Order(base, tables, rows=rows or {}, expects=expects, notes=notes)
        return Publishing(self.catalog, order).run()


def is_namespace(object_id: str, state: LakeState) -> bool:
    row = state.rows.get(object_id)
    return row is not None and not row.is_table
