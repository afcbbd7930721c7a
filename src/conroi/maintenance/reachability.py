"""Garbage-collection roots: which versions the branches of a lake need, and which files the manifests of a folder.

This is the only place that decides what is retained. Any new kind of reference to versions or files is added here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations

from conroi.catalog.catalog import Catalog
from conroi.catalog.manifest_rows import load_rows
from conroi.catalog.names import shown
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState, decode_records
from conroi.errors import ConroiError, CorruptionError, NotFoundError, UnsupportedError
from conroi.format.flags import require_writable
from conroi.format.manifest import Manifest
from conroi.format.manifest_file import decode_manifest_file
from conroi.format.naming import parse_manifest_name, parse_staged_name
from conroi.format.on_disk import LAKE_MANIFEST, MERGES_ROW, TRANSACTIONS_DIR, TREE_DIR
from conroi.format.references import names_in_manifest, names_in_transaction
from conroi.format.transaction import decode_transaction
from conroi.maintenance.expiry import Aged, listed_versions
from conroi.snapshots.branch_names import MAIN, BranchNames
from conroi.snapshots.branch_storage import branch_folder
from conroi.snapshots.pin import Pin
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_snapshot, load_transaction
from conroi.storage.objects import ObjectInfo, Objects
from conroi.storage.parallel import in_parallel
from conroi.versions.folder import FolderVersions
from conroi.versions.listing import manifest_files
from conroi.versions.retention import ages

LAKE_BRANCH = re.compile(r"[^/]+-[0-9a-f]{8}")
"""What pylance calls a branch of a lake."""
AT_ONCE = 16
"""Number of parallel requests."""


@dataclass
class Needed:
    """The pinned versions of tables, by their folder in the lake, with their names."""

    names: dict[str, str] = field(default_factory=dict[str, str])
    pins: dict[str, set[Pin]] = field(default_factory=dict[str, set[Pin]])
    incarnations: dict[str, str] = field(default_factory=dict[str, str])
    """The table id in a folder: of several tables that were there in succession, the one that was added last."""
    origins: set[str] = field(default_factory=set[str])
    """Folders with older versions of tables that are on branches."""

    def add(self, rows: Iterable[Row]) -> Needed:
        """What these rows pin."""
        for row in rows:
            if not row.is_table or row.location is None:
                continue
            self.names[row.location] = shown(row.object_id)
            self.incarnations[row.location] = row.incarnation
            self.origins |= {folder for folder, _ in row.lineage}
            # On a branch that has not written the table, its version is where the branch found it.
            folder = row.lineage[0][0] if row.is_inherited else row.location
            self.names.setdefault(folder, shown(row.object_id))
            pins = self.pins.setdefault(folder, set())
            if row.pin is not None:
                pins.add(row.pin)
        return self

    @property
    def folders(self) -> list[str]:
        return sorted({*self.names, *self.pins})


def rows_of(files: TableStorage, versions: Sequence[Aged]) -> Iterator[Row]:
    """The rows that these versions of a `__manifest` have: those of the first, and what each next one changed."""
    return (row for _, rows in changes_of(files, versions) for row in rows)


def changes_of(files: TableStorage, versions: Sequence[Aged]) -> Iterator[tuple[int, list[Row]]]:
    """By version: all rows of the first one, and of each next one those that it changed."""
    before = 0
    for aged, snapshot in zip(versions, in_parallel(partial(_loaded, files), versions, AT_ONCE), strict=True):
        if snapshot is None:  # expired concurrently, by another collector
            continue
        transaction = load_transaction(files.objects, snapshot)
        records = None if transaction is None else decode_records(transaction.properties)
        follows = transaction is not None and transaction.read_version == before == aged.version - 1
        if records is None or not follows:
            yield aged.version, list(load_rows(files, snapshot).rows.values())
        else:
            yield aged.version, [row for row in records[0].values() if row is not None]
        before = aged.version


def _loaded(files: TableStorage, aged: Aged) -> Snapshot | None:
    try:
        return load_snapshot(files.objects, aged.located)
    except NotFoundError:
        return None


# ------------------------------------------------------------------------------ branches


@dataclass(frozen=True)
class Line:
    """A branch of the lake other than main; all its versions are retained for as long as it exists."""

    name: str
    """What pylance calls it."""
    files: TableStorage
    """The storage of its `__manifest`."""
    lineage: tuple[tuple[str, int], ...] = ()
    """The folders that have the versions from before it, and up to which."""
    only: frozenset[int] | None = None
    """Of a deleted branch: the versions that merges of others may still need as their base."""

    @property
    def is_living(self) -> bool:
        return self.only is None

    @cached_property
    def _changes(self) -> list[tuple[int, list[Row]]]:
        versions = listed_versions(self.files.objects)
        if self.only is None:
            return list(changes_of(self.files, versions))
        kept = [[aged] for aged in versions if aged.version in self.only]  # each by itself, so that it is read in full
        return [found for each in kept for found in changes_of(self.files, each)]

    @property
    def rows(self) -> list[Row]:
        """The rows that any version on the branch has."""
        return [row for _, rows in self._changes for row in rows]

    @property
    def main_versions(self) -> set[int]:
        """The versions of the main branch that it needs: its branch point, and what was merged into it."""
        if not self.is_living:
            return set()
        began = {version for folder, version in self.lineage if folder == LAKE_MANIFEST}
        merged = [row.notes[MAIN] for row in self.rows if row.object_id == MERGES_ROW and MAIN in row.notes]
        return {*began, *map(int, merged)}

    def clock(self, until: int | None = None) -> dict[str, int]:
        """What went into the branch until one of its versions: by branch, the newest version of it.

        See conroi.branches.ancestry.
        """
        found = {_branch_of(at): bound if until is None else min(bound, until) for at, bound in self.lineage}
        newest = 0
        for version, rows in self._changes:
            if until is None or version <= until:
                newest = version
                _add_merges(found, rows)
        return {**found, self.name: newest if until is None else until}


def _branch_of(folder: str) -> str:
    return MAIN if folder == LAKE_MANIFEST else folder.rpartition("/")[2]


def _add_merges(clock: dict[str, int], rows: Iterable[Row]) -> None:
    for row in rows:
        for name, version in row.notes.items() if row.object_id == MERGES_ROW else ():
            clock[name] = max(clock.get(name, 0), int(version))


def lines_of(catalog: Catalog) -> list[Line]:
    """The branches of the lake, and the retained parts of deleted ones; none where a store has the history."""
    main = catalog.main
    if main.manifest is None:
        return []
    found = [
        Line(branch.lance_name, _files_of(main, branch.lance_name), branch.lineage)
        for branch in BranchNames(main.manifest.objects).all()
        if branch.lance_name is not None
    ]
    return [*found, *_Bases(main, found).lines()] if found else []


class _Bases:
    """The states of deleted branches that merges of existing ones may need as their base.

    The candidates for the base of two branches are, of each branch that both know, the older of the two versions that
    they know (see conroi.branches.ancestry). What is known of a deleted branch only spreads, by merges. A candidate
    that went into another one, of a living branch, is never the base.
    """

    def __init__(self, main: Catalog, living: Sequence[Line]) -> None:
        self._main = main
        self._living = {line.name: line for line in living}

    def lines(self) -> Iterator[Line]:
        clocks = [self._clock(MAIN, self._main.state().version), *(line.clock() for line in self._living.values())]
        known = [name for clock in clocks for name in clock if name != MAIN and name not in self._living]
        deleted = self._there({name for name in known if known.count(name) > 1})
        needed: dict[str, set[int]] = {}
        for one, other in combinations(clocks, 2) if deleted else ():
            shared = {name: min(one[name], other[name]) for name in one.keys() & other.keys()}
            gone = sorted(shared.keys() & deleted)
            others = [self._clock(name, shared[name]) for name in sorted(shared.keys() - deleted)] if gone else []
            for name in gone:
                if not any(clock.get(name, 0) >= shared[name] for clock in others):
                    needed.setdefault(name, set()).add(shared[name])
        for name, versions in needed.items():
            yield Line(name, _files_of(self._main, name), only=frozenset(versions))

    def _there(self, names: set[str]) -> set[str]:
        """Those of which anything exists."""
        if not names:
            return set()
        assert self._main.manifest is not None
        paths = self._main.manifest.objects.list_names(TREE_DIR)
        return names & {path.removeprefix(f"{TREE_DIR}/").partition("/")[0] for path in paths}

    def _clock(self, name: str, version: int) -> dict[str, int]:
        """What went into a version of a living branch; nothing that is known if it cannot be read."""
        if name in self._living:
            return self._living[name].clock(version)
        clock = {MAIN: version}
        if name == MAIN:
            with suppress(NotFoundError):
                _add_merges(clock, self._state(version).rows.values())
        return clock

    def _state(self, version: int) -> LakeState:
        newest = self._main.known_state()
        return newest if newest.version == version else self._main.at(version)


def _files_of(main: Catalog, name: str) -> TableStorage:
    objects = main.opened(branch_folder(LAKE_MANIFEST, name))
    return TableStorage(objects, FolderVersions(objects, environment=main.environment), main.environment)


# ------------------------------------------------------------------------------ files of one folder


class Names:
    """Set of referenced file names, as hashes: a collision retains one file too many, never one too few.

    >>> names = Names()
    >>> names.update(["a", "b"])
    >>> "a" in names, "c" in names
    (True, False)
    """

    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def update(self, names: Iterable[str]) -> None:
        self._numbers.update(map(hash, names))

    def __contains__(self, name: str) -> bool:
        return hash(name) in self._numbers


@dataclass(frozen=True)
class Horizon:
    """Which files are old enough to be deleted, in the storage's own time."""

    files_ns: int
    """Files that were written before this may be deleted."""

    @property
    def staged_ns(self) -> int:
        """What a writer that is still at work may be about to publish was written after this.

        It made sure of its files less than this margin ago; if it did so earlier, it finds its version taken: see
        docs/decisions/0018-garbage-collection.md.
        """
        return self.files_ns - round(ages().file_s * 1e9)


