"""The lake that a namespace reads and writes, at one of its versions; where a version of a table is; idempotency of
repeated requests.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from lance_namespace import PermissionDeniedError

from conroi.catalog.catalog import Catalog
from conroi.catalog.external_participant import current_version, make_final
from conroi.catalog.lance_tags import protection_of
from conroi.catalog.names import parents, shown
from conroi.catalog.participant import PublishRequest, PublishResult, TableChange
from conroi.catalog.preconditions import Expectation
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import Row
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.catalog.store import Published
from conroi.catalog.tables import LakeTableStorage, table_files
from conroi.errors import CommitStateUnknown, ConflictError
from conroi.namespace.requests import no_namespace, no_table, no_version
from conroi.versions.folder import ManifestRef


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

    def files(self, row: Row) -> LakeTableStorage:
        return table_files(self.catalog, row)

    def uri(self, row: Row) -> str:
        """The table's URI for pylance; on a branch, its manifest must exist there too."""
        if row.is_inherited:
            self.catalog.fork(row, self.catalog.snapshot(row))
        protection = protection_of(self.catalog)
        if protection is not None:
            protection.opened(row.folder)
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
        tables: Sequence[TableChange] = (),
        expects: Sequence[Expectation] = (),
        properties: Mapping[str, str] | None = None,
    ) -> PublishResult:
        """Publish rows and tables, all or nothing."""
        notes = CommitMetadata(message, properties=properties or {})
        order = PublishRequest(base, tables, rows=rows or {}, expects=expects, notes=notes)
        return Publishing(self.catalog, order).run()


def is_namespace(object_id: str, state: LakeState) -> bool:
    row = state.rows.get(object_id)
    return row is not None and not row.is_table


class Asked(Protocol):
    """A version that a client asks for, and the key of the manifest that it staged."""

    @property
    def object_id(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def key(self) -> str: ...


def published_before(view: View, state: LakeState, entries: Sequence[Asked]) -> Published | None:
    """The publication of these very manifests, all of them; None if there was none.

    CommitStateUnknown if the lake's history does not go back far enough to tell.
    """
    if not any(_may_be_published(view, state, entry) for entry in entries):
        return None
    oldest = state.version + 1
    for published in view.catalog.heads.history(state.version, None):
        oldest = published.version
        rows = [row for row in (published.changes or {}).values() if row is not None]
        if all(any(is_published_as(row, entry) for row in rows) for entry in entries):
            return published
        if any(_is_at_or_before(row, entry) for row in rows for entry in entries):
            return None  # another manifest became that version
    if oldest <= 1:
        return None
    first = entries[0]
    raise CommitStateUnknown(
        f"Version {first.version} of table {shown(first.object_id)!r} was published before version {oldest} of the "
        "lake, the oldest that is there; it cannot be told whether it was this one.",
        table=shown(first.object_id),
        version=first.version,
        hint="Look for the rows in the table before you write them again.",
    )


def _may_be_published(view: View, state: LakeState, entry: Asked) -> bool:
    """Whether the table has that version, or is another one now; else the request is new."""
    row = state.table(entry.object_id)
    if row is None:
        return entry.version > 1  # only declared in the same batch, or dropped
    is_here = row.location is not None and f"/{row.location}/" in f"/{entry.key.lstrip('/')}"
    return not is_here or current_version(view.catalog, row) >= entry.version


def is_published_as(row: Row, entry: Asked) -> bool:
    """Whether the row has the manifest that is asked for."""
    pin, key = row.pin, f"/{entry.key.lstrip('/')}"
    return pin is not None and pin.version == entry.version and key.endswith(f"/{row.location}/{pin.manifest}")


def _is_at_or_before(row: Row, entry: Asked) -> bool:
    """Whether this publication is of the same folder, and not after the version that is asked for."""
    is_same = row.location is not None and f"/{row.location}/" in f"/{entry.key.lstrip('/')}"
    return is_same and row.pin is not None and row.pin.version <= entry.version


def located(view: View, row: Row, version: int | None) -> ManifestRef:
    """Where a version is, under its final name; the newest if none is named."""
    current = current_version(view.catalog, row)
    wanted = current if version is None else version
    if not 0 < wanted <= current:
        raise no_version(row.object_id, version)
    if row.pin is not None and wanted == current:
        return make_final(view.catalog, row)
    found = view.catalog.folder_of(row).locate(wanted)
    if found is None:
        raise no_version(row.object_id, version)
    return found
