"""Garbage collection of a table, and of folders like one: files that no version refers to and that are old enough.

How old a file must be: `checked_age` and `conroi.versions.retention.ages`. Which files are referenced:
`conroi.maintenance.reachability`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from conroi.commit.change import Plan
from conroi.commit.execution import run
from conroi.commit.fairness import TOKEN_PATH
from conroi.data.table_version import TableVersion
from conroi.environment import Environment
from conroi.errors import CorruptionError, InvalidInputError
from conroi.format.naming import parse_staged_name
from conroi.format.on_disk import (
    COLLECTED_DIR,
    CREATED_MARK,
    DATA_DIR,
    DELETIONS_DIR,
    EXPIRED_DIR,
    IDEMPOTENCY_DIR,
    INDICES_DIR,
    LEASES_DIR,
    OWN_DIR,
    RESTORING_DIR,
    TEMPORARY_PREFIX,
    TRANSACTIONS_DIR,
    TREE_DIR,
)
from conroi.format.references import name_of
from conroi.maintenance.expiry import BATCH, listed_versions, refuse_lake_table, store_now_ns
from conroi.maintenance.reachability import AT_ONCE, Horizon, Names, Needs, Place, announced_names, needs_of
from conroi.maintenance.reports import Collected, Duration, Garbage, seconds_of
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.storage import opened_below
from conroi.storage.objects import ObjectInfo, Objects
from conroi.storage.parallel import in_parallel
from conroi.verbs.settings import reserve_fragments
from conroi.versions.listing import branch_folders, is_in_manifest_folder, manifest_files, manifest_name
from conroi.versions.retention import Forgetting, ages, end_of_dead_collector, has_ended, is_running, note_sweep

_log = logging.getLogger(__name__)

MIN_AGE = "1d"
LookedAt = Callable[[int], None]
"""Progress callback: number of folders processed so far."""
Found = dict[str, list[ObjectInfo]]
"""Files of one folder, by kind."""


class Collecting:
    """One garbage collection. `places` finds the folders, `fence` creates a new version if the newest is too old."""

    def __init__(
        self,
        places: Callable[[], Sequence[Place]],
        fence: Callable[[int], None],
        clock: Objects,
        environment: Environment,
        *,
        min_age: Duration,
        dry_run: bool,
        progress: LookedAt | None = None,
    ) -> None:
        age_s = checked_age(min_age)
        now_ns = environment.now_ns() if dry_run else store_now_ns(clock, environment)
        self._horizon = Horizon(now_ns - round(age_s * 1e9))
        self._environment = environment
        self._places = places
        self._fence = fence
        self._dry_run = dry_run
        self._progress = progress
        self._needed = Names()
        self._skipped: dict[str, str] = {}

    def run(self) -> Collected:
        """The files that were deleted, or would be."""
        places = self._understood(self._places())
        found = self._each(places, self._survey)
        if found and not self._dry_run:
            self._fence(self._horizon.files_ns)
            again = [place for place in self._places() if place.name in found and place.left_alone is None]
            found = self._each(again, self._sweep)
        return Collected(
            tuple(
                Garbage(name, kind, len(infos), sum(info.size for info in infos), tuple(info.path for info in infos))
                for name in sorted(found)
                for kind, infos in sorted(found[name].items())
            ),
            is_dry_run=self._dry_run,
            skipped=self._skipped,
        )

    def _understood(self, places: Sequence[Place]) -> list[Place]:
        """The folders whose manifests are fully understood, after recording the references of all of them."""
        understood: list[Place] = []
        for place, needs in zip(places, in_parallel(self._needs, places, AT_ONCE), strict=True):
            self._needed.update(needs.names)
            problem = place.left_alone or needs.problem
            if problem is None:
                understood.append(place)
            else:
                self._skipped[place.name] = problem
        return understood

    def _needs(self, place: Place) -> Needs:
        if place.whole:
            return Needs([])
        try:
            return needs_of(place, self._horizon)
        except CorruptionError:
            if place.left_alone is None:
                raise
            return Needs([])  # not the lake's: what its owner left there stops no collection

    def _each(self, places: Sequence[Place], do: Callable[[Place], Found]) -> dict[str, Found]:
        found: dict[str, Found] = {}
        for number, (place, files) in enumerate(zip(places, in_parallel(do, places, AT_ONCE), strict=True), 1):
            if files:
                found[place.name] = files
            if self._progress is not None:
                self._progress(number)
        return found

    def _survey(self, place: Place) -> Found:
        own = Names()
        own.update(announced_names(place, self._horizon, self._needed))
        found: Found = {}
        for kind, info in garbage(place, self._horizon, own, self._needed):
            found.setdefault(kind, []).append(info)
        return found

    def _sweep(self, place: Place) -> Found:
        note_sweep(place.objects, self._horizon.files_ns)
        if place.whole:
            self._forget_all(place)
        own = Names()
        own.update(self._needs(place).names)
        own.update(announced_names(place, self._horizon, own))
        found: Found = {}
        batch: list[ObjectInfo] = []
        for kind, info in garbage(place, self._horizon, own, self._needed):
            _log.info("deleting %s of %s: %s file, %d bytes", info.path, place.objects.root, kind, info.size)
            found.setdefault(kind, []).append(info)
            # A storage deletes the files of one request in any order.
            if len(batch) == BATCH or (place.whole and batch and stage_of(batch[-1]) != stage_of(info)):
                _delete(place, batch)
                batch = []
            batch.append(info)
        _delete(place, batch)
        return found

    def _forget_all(self, place: Place) -> None:
        """Expire all its versions, so that none can be restored."""
        versions = [aged.version for aged in listed_versions(place.objects)]
        if versions:
            Forgetting(place.objects, versions, str(self._environment.new_uuid())).done()


def checked_age(min_age: Duration) -> float:
    """The minimum age in seconds; not below the grace period of running writers."""
    age_s = seconds_of(min_age, "min_age")
    if age_s < ages().file_s:
        raise InvalidInputError(
            f"min_age={min_age!r} is too short: files of running writers would be deleted.",
            hint=f"Give {ages().file_s / 3600:g}h or more.",
        )
    return age_s


def _delete(place: Place, batch: Sequence[ObjectInfo]) -> None:
    dead = [info.path for info in batch if is_running(info.path) and not place.whole]
    there = {aged.version for aged in listed_versions(place.objects)} if dead else set[int]()
    for path in dead:
        end_of_dead_collector(place.objects, path, there)
    rest = [info.path for info in batch if info.path not in dead]
    if rest:
        place.objects.delete(rest)


def collect_table(
    files: TableStorage, *, min_age: Duration = MIN_AGE, dry_run: bool = True, progress: LookedAt | None = None
) -> Collected:
    """Delete unreferenced files of the table."""
    refuse_lake_table(files, "gc")
    files.head()  # a store may have a version that is not complete; and a folder without a table is not ours to sweep
    return Collecting(
        lambda: places_of(files.root, files.objects),
        lambda older_ns: _fence(files, older_ns),
        files.objects,
        files.environment,
        min_age=min_age,
        dry_run=dry_run,
        progress=progress,
    ).run()


def places_of(name: str, objects: Objects) -> list[Place]:
    """The folder of a table, and those of its branches."""
    branches = sorted(branch_folders(objects))
    inside = [Place(f"{name}/{folder}", _below(objects, folder)) for folder in branches]
    return [Place(name, objects), *inside]


def _below(objects: Objects, folder: str) -> Objects:
    return opened_below(objects, folder)


def _fence(files: TableStorage, older_ns: int) -> None:
    """Fence off paused writers: if the newest version is older than the files to delete, commit the next version."""
    newest = max(listed_versions(files.objects), key=lambda aged: aged.version)
    if newest.modified_ns > older_ns:
        return

    def verb(head: Snapshot) -> Plan:
        return reserve_fragments(TableVersion(files, head), 1)

    run(files, files.head(), verb, {"message": "gc: writers that stood still must look again"})


# ------------------------------------------------------------------------------ what is not needed

KINDS = {DATA_DIR: "data", DELETIONS_DIR: "deletion", TRANSACTIONS_DIR: "transaction", INDICES_DIR: "index"}
MARKS = (EXPIRED_DIR, COLLECTED_DIR)
"""What stays in the folder of a dropped table, so that a paused writer detects that its work was wasted."""


def garbage(place: Place, horizon: Horizon, needed: Names, others: Names) -> Iterator[tuple[str, ObjectInfo]]:
    """Every unreferenced file past the grace period, with its kind, in listing order."""
    if place.whole:
        yield from (("dropped", info) for info in _whole(place, horizon, needed, others))
        return
    listings = (manifest_files(place.objects), *map(place.objects.list, (*KINDS, OWN_DIR)))
    for info in chain.from_iterable(listings):
        kind = _kind(place, info, horizon, needed, others)
        if kind is not None:
            yield kind, info


def _whole(place: Place, horizon: Horizon, needed: Names, others: Names) -> list[ObjectInfo]:
    """All files of a folder, in the order of their deletion; none while its youngest file is young.

    Manifests are deleted first, so that a collector that crashes leaves no version without its files. The ownership
    marker is deleted last, so that the next collector completes the work.
    """
    infos = [info for info in place.objects.list("") if not info.path.startswith(MARKS)]
    if any(info.modified_ns >= horizon.staged_ns or _is_lease(info, horizon) for info in infos):
        return []
    going = [info for info in infos if _base_name(info.path) not in needed and _base_name(info.path) not in others]
    return sorted(going, key=stage_of)


def _is_lease(info: ObjectInfo, horizon: Horizon) -> bool:
    return info.path.startswith(f"{LEASES_DIR}/") and not has_ended(info, horizon.files_ns)


def _base_name(path: str) -> str:
    """The name by which a file of a dropped table, or of a branch below it, may be needed."""
    below = path.removeprefix(f"{TREE_DIR}/").partition("/")[2] if path.startswith(f"{TREE_DIR}/") else path
    return name_of(below) or ""


def stage_of(info: ObjectInfo) -> int:
    """When a file of a folder that goes as a whole is deleted: all of one stage before any of the next."""
    if is_in_manifest_folder(info.path):
        return 0
    return 2 if info.path == CREATED_MARK else 1


def _kind(place: Place, info: ObjectInfo, horizon: Horizon, needed: Names, others: Names) -> str | None:
    folder, _, name = info.path.rpartition("/")
    if info.modified_ns >= horizon.files_ns:
        return None
    if name.startswith(TEMPORARY_PREFIX) or info.path == TOKEN_PATH:
        return "temporary"
    if manifest_name(info.path) is not None:
        is_staged = parse_staged_name(name) is not None and info.path not in place.pinned
        return "staged" if is_staged and info.modified_ns < horizon.staged_ns else None
    if folder.startswith(OWN_DIR):
        return _own_kind(place, folder, name, info, horizon)
    wanted = name_of(info.path)
    if wanted is None or wanted in needed or wanted in others:
        return None
    return KINDS[info.path.partition("/")[0]]


def _own_kind(place: Place, folder: str, name: str, info: ObjectInfo, horizon: Horizon) -> str | None:
    """The kind of conroi's own records beside a table."""
    if folder.startswith(IDEMPOTENCY_DIR):
        is_known = place.keys_of is None or not name.isdecimal() or int(name) in place.keys_of
        return None if is_known else "key"
    if folder == LEASES_DIR:
        return "temporary" if has_ended(info, horizon.files_ns) else None
    if info.modified_ns >= horizon.staged_ns:
        return None
    is_passing = folder == OWN_DIR and name.startswith(("clock-", "probe-"))
    is_ended = folder == RESTORING_DIR or is_running(info.path)
    return "temporary" if is_passing or is_ended else None