@dataclass(frozen=True)
class Place:
    """One folder like that of a table: a table, a branch of one, or `__manifest`."""

    name: str
    objects: Objects
    pinned: frozenset[str] = frozenset()
    """Staged manifests that a version of the lake pins."""
    keys_of: frozenset[int] | None = None
    """For `__manifest`: the versions whose idempotency keys are still valid."""
    whole: bool = False
    """Whether all of it is garbage: the folder of a dropped table."""
    left_alone: str | None = None
    """Why nothing in it is deleted, although the lake does not list it; its references are retained too."""


@dataclass
class Needs:
    """The names that the manifests of a place need; `problem` says why they may need more than these."""

    names: list[str]
    problem: str | None = None


def needs_of(place: Place, horizon: Horizon) -> Needs:
    """The references of its manifests. An unreadable one is a CorruptionError: it may reference anything."""
    paths = [info.path for info in manifest_files(place.objects) if _is_root(place, info, horizon)]
    found = Needs([])
    for manifest in in_parallel(partial(_manifest, place), paths, AT_ONCE):
        if manifest is not None:
            found.names.extend(names_in_manifest(manifest))
            found.problem = found.problem or _problem(manifest)
    return found


def _is_root(place: Place, info: ObjectInfo, horizon: Horizon) -> bool:
    name = info.path.rpartition("/")[2]
    if parse_manifest_name(name) is not None:
        return True
    is_staged = parse_staged_name(name) is not None
    return is_staged and (info.path in place.pinned or info.modified_ns >= horizon.staged_ns)


