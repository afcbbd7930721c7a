"""Catalog access for one lake: its newest state, the storage of its tables, and their pinned versions."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from conroi.catalog.names import no_table, not_written, shown
from conroi.catalog.rows import Line, Row, is_own, table_of
from conroi.catalog.state import LakeState, Member
from conroi.catalog.store import CatalogStore, GroupStore, Published, Seen
from conroi.commit.fairness import Reservations
from conroi.environment import Environment
from conroi.errors import (
    ConroiError,
    NotFoundError,
    StoreError,
    UnsupportedError,
    VersionExpired,
)
from conroi.format.fields import has_dictionaries
from conroi.format.naming import ManifestNaming, check_relative_path
from conroi.history import newest_at
from conroi.snapshots.branch_names import MAIN_BRANCH, Branch, write_lance_ref
from conroi.snapshots.branch_storage import Origin, forked_objects, write_fork
from conroi.snapshots.pin import Pin, finalize, load_pinned, pin_of
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_snapshot, load_transaction
from conroi.storage import open_objects
from conroi.storage.objects import Objects, reach_of
from conroi.storage.parallel import LeaderQueue, ProcessLock, Running, ThreadQueue
from conroi.versions.folder import FolderVersions, ManifestRef

_log = logging.getLogger(__name__)

LEAVE_TO_PUBLISHER_NS = 1_000_000_000
"""Nanoseconds. A reader leaves a version published this recently to its publisher to finalize."""
LONGEST_TURN_S = 2.0
"""Maximum wait of a thread for another one that is publishing, in seconds."""
MOST_COMMITS = 128
"""Maximum number of versions whose commits are cached."""
MOST_SNAPSHOTS = 512
"""Maximum number of cached table manifests."""

SnapshotKey = tuple[Line, int, str]
Wrap = Callable[[Objects], Objects]
"""Wraps an instrument around the files of a table."""


def unwrapped(objects: Objects) -> Objects:
    """The files as they are."""
    return objects


class Catalog:
    """The tables of one lake. Every method may be called from any thread."""

    def __init__(
        self,
        root: Objects,
        heads: CatalogStore,
        environment: Environment,
        *,
        storage_options: Mapping[str, str] | None = None,
        durable: bool = False,
        wrap: Wrap = unwrapped,
        branch: str | None = None,
    ) -> None:
        self.root = root
        self.uri = root.root
        self.branch = branch
        """The name of the Lance branch, if this is a branch of the lake."""
        self.identity: Branch = MAIN_BRANCH
        self.main: Catalog = self
        """The main branch of the lake."""
        self.manifest: TableStorage | None = None
        """Of the main branch: the storage of `__manifest`; None if a store has the history."""
        self.branches: dict[str, tuple[Catalog, TableStorage]] = {}
        """Of the main branch: those others that were opened, by id."""
        self.heads = heads
        self.environment = environment
        self._storage_options = storage_options
        self._durable = durable
        self.place = root.root, storage_options, durable
        """Location of the lake, and its connection settings."""
        self._wrap = wrap
        self._state: LakeState | None = None
        self._commits: OrderedDict[int, Callable[[], Sequence[Published]]] = OrderedDict()
        """The commits that were seen last, by version."""
        self._objects: dict[str, Objects] = {}
        """Folders of the lake that were opened."""
        self._lines: dict[Line, Objects] = {}
        """The files of tables: on a branch those of their own folder, with the versions from before the branch."""
        self._folders: dict[Line, FolderVersions] = {}
        self._snapshots: OrderedDict[SnapshotKey, Snapshot] = OrderedDict()
        self.finalizing: dict[SnapshotKey, Running[bool]] = {}
        """Published manifests that are being finalized."""
        self.locks: object | None = None
        """The insert locks of the lake, created at first use: see conroi.inserts."""
        self.protection: object | None = None
        """Of its tables from Lance's clean-up, created at first use: see conroi.catalog.lance_tags."""
        self._lock = ProcessLock()
        self.queue = ThreadQueue(LONGEST_TURN_S)
        """Serializes the publications of threads to the same tables: in a race all attempts but one are wasted."""
        self.publishers: LeaderQueue[Any] = LeaderQueue()
        """Publications of threads that are ready to be put: see conroi.catalog.group_commit."""
        self.group_store = heads if isinstance(heads, GroupStore) else None
        """The store, if it can have several publications in one version."""
        self.reservations = Reservations(root, environment)
        """Reservations of namespace clients that were refused."""

    # ------------------------------------------------------------------------ states

    def state(self) -> LakeState:
        """The newest state."""
        return self.refresh(self._state).state

    def known_state(self) -> LakeState:
        """The newest state seen so far; looked up only if there is none."""
        return self._state or self.state()

    def name_for_errors(self, table: str | None) -> str | None:
        """The user's name of the table in an error: its name in the lake, not its folder.

        None for the lake's own table, which users never see, and if no table is named.
        """
        if table is None or not table.startswith(f"{self.uri}/"):
            return table
        folder = table.removeprefix(f"{self.uri}/").strip("/")
        if folder.partition("/")[0].startswith("__"):
            return None
        for row in () if self._state is None else self._state.tables():
            home = (row.location or "").strip("/")
            if home and (folder == home or folder.startswith(f"{home}/tree/")):
                return shown(row.object_id)
        return table

    def refresh(self, known: LakeState | None) -> Seen:
        """The newest state, and the commits since `known`. Threads look concurrently."""
        remembered = None
        if known is not None and known is not self._state:
            with self._lock:
                remembered = self._remembered(known)
        seen = self.heads.newest(known if remembered is None else remembered.state)
        self.saw(seen.state, seen.commits)
        return seen if remembered is None else replace(seen, commits=(*remembered.commits, *seen.commits))

    def remembered(self, known: LakeState) -> Seen:
        """The newest state that this process knows, and the commits since `known`; looked up only if those are not
        known.
        """
        with self._lock:
            remembered = self._remembered(known)
        if remembered is None:
            return self.refresh(known)
        seen = remembered if self.group_store is None else self.group_store.follow_known(remembered.state)
        self.saw(seen.state, seen.commits)
        return replace(seen, commits=(*remembered.commits, *seen.commits))

    def _remembered(self, known: LakeState) -> Seen | None:
        newest = self._state
        commits = None if newest is None else self._between(known.version, newest.version)
        return None if newest is None or commits is None else Seen(newest, commits)

    def remembered_between(self, known: LakeState, state: LakeState) -> list[Published] | None:
        """The commits between two states that this process has seen; None if it does not know all of them."""
        with self._lock:
            return self._between(known.version, state.version)

    def _between(self, known: int, newest: int) -> list[Published] | None:
        versions = range(known + 1, newest + 1)
        if newest < known or not all(version in self._commits for version in versions):
            return None
        return [each for version in versions for each in self._commits[version]()]

    def saw(self, state: LakeState, commits: Sequence[Published] = (), members: Sequence[Member] = ()) -> None:
        """Cache a state, if it is the newest, and the commits that led to it, or those of its version."""
        with self._lock:
            found: dict[int, list[Published]] = {}
            for each in commits:
                found.setdefault(each.version, []).append(each)
            for version, some in found.items():
                self._commits[version] = partial(list, some)
            if members:
                self._commits[state.version] = partial(_published, members, state.version, state.timestamp_ns)
            while len(self._commits) > MOST_COMMITS:
                self._commits.popitem(last=False)
            if self._state is None or state.version > self._state.version:
                self._state = state

    def at(self, version: int) -> LakeState:
        """An older state; NotFoundError if it never existed, or was collected."""
        known = self._state
        return _past(known if known is not None and known.version == version else self.heads.at(version))

    def as_of(self, moment: datetime | str) -> LakeState:
        """The newest state that is not newer than this."""
        return _past(self.heads.as_of(moment))

    def current(self) -> LakeState:
        """The newest state as a snapshot: later commits are not visible in it, not even out-of-band ones."""
        state = self.state()
        return state.seen_at(self.environment.now_ns())

    # ------------------------------------------------------------------------ tables

    def row(self, object_id: str, state: LakeState) -> Row:
        """The row of a table."""
        row = state.table(object_id)
        if row is None:
            raise no_table(object_id, state)
        return row

    def objects(self, location: str) -> Objects:
        """The files in this folder of the lake, and nothing else; opened once."""
        with self._lock:
            found = self._objects.get(location)
            if found is None:
                found = self._objects[location] = self.opened(location)
            return found

    def objects_of(self, row: Row) -> Objects:
        """The files of a table: on a branch with the versions from before it, as this very row has them."""
        found = self._lines.get(row.line)
        return self._open_line(row.line) if found is None else found

    def _open_line(self, line: Line) -> Objects:
        location, lineage = line
        with self._lock:
            found = self._lines.get(line)
            if found is None:
                found = self.objects(location)
                if lineage and self.branch is not None:
                    origins = [Origin(self.objects(folder), bound) for folder, bound in lineage]
                    found = forked_objects(found, self.branch, origins)
                self._lines[line] = found
            return found

    def opened(self, location: str) -> Objects:
        """The files in this folder of the lake, and nothing else."""
        uri, reach = self._uri_of(location), reach_of(self.root)
        return self._wrap(open_objects(uri, self._storage_options, durable=self._durable, reach=reach))

    def beside(self, heads: CatalogStore, branch: str) -> Catalog:
        """A branch of this lake, in the same place and with the same settings."""
        return Catalog(
            self.root,
            heads,
            self.environment,
            storage_options=self._storage_options,
            durable=self._durable,
            wrap=self._wrap,
            branch=branch,
        )

    def _uri_of(self, location: str) -> str:
        check_relative_path(location)
        return f"{self.root.root}/{location}"

    def folder_of(self, row: Row) -> FolderVersions:
        """The versions of a table that have their final names: in its folder, and in those of its lineage."""
        with self._lock:
            if row.line not in self._folders:
                self._folders[row.line] = FolderVersions(self.objects_of(row), environment=self.environment)
            return self._folders[row.line]

    def snapshot(self, row: Row) -> Snapshot:
        """The version of the table that this row pins.

        A table that is not managed yet has none: in the current state it is the folder's newest version, in a snapshot
        of the past the one that was newest then.
        """
        if row.pin is None:
            found = self._unpinned(row)
            if found is None:
                raise not_written(self.uri, row.folder, row)
            return found
        key = snapshot_key(row, row.pin)
        with self._lock:
            known = self._snapshots.get(key)
            if known is not None:
                self._snapshots.move_to_end(key)
                return known
        loaded = self._completed(row, row.pin, load_pinned(self.objects_of(row), row.pin))
        if row.is_inherited and _is_looked_up(loaded):
            self._fork_to_read(row, loaded)
        return self.keep(row, row.pin, loaded)

    def _fork_to_read(self, row: Row, seen: Snapshot) -> None:
        """Create the branch folder of a table with indices at its first read: pylance looks for them in the manifest
        file.

        Best effort, since a reader may lack write permission: then it is read without its indices.
        """
        try:
            self.fork(row, seen)
        except StoreError as error:
            _log.debug("%s is not forked: %s", row.location, error)

    def fork(self, row: Row, seen: Snapshot) -> None:
        """Before the first version of a table on a branch: make the branch's folder a Lance branch of the table."""
        assert self.branch is not None
        if row.pin is None and not is_own(self.branch, row):
            raise UnsupportedError(
                f"The lake does not manage table {shown(row.object_id)!r} yet, so no branch can write it.",
                table=shown(row.object_id),
                hint="Change it once on the main branch, and make the branch again.",
            )
        if not row.lineage or seen.version > row.lineage[0][1]:
            return
        if seen.is_final:  # otherwise its finalization does it
            write_fork(self.objects_of(row), seen.located.path)
        table, parent = table_of(row.folder), row.lineage[0][0]
        is_branch = parent != table and table_of(parent) == table
        parent_branch = parent.rpartition("/")[2] if is_branch else None
        write_lance_ref(self.objects(table), self.branch, parent_branch, seen.version, self.environment)

    def newest(self, find: Callable[[LakeState], Row]) -> tuple[Row, Snapshot]:
        """A table of the newest state; looked up again if its version was collected between look-up and load."""
        row = find(self.state())
        while True:
            try:
                return row, self.snapshot(row)
            except VersionExpired:
                later = find(self.state())
                if later.pin == row.pin:
                    raise
                row = later

    def _completed(self, row: Row, pin: Pin, snapshot: Snapshot) -> Snapshot:
        """Finalize a published version that is not final yet, since its publisher may have crashed.

        Best effort: a reader may lack write permission. On object stores it is left to the publisher for a moment,
        unless pylance needs the file to read the columns.
        """
        if snapshot.is_final or (self._is_young(snapshot) and not has_dictionaries(snapshot.manifest.fields)):
            return snapshot
        try:
            finalize(self.objects_of(row), pin, self.environment)
        except ConroiError as error:
            _log.debug("version %d of %s stays unfinished: %s", pin.version, row.folder, error)
            return snapshot
        return replace(snapshot, located=pin.final, is_final=True)

    def _is_young(self, snapshot: Snapshot) -> bool:
        age_ns = self.environment.now_ns() - snapshot.timestamp_ns
        return not self.root.is_local and age_ns < LEAVE_TO_PUBLISHER_NS

    def located(self, row: Row) -> ManifestRef:
        """The location of the pinned manifest; a staged one may have been finalized since."""
        snapshot = self.snapshot(row)
        if snapshot.is_final or row.pin is None:
            return snapshot.located
        return self.keep(row, row.pin, load_pinned(self.objects_of(row), row.pin)).located

    def keep(self, row: Row, pin: Pin, snapshot: Snapshot) -> Snapshot:
        """Cache a manifest of this table, with the storage that it was read from."""
        key, found = snapshot_key(row, pin), replace(snapshot, home=self.objects_of(row))
        with self._lock:
            self._snapshots[key] = found
            self._snapshots.move_to_end(key)
            while len(self._snapshots) > MOST_SNAPSHOTS:
                self._snapshots.popitem(last=False)
        return found

    def is_final(self, row: Row, pin: Pin) -> bool:
        """Whether this process knows that the version has its final name."""
        known = self._snapshots.get(snapshot_key(row, pin))
        return known is not None and known.is_final

    def _unpinned(self, row: Row) -> Snapshot | None:
        """The version of a table without a pin; None if it is only declared, or was then."""
        folder, objects = self.folder_of(row), self.objects_of(row)
        if row.moment_ns is None:
            located = folder.latest()
            return None if located is None else load_snapshot(objects, located)
        found = folder.all()
        count, snapshot = newest_at(objects, found, row.moment_ns)
        # If the version after the one we found is not there, that one may have been the newest at the moment.
        oldest_unknown = 1 if snapshot is None else snapshot.version + 1
        if count < len(found) and found[count].version != oldest_unknown:
            raise NotFoundError(
                f"Which version table {shown(row.object_id)!r} had in this version of the lake is not known any more: "
                "the lake had not pinned it yet, and versions of that time were collected.",
                table=shown(row.object_id),
                version=oldest_unknown,
                hint="Open a newer version of the lake, or one of the table's own versions: lake.table(name, version).",
            )
        return snapshot

    def pinned(self, row: Row) -> Row:
        """The row with the version that it stands for; unchanged if it has one, or if the table is only declared."""
        if row.pin is not None:
            return row
        snapshot = self._unpinned(row)
        return row if snapshot is None else row.pinned_at(pin_of(self.objects_of(row), snapshot))

    def version_of(self, row: Row) -> int:
        """The version of a table at some state; 0 for one that is only declared."""
        if row.pin is not None:
            return row.pin.version
        snapshot = self._unpinned(row)
        return 0 if snapshot is None else snapshot.version

    def operations_between(self, row: Row, older: int, newer: int) -> Sequence[str]:
        """The operations between two versions of a table; an unreadable version counts as unknown."""
        names: list[str] = []
        for version in range(older + 1, newer + 1):
            try:
                snapshot = self.snapshot(row) if version == newer else self.final_version(row, version)
                transaction = load_transaction(self.objects_of(row), snapshot)
            except NotFoundError:
                return ["Unknown"]
            names.append("Unknown" if transaction is None else transaction.operation_name)
        return names

    def final_version(self, row: Row, version: int) -> Snapshot:
        """A version before the pinned one: those are all finalized."""
        naming = self.naming(row)
        return load_snapshot(self.objects_of(row), ManifestRef(version, naming.path(version), naming))

    def naming(self, row: Row) -> ManifestNaming:
        """The naming scheme of the table's manifests."""
        return row.pin.final.naming if row.pin is not None else self.snapshot(row).naming


def _past(state: LakeState) -> LakeState:
    """A state that others may have followed: tables without a pin are those of its time."""
    return state.seen_at(state.timestamp_ns)


def snapshot_key(row: Row, pin: Pin) -> SnapshotKey:
    """The cache key that identifies a version within the lake."""
    return row.line, pin.version, pin.transaction


def _is_looked_up(snapshot: Snapshot) -> bool:
    """Whether pylance reads the manifest file again: for indices, and for dictionary columns."""
    return bool(snapshot.indices) or has_dictionaries(snapshot.manifest.fields)


def _published(members: Sequence[Member], version: int, timestamp_ns: int) -> list[Published]:
    return [Published.of(each, version, timestamp_ns) for each in members]
