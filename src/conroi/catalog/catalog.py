"""One lake as its parts see it: its newest state, its tables' files, and their pinned versions."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from conroi.catalog.heads import Heads, Seen
from conroi.catalog.names import shown
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.commit.files import Publisher, TableFiles
from conroi.commit.forked import TREE, Origin, forked_objects
from conroi.commit.pins import Pin, finalize, load_pinned, pin_of
from conroi.commit.reservations import Reservations
from conroi.commit.snapshot import Snapshot, load_snapshot, load_transaction
from conroi.environment import LONG_AGO, Environment, Moment
from conroi.errors import ConroiError, CorruptionError, NotFoundError
from conroi.format.naming import ManifestNaming, check_relative_path
from conroi.history import newest_at
from conroi.parallel import ProcessLock, Running, ThreadQueue
from conroi.refs.branches import MAIN_BRANCH, Branch
from conroi.stores.objects import Objects, open_objects
from conroi.stores.versions import FolderVersions, Located

_log = logging.getLogger(__name__)

LEAVE_TO_PUBLISHER_NS = 1_000_000_000
"""A reader leaves a version that was published so recently to its publisher to finish."""
LONGEST_TURN_S = 2.0
"""For so long a thread waits for another one that is publishing."""
MOST_SNAPSHOTS = 512
"""So many manifests of tables are kept at hand."""

SnapshotKey = tuple[str, int, str]
Wrap = Callable[[Objects], Objects]
"""Puts an instrument around the files of a table."""


def unwrapped(objects: Objects) -> Objects:
    """The files as they are."""
    return objects


class Catalog:
    """The tables of one lake. Every method may be called from any thread."""

    def __init__(
        self,
        root: Objects,
        heads: Heads,
        environment: Environment,
        *,
        storage_options: Mapping[str, str] | None = None,
        durable: bool = False,
        wrap: Wrap = unwrapped,
        branch: str | None = None,
    ) -> None:
        self.root = root
        self.branch = branch
        """The name of the Lance branch, if this is a branch of the lake."""
        self._lineages: dict[str, dict[str, int]] = {}
        """By the folder of a table on the branch: the folders that have its older versions, and up to which."""
        self.identity: Branch = MAIN_BRANCH
        self.main: Catalog = self
        """The main branch of the lake."""
        self.manifest: TableFiles | None = None
        """Of the main branch: the storage of `__manifest`; None if a store has the history."""
        self.branches: dict[str, tuple[Catalog, TableFiles]] = {}
        """Of the main branch: those others that were opened, by id."""
        self.heads = heads
        self.environment = environment
        self._storage_options = storage_options
        self._durable = durable
        self._wrap = wrap
        self._state: LakeState | None = None
        self._objects: dict[str, Objects] = {}
        self._folders: dict[str, FolderVersions] = {}
        self._snapshots: OrderedDict[SnapshotKey, Snapshot] = OrderedDict()
        self.finalizing: dict[SnapshotKey, Running[bool]] = {}
        """Published manifests that are on their way to their final names."""
        self.locks: object | None = None
        """The insert locks of the lake, once somebody asked for them: see conroi.locks."""
        self._lock = ProcessLock()
        self._turns = ThreadQueue(LONGEST_TURN_S)
        self.reservations = Reservations(root, environment)
        """Of clients of the namespace that were refused."""

    @property
    def uri(self) -> str:
        return self.root.root

    # ------------------------------------------------------------------------ states

    def state(self) -> LakeState:
        """The newest state."""
        return self.refresh(self._state).state

    def known_state(self) -> LakeState:
        """The newest state we have seen; looked up only if we have seen none."""
        return self._state or self.state()

    def refresh(self, known: LakeState | None) -> Seen:
        """The newest state, and what led to it since `known`."""
        with self._lock:
            seen = self.heads.newest(known)
            self.saw(seen.state)
            return seen

    def saw(self, state: LakeState) -> None:
        """Remember a state, if it is the newest."""
        with self._lock:
            if self._state is None or state.version > self._state.version:
                self._state = state

    def at(self, version: int) -> LakeState:
        """An older state; NotFoundError if it never was, or was collected."""
        known = self._state
        return _past(known if known is not None and known.version == version else self.heads.at(version))

    def as_of(self, moment: datetime | str) -> LakeState:
        """The newest state that is not newer than this."""
        return _past(self.heads.as_of(moment))

    def current(self) -> LakeState:
        """The newest state as a snapshot: what is committed from now on is not in it, not even by a table's path."""
        state = self.state()
        return state.seen_at(self.environment.now_ns())

    @contextmanager
    def in_turn(self) -> Generator[None]:
        """Threads of one client publish one after the other: of those who race, all but one work in vain.

        Nothing depends on it but speed, so nobody waits long for one that is stuck.
        """
        with self._turns.turn():
            yield

    # ------------------------------------------------------------------------ tables

    def row(self, object_id: str, state: LakeState) -> Row:
        """The row of a table."""
        row = state.table(object_id)
        if row is None:
            raise no_table(object_id, state)
        return row

    def objects(self, location: str) -> Objects:
        """The files of the table at this location of the lake."""
        with self._lock:
            found = self._objects.get(location)
            if found is None:
                found = self.opened(location)
                if self.branch is not None and location.endswith(f"/{TREE}/{self.branch}"):
                    found = forked_objects(found, self.branch, lambda: self._origins(location))
                self._objects[location] = found
            return found

    def opened(self, location: str) -> Objects:
        """The files in this folder of the lake, and nothing else."""
        return self._wrap(open_objects(self._uri_of(location), self._storage_options, durable=self._durable))

    def beside(self, heads: Heads, branch: str) -> Catalog:
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

    def _origins(self, location: str) -> list[Origin]:
        return [Origin(self.objects(folder), bound) for folder, bound in self.lineage(location)]

    def lineage(self, location: str) -> list[tuple[str, int]]:
        """The folders that have the older versions of a table on the branch, and up to which, nearest first."""
        return sorted(self._lineages.get(location, {}).items(), key=lambda pair: -pair[1])

    def note_lineage(self, location: str, lineage: Sequence[tuple[str, int]]) -> None:
        """Remember where the older versions of a table on the branch are."""
        if lineage:
            known = self._lineages.setdefault(location, {})
            for folder, version in lineage:
                known[folder] = max(version, known.get(folder, 0))

    def _uri_of(self, location: str) -> str:
        check_relative_path(location)
        return f"{self.root.root}/{location}"

    def folder(self, location: str) -> FolderVersions:
        """The versions that the table's folder has under their final names."""
        with self._lock:
            if location not in self._folders:
                self._folders[location] = FolderVersions(self.objects(location), environment=self.environment)
            return self._folders[location]

    def snapshot(self, row: Row) -> Snapshot:
        """The version of the table that this row pins.

        A table that is not managed yet has none: in the current state it is the folder's newest version, in a snapshot
        of the past the one that was newest then.
        """
        location = location_of(row)
        self.note_lineage(location, row.lineage)
        if row.pin is None:
            found = self._unpinned(location, row)
            if found is None:
                raise _not_written(self.uri, location, row)
            return found
        key = (location, row.pin.version, row.pin.transaction)
        with self._lock:
            known = self._snapshots.get(key)
            if known is not None:
                self._snapshots.move_to_end(key)
                return known
        loaded = self._completed(location, row.pin, load_pinned(self.objects(location), row.pin))
        if row.is_inherited and loaded.indices:
            from conroi.catalog.forking import fork_to_read

            fork_to_read(self, row, loaded)
        self.keep(location, row.pin, loaded)
        return loaded

    def _completed(self, location: str, pin: Pin, snapshot: Snapshot) -> Snapshot:
        """A published version that is not final, made final by who finds it; its publisher may be dead.

        Best effort: who only reads may not be allowed to. Far away it is left to the publisher for a moment.
        """
        if snapshot.is_final or self._is_young(snapshot):
            return snapshot
        try:
            finalize(self.objects(location), pin, self.environment)
        except ConroiError as error:
            _log.debug("version %d of %s stays unfinished: %s", pin.version, location, error)
            return snapshot
        return replace(snapshot, located=pin.final, is_final=True)

    def _is_young(self, snapshot: Snapshot) -> bool:
        age_ns = self.environment.now_ns() - snapshot.timestamp_ns
        return not self.root.is_local and age_ns < LEAVE_TO_PUBLISHER_NS

    def located(self, row: Row) -> Located:
        """Where the pinned manifest is; one that was staged when we read it may have got its final name since."""
        snapshot = self.snapshot(row)
        if snapshot.is_final or row.pin is None:
            return snapshot.located
        location = location_of(row)
        snapshot = load_pinned(self.objects(location), row.pin)
        self.keep(location, row.pin, snapshot)
        return snapshot.located

    def keep(self, location: str, pin: Pin, snapshot: Snapshot) -> None:
        """Have a manifest at hand for whoever asks next."""
        key = (location, pin.version, pin.transaction)
        with self._lock:
            self._snapshots[key] = snapshot
            self._snapshots.move_to_end(key)
            while len(self._snapshots) > MOST_SNAPSHOTS:
                self._snapshots.popitem(last=False)

    def _unpinned(self, location: str, row: Row) -> Snapshot | None:
        """The version of a table whose row pins none; None if it is only declared, or was then."""
        if row.moment_ns is None:
            located = self.folder(location).latest()
            return None if located is None else load_snapshot(self.objects(location), located)
        found = self.folder(location).all()
        count, snapshot = newest_at(self.objects(location), found, row.moment_ns)
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
        """The row with the version that it stands for; as it is if it has one, or if the table is only declared."""
        if row.pin is not None:
            return row
        location = location_of(row)
        snapshot = self._unpinned(location, row)
        return row if snapshot is None else row.pinned_at(pin_of(self.objects(location), snapshot))

    def version_of(self, row: Row) -> int:
        """The version of a table at some state; 0 for one that is only declared."""
        if row.pin is not None:
            return row.pin.version
        snapshot = self._unpinned(location_of(row), row)
        return 0 if snapshot is None else snapshot.version

    def operations_between(self, row: Row, older: int, newer: int) -> Sequence[str]:
        """What led from one version of a table to another; a version that cannot be read counts as unknown."""
        location = location_of(row)
        names: list[str] = []
        for version in range(older + 1, newer + 1):
            try:
                snapshot = self.snapshot(row) if version == newer else self.final_version(row, version)
                transaction = load_transaction(self.objects(location), snapshot)
            except NotFoundError:
                return ["Unknown"]
            names.append("Unknown" if transaction is None else transaction.operation_name)
        return names

    def final_version(self, row: Row, version: int) -> Snapshot:
        """A version before the pinned one: those all have their final names."""
        self.note_lineage(location_of(row), row.lineage)
        naming = self.naming(row)
        return load_snapshot(self.objects(location_of(row)), Located(version, naming.path(version), naming))

    def naming(self, row: Row) -> ManifestNaming:
        """How the manifests of the table are named."""
        return row.pin.final.naming if row.pin is not None else self.snapshot(row).naming