def _manifest(place: Place, path: str) -> Manifest | None:
    try:
        return decode_manifest_file(place.objects.get(path)).manifest
    except NotFoundError:  # it was finalized or expired since it was listed
        return None
    except CorruptionError as error:
        if parse_manifest_name(path.rpartition("/")[2]) is None and path not in place.pinned:
            return None  # it is being written, or its writer crashed
        raise CorruptionError(
            f"{path} cannot be read, so it is unknown which files it needs; nothing was deleted. {error.message}",
            table=place.objects.root,
            hint="Run doctor on it, and collect again when it is healthy.",
        ) from error


def _problem(manifest: Manifest) -> str | None:
    """Files of a kind that only newer software has may be referenced by formats that only it can read."""
    try:
        require_writable(manifest.head)
    except UnsupportedError as error:
        return error.message
    return None


def announced_names(place: Place, horizon: Horizon, known: Names) -> Iterator[str]:
    """The names in transactions that are in no manifest yet, but may be committed soon."""
    young = [
        info.path
        for info in place.objects.list(TRANSACTIONS_DIR)
        if info.modified_ns >= horizon.staged_ns and info.path.endswith(".txn")
    ]
    unknown = [path for path in young if path.rpartition("/")[2] not in known]
    found = in_parallel(partial(_names_in_transaction, place), unknown, AT_ONCE)
    for path, names in zip(unknown, found, strict=True):
        yield path.rpartition("/")[2]
        yield from names


def _names_in_transaction(place: Place, path: str) -> list[str]:
    try:
        return list(names_in_transaction(decode_transaction(place.objects.get(path)).wire))
    except ConroiError:  # gone, or truncated by a crash of its writer
        return []
