"""Storage of one table of a lake: its newest version is the one that the lake pins, and its commits are published."""

from __future__ import annotations

from dataclasses import dataclass, replace

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import shown
from conroi.catalog.participant import PublishRequest, TableChange
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import Row
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.commit.change import Change
from conroi.commit.table_commit import ManagedStorage
from conroi.environment import LONG_AGO, Moment
from conroi.errors import InvalidInputError, NotFoundError
from conroi.format.naming import ManifestNaming
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.versions.folder import ManifestRef


class LakeVersions:
    """Version store of one table of a lake: the newest version is the one that the lake pins."""

    def __init__(self, catalog: Catalog, opened: Row) -> None:
        self._catalog = catalog
        self._opened = opened

    def row(self) -> Row | None:
        """The current row of the table; None if it was dropped.

        If the table continues in another folder (after a merge on a branch), this is still the history that was opened.
        """
        row = self._catalog.state().table(self._opened.object_id)
        if row is None or row.incarnation != self._opened.incarnation:
            return None
        return row if row.continues(self._opened) else self._opened

    def latest(self) -> ManifestRef | None:
        row = self.row()
        return None if row is None else self._catalog.located(row)

    def locate(self, version: int) -> ManifestRef | None:
        row = self.row()
        if row is None:
            return None
        newest = self._catalog.located(row)
        if version == newest.version:
            return newest
        if version > newest.version and version < 1 << 63:
            return None
        return self._catalog.folder_of(row).locate(version)

    def all(self) -> list[ManifestRef]:
        row = self.row()
        if row is None:
            return []
        newest = self._catalog.located(row)
        found = [each for each in self._catalog.folder_of(row).all() if each.version < newest.version]
        return [*found, newest]

    def require_conditions(self, path: str, data: bytes) -> None:
        """The numbers of detached versions are random: nothing can be overwritten."""

    def put(self, version: int, naming: ManifestNaming, data: bytes) -> ManifestRef:
        """Only detached versions are put by themselves; all others are published with the lake."""
        row = self.row()
        if row is None:
            raise NotFoundError(
                f"The table {shown(self._opened.object_id)!r} was dropped.",
                hint="lake.tables() lists the tables.",
            )
        return self._catalog.folder_of(row).put(version, naming, data)

    def confirm(self, located: ManifestRef, since: Moment) -> None:
        """Nothing to confirm: only detached versions are put here, and their numbers are unique."""

    def saw(self, located: ManifestRef, at: Moment = LONG_AGO) -> None:
        """The lake itself knows what is newest."""


@dataclass(frozen=True)
class LakeTableStorage(ManagedStorage):
    """The storage of one table of a lake: its versions are the ones that the lake pins."""

    catalog: Catalog | None = None
    object_id: str = ""
    incarnation: str = ""
    past: int | None = None
    """The version of the lake, if this is a table of a past lake version."""

    def refuse_past(self) -> None:
        if self.past is not None:
            raise InvalidInputError(
                f"This is the table {self.name!r} of the lake as it was at version {self.past}; it can only be read.",
                table=self.name,
                hint="Write to lake[name], or to table.latest().",
            )

    def current(self) -> LakeTableStorage:
        return replace(self, past=None) if self.past is not None else self

    @property
    def name(self) -> str:
        return shown(self.object_id)

    @property
    def may_branch(self) -> bool:
        return self.catalog is not None and self.catalog.main.manifest is not None

    def head(self) -> Snapshot:
        assert self.catalog is not None
        return self.catalog.newest(self.row)[1]

    def newest(self, known: Snapshot) -> Snapshot:
        head = self.head()
        return known if head.version == known.version and head.manifest == known.manifest else head

    def holding(self, snapshot: Snapshot) -> TableStorage:
        home = snapshot.home
        if home is None or home is self.objects or self.catalog is None:
            return self
        row = self.catalog.known_state().table(self.object_id)
        versions = self.versions if row is None else LakeVersions(self.catalog, row)
        return replace(self, objects=home, versions=versions)

    def committing(self, change: Change, retries: int) -> Publishing:
        assert self.catalog is not None
        base = self.catalog.known_state()
        wanted = TableChange(self.object_id, self.object_id, self, change, self.row(base))
        notes = CommitMetadata.of(change.properties)
        return Publishing(self.catalog, PublishRequest(base, [wanted], notes=notes, retries=retries))

    def row(self, state: LakeState) -> Row:
        """The row of this very table; NotFoundError if it was dropped, even if another table has its name now."""
        row = state.table(self.object_id)
        if row is None or row.incarnation != self.incarnation:
            raise NotFoundError(
                f"The table {shown(self.object_id)!r} was dropped.",
                table=shown(self.object_id),
                hint="lake.tables() lists the tables; lake[name] opens the table that has this name now.",
            )
        return row


def table_files(catalog: Catalog, row: Row) -> LakeTableStorage:
    """The storage of a table, through the lake."""
    return LakeTableStorage(
        objects=catalog.objects_of(row),
        versions=LakeVersions(catalog, row),
        environment=catalog.environment,
        catalog=catalog,
        object_id=row.object_id,
        incarnation=row.incarnation,
    )