def _past(state: LakeState) -> LakeState:
    """A state that others may have followed: tables without a pin are those of its time."""
    return state.seen_at(state.timestamp_ns)


def _not_written(uri: str, location: str, row: Row) -> NotFoundError:
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


def no_table(object_id: str, state: LakeState) -> NotFoundError:
    """The error for a table that is not there."""
    names = [shown(row.object_id) for row in state.tables()]
    known = f"It has {', '.join(names[:10])}{', …' if len(names) > 10 else ''}." if names else "It has no table yet."
    return NotFoundError(
        f"The lake has no table {shown(object_id)!r} at version {state.version}.",
        table=shown(object_id),
        hint=f"{known} create_table() makes one.",
    )


def location_of(row: Row) -> str:
    """The folder of a table."""
    if row.location is None:
        raise CorruptionError(
            f"The lake lists table {shown(row.object_id)!r} without a folder.", hint="Drop it, and make it again."
        )
    return row.location


class LakeVersions:
    """Where the versions of one table of a lake are: the newest is the one that the lake pins."""

    def __init__(self, catalog: Catalog, object_id: str, incarnation: str) -> None:
        self._catalog = catalog
        self._object_id = object_id
        self._incarnation = incarnation

    def row(self) -> Row | None:
        """The row of the table now; None if it was dropped."""
        row = self._catalog.state().table(self._object_id)
        return row if row is not None and row.incarnation == self._incarnation else None

    def latest(self) -> Located | None:
        row = self.row()
        return None if row is None else self._catalog.located(row)

    def locate(self, version: int) -> Located | None:
        row = self.row()
        if row is None:
            return None
        newest = self._catalog.located(row)
        if version == newest.version:
            return newest
        if version > newest.version and version < 1 << 63:
            return None
        return self._catalog.folder(location_of(row)).locate(version)

    def all(self) -> list[Located]:
        row = self.row()
        if row is None:
            return []
        newest = self._catalog.located(row)
        found = [each for each in self._catalog.folder(location_of(row)).all() if each.version < newest.version]
        return [*found, newest]

    def put(self, version: int, naming: ManifestNaming, data: bytes) -> Located:
        """Only detached versions are put by themselves; all others are published with the lake."""
        row = self.row()
        if row is None:
            raise NotFoundError(
                f"The table {shown(self._object_id)!r} was dropped.", hint="Look at lake.tables() for what is there."
            )
        return self._catalog.folder(location_of(row)).put(version, naming, data)

    def confirm(self, located: Located, since: Moment) -> None:
        """Only detached versions are put here, and nobody else has their numbers."""

    def saw(self, located: Located, at: Moment = LONG_AGO) -> None:
        """The lake itself knows what is newest."""


