"""Reference to a state of a lake: a branch that moves on, or one version of it; resolves names of such states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from conroi.catalog.branches import BranchedLake
from conroi.catalog.catalog import Catalog
from conroi.catalog.lance_tags import LakeTags, protection_of
from conroi.catalog.names import shown
from conroi.catalog.rows import Row, table_of
from conroi.catalog.state import LakeState
from conroi.catalog.tables import LakeTableStorage, table_files
from conroi.data.table_version import TableVersion
from conroi.errors import InvalidInputError, NotFoundError, UnsupportedError, about
from conroi.inserts import locks_of
from conroi.snapshots.branch_names import MAIN_BRANCH
from conroi.snapshots.snapshot import TableStorage
from conroi.snapshots.tags import Tags


@dataclass(frozen=True)
class LakeRef:
    """A lake on one of its branches; with `pinned`, at one version."""

    catalog: Catalog
    manifest: TableStorage | None = None
    """The storage of the branch's `__manifest`; None if a store has the history."""
    pinned: LakeState | None = None

    def state(self) -> LakeState:
        """The state that is read."""
        return self.pinned or self.catalog.state()

    def storage(self, row: Row) -> LakeTableStorage:
        """The storage of a table of the lake, which commits through the lake."""
        return table_files(self.catalog, row)

    def storage_in(self, folder: str) -> LakeTableStorage | None:
        """The storage of the table in this folder of the lake; None if there is none."""
        for row in self.state().tables():
            if row.location is not None and table_of(row.location) == folder:
                return self.storage(row)
        return None

    # ------------------------------------------------------------------------ branches and tags

    def branched(self) -> BranchedLake:
        """The main branch of the lake, which has the branches and tags of all."""
        main = self.catalog.main
        if main.manifest is None:
            raise UnsupportedError(
                "A lake that keeps its history in a store has no branches and no tags.",
                table=self.catalog.uri,
                hint="Use a lake without store=.",
            )
        return BranchedLake(main, main.manifest)

    def branch(self, name: str) -> LakeRef:
        """Another branch of the lake."""
        branched = self.branched()
        opened = _opened(*branched.opened(branched.names.get(name)))
        opened.catalog.state()  # NotFoundError if it was deleted, and not at some later call
        return opened

    @property
    def tags(self) -> Tags:
        """Tags: names for versions of the lake, on any branch; a new one names a version of this branch."""
        branched = self.branched()
        files = branched.manifest if self.manifest is None else self.manifest
        tags = LakeTags(files, self.state().version, home=branched.manifest.objects, branch=self.catalog.branch)
        tags.protection = protection_of(self.catalog)
        return tags

    # ------------------------------------------------------------------------ versions

    def current(self) -> LakeRef:
        """The newest version, with all tables at their newest versions."""
        return self if self.pinned is not None else replace(self, pinned=self.catalog.current())

    def at(self, version: int | None = None, tag: str | None = None, as_of: datetime | str | None = None) -> LakeRef:
        """The lake as of a version, a tag, or a time."""
        given = [value for value in (version, tag, as_of) if value is not None]
        if len(given) != 1:
            raise InvalidInputError("Say which version of the lake.", hint="Give one of version, tag and as_of.")
        if tag is not None:
            return self._at_tag(tag)
        if as_of is not None:
            return replace(self, pinned=self.catalog.as_of(as_of))
        assert version is not None
        return replace(self, pinned=self.catalog.at(version))

    def _at_tag(self, name: str) -> LakeRef:
        """The lake at the version and branch of the tag."""
        tag = self.tags.get(name)
        branched = self.branched()
        branches = {branch.lance_name: branch for branch in (MAIN_BRANCH, *branched.names.all())}
        if tag.branch not in branches:
            raise NotFoundError(
                f"The tag {name!r} names version {tag.version} of a branch that was deleted.",
                table=self.catalog.uri,
                hint="Delete the tag; what it named can be collected.",
            )
        opened = _opened(*branched.opened(branches[tag.branch]))
        return replace(opened, pinned=opened.catalog.at(tag.version))

    def resolve(self, of: int | str) -> LakeRef:
        """The state of a branch, a tag or a version of this lake; a name that is both is the branch."""
        if isinstance(of, int) and not isinstance(of, bool):
            return self.at(of)
        if not isinstance(of, str):
            raise InvalidInputError(f"{of!r} names no state of the lake.", hint="Give a branch, a tag or a version.")
        try:
            return self.branch(of)
        except NotFoundError as missing:
            try:
                return self._at_tag(of)
            except NotFoundError:
                raise NotFoundError(
                    f"The lake has no branch and no tag {of!r}.", table=self.catalog.uri, hint=missing.hint
                ) from None


def _opened(catalog: Catalog, files: TableStorage) -> LakeRef:
    if catalog is not catalog.main and catalog.locks is None:
        catalog.locks = locks_of(catalog.main).beside(catalog)
    return LakeRef(catalog, files)


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