@dataclass(frozen=True)
class LakeTableFiles(TableFiles):
    """The storage of one table of a lake: its versions are the ones that the lake pins."""

    catalog: Catalog | None = None
    object_id: str = ""
    incarnation: str = ""

    def head(self) -> Snapshot:
        assert self.catalog is not None
        row = self.row(self.catalog.state())
        return self.catalog.snapshot(row)

    def newest(self, known: Snapshot) -> Snapshot:
        head = self.head()
        return known if head.version == known.version and head.manifest == known.manifest else head

    def row(self, state: LakeState) -> Row:
        """The row of this very table; NotFoundError if it was dropped, whatever has its name now."""
        row = state.table(self.object_id)
        if row is None or row.incarnation != self.incarnation:
            raise NotFoundError(
                f"The table {shown(self.object_id)!r} was dropped.",
                table=shown(self.object_id),
                hint="Look at lake.tables() for what is there; lake[name] opens the table that has this name now.",
            )
        return row


def table_files(catalog: Catalog, row: Row, publisher: Publisher) -> LakeTableFiles:
    """The storage of a table, through the lake."""
    catalog.note_lineage(location_of(row), row.lineage)
    return LakeTableFiles(
        objects=catalog.objects(location_of(row)),
        versions=LakeVersions(catalog, row.object_id, row.incarnation),
        environment=catalog.environment,
        publisher=publisher,
        catalog=catalog,
        object_id=row.object_id,
        incarnation=row.incarnation,
    )
