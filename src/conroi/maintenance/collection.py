"""Garbage collection of a table or a lake: files that no version refers to and that are old enough."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from conroi.catalog.catalog import Catalog
from conroi.catalog.folders import MANIFEST, MARK, created_in, home_of
from conroi.catalog.lance_tags import repair_lance_tags
from conroi.catalog.participant import PublishRequest
from conroi.catalog.publication import Publishing
from conroi.catalog.state import CommitMetadata
from conroi.commit.change import Plan
from conroi.commit.execution import run
from conroi.data.table_version import TableVersion
from conroi.environment import Environment
from conroi.errors import CorruptionError, InvalidInputError
from conroi.format.naming import parse_staged_name
from conroi.format.references import name_of
from conroi.maintenance.expiry import BATCH, delete_in_batches, listed_versions, refuse_lake_table, store_now_ns
from conroi.maintenance.lake_expiry import Kept, dropped_tables, forget_dropped, history_of, why_kept
from conroi.maintenance.places import (
    AT_ONCE,
    MARKS,
    Horizon,
    Names,
    Needs,
    Place,
    announced_names,
    garbage,
    needs_of,
    stage_of,
)
from conroi.maintenance.reachability import LAKE_BRANCH, Line, Needed, lines_of
from conroi.maintenance.reports import Collected, Duration, Garbage, seconds_of
from conroi.snapshots.branch_names import lance_ref_path
from conroi.snapshots.branch_storage import TREE
from conroi.snapshots.snapshot import Snapshot
from conroi.snapshots.table_storage import TableStorage
from conroi.storage.factory import opened_below
from conroi.storage.local_folders import LocalFolder
from conroi.storage.objects import ObjectInfo, Objects, reach_of
from conroi.storage.parallel import in_parallel
from conroi.verbs.settings import reserve_fragments
from conroi.versions.leases import LEASES_DIR, has_ended
from conroi.versions.listing import TEMPORARY_PREFIX, branch_folders, manifest_name
from conroi.versions.retention import Forgetting, ages, end_of_dead_collector, is_running, note_sweep

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
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for place, needs in zip(places, pool.map(self._needs, places), strict=True):
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
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for number, (place, files) in enumerate(zip(places, pool.map(do, places), strict=True), 1):
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


_NEW_NAME = re.compile(r"[0-9a-f]{8}_.+")
"""Pattern of the folder of a table whose plain name was in use: see conroi.catalog.folders."""
AN_HOUR_NS = 3600 * 1_000_000_000
KEYS_AHEAD = 1000
"""Number of versions ahead of the newest above which the record of an idempotency key is invalid."""


def collect_lake(
    catalog: Catalog, *, min_age: Duration = MIN_AGE, dry_run: bool = True, progress: LookedAt | None = None
) -> Collected:
    """Delete unreferenced files of the lake."""
    if catalog.branch is not None:
        raise InvalidInputError(
            "Files are collected for all branches at once.",
            hint="Call gc() on the main lake, as conroi.connect() gave it.",
        )
    if not dry_run:
        repair_lance_tags(catalog)
    places = _Places(catalog)
    done = Collecting(
        places.all,
        lambda older_ns: _fence_lake(catalog, older_ns),
        home_of(catalog),
        catalog.environment,
        min_age=min_age,
        dry_run=dry_run,
        progress=progress,
    ).run()
    if not dry_run:
        places.end_dropped()
        if catalog.manifest is None:  # else they went with what is beside it
            now_ns = store_now_ns(catalog.root, catalog.environment)
            ended = [info.path for info in catalog.root.list(LEASES_DIR) if has_ended(info, now_ns - AN_HOUR_NS)]
            delete_in_batches(catalog.root, ended)
    return done


class _Places:
    """The folders of the lake."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def all(self) -> list[Place]:
        """The folders of all tables that any version of the lake has, on any branch, and unreferenced ones."""
        # The list before the releases: a table that is missing in the list was released before it left.
        live, lines = list(self._catalog.state().rows.values()), lines_of(self._catalog)
        kept = Kept(self._catalog, live, lines)
        history = history_of(self._catalog)
        needed = Needed().add(history.rows(history.versions(), ())[0])
        for line in lines:
            needed.add(line.rows)
        needed.add(live)
        return [*self._own(lines), *self._tables(needed, kept, lines), *self._gone(needed, kept, lines)]

    def _own(self, lines: Sequence[Line]) -> list[Place]:
        """`__manifest`, and its branches."""
        files = self._catalog.manifest
        if files is None:
            return []
        versions = frozenset(aged.version for aged in listed_versions(files.objects))
        newest = max(versions)
        # A key may be about to be used for a version that comes next.
        keys = frozenset({*versions, *range(newest + 1, newest + KEYS_AHEAD)})
        return [Place(MANIFEST, files.objects, keys_of=keys), *self._branches(MANIFEST, lines)]

    def _tables(self, needed: Needed, kept: Kept, lines: Sequence[Line]) -> Iterator[Place]:
        """All tables, with their branches; also with those that only pylance knows."""
        tables: list[str] = []
        for folder in needed.folders:
            objects = self._catalog.opened(folder)
            why = kept.why(folder, needed.incarnations.get(folder))
            if why is not None:
                yield Place(folder, objects, left_alone=why)
                continue
            name = needed.names[folder]
            label = name if f"/{TREE}/" not in folder else f"{name}/{TREE}/{folder.partition(f'/{TREE}/')[2]}"
            pinned = frozenset(pin.manifest for pin in needed.pins.get(folder, ()))
            yield Place(label, objects, pinned)
            if f"/{TREE}/" not in folder:
                tables.append(folder)
        known = set(needed.folders)
        for places in in_parallel(partial(self._branches, lines=lines), tables, AT_ONCE):
            yield from (place for place in places if place.name not in known)

    def _branches(self, folder: str, lines: Sequence[Line]) -> list[Place]:
        """The branches below a folder; a deleted branch of the lake is collected as a whole."""
        above = self._catalog.opened(folder)
        # Of a deleted branch that is needed as a merge base, the list stays; of its tables those that are pinned there.
        live = {line.name for line in lines if line.is_living or folder == MANIFEST}
        found: list[Place] = []
        for inner in sorted(_branch_folders(above)):
            place = f"{folder}/{inner}"
            branch = inner.removeprefix(f"{TREE}/")
            is_listed = branch in live or (folder != MANIFEST and above.head(lance_ref_path(branch)) is not None)
            has_ended = LAKE_BRANCH.fullmatch(branch) is not None and not is_listed
            found.append(Place(place, self._catalog.opened(place), whole=has_ended))
        return found

    def _gone(self, needed: Needed, kept: Kept, lines: Sequence[Line]) -> Iterator[Place]:
        """Folders of dropped and of unfinished tables; and those that the lake does not own."""
        known = {folder.partition("/")[0] for folder in needed.folders}
        dropped = {each.folder: each for each in dropped_tables(self._catalog)}
        for folder, each in dropped.items():
            if folder not in needed.names and folder not in needed.origins:
                objects = self._catalog.opened(folder)
                if not _is_collected(objects):
                    why = kept.why_released(folder) or why_kept(each, objects)
                    yield Place(folder, objects, whole=why is None, left_alone=why)
        for folder in self._unknown({*known, *dropped, MANIFEST}):
            objects = self._catalog.opened(folder)
            if _is_collected(objects):
                continue
            ended = self._branches(folder, lines) if created_in(objects, folder) is not None else []
            ended = [place for place in ended if place.whole and not _is_collected(place.objects)]
            if ended and not kept.why_released(folder):  # a table that was made on a branch goes with the branch
                yield from ended
                continue
            why = kept.why_released(folder) or _why_not_unfinished(objects, folder)
            yield Place(folder, objects, whole=why is None, left_alone=why)

    def _unknown(self, known: set[str]) -> list[str]:
        names = {path.partition("/")[0] for path in self._catalog.root.list_names("") if "/" in path}
        return sorted(name for name in names - known if name.endswith(".lance") or _NEW_NAME.fullmatch(name))

    def end_dropped(self) -> None:
        """Delete the records of dropped tables of which nothing is left."""
        for folder in [each.folder for each in dropped_tables(self._catalog)]:
            objects = self._catalog.opened(folder)
            left = list(objects.list_names(""))
            if not all(path.startswith(MARKS) for path in left):
                continue
            # A name that is never used again needs no marks; the others keep theirs, so that it never is.
            if _NEW_NAME.fullmatch(folder):
                delete_in_batches(objects, left)
            _remove_empty(objects)
            forget_dropped(self._catalog, folder)


def _branch_folders(objects: Objects) -> set[str]:
    """The branches below a table, also those of the lake whose manifests a collector has deleted."""
    parts = (path.split("/") for path in objects.list_names(TREE))
    return branch_folders(objects) | {f"{TREE}/{part[1]}" for part in parts if LAKE_BRANCH.fullmatch(part[1])}


def _is_collected(objects: Objects) -> bool:
    """Whether only the records of a collector are left."""
    return all(path.startswith(MARKS) for path in objects.list_names(""))


def _why_not_unfinished(objects: Objects, folder: str) -> str | None:
    """None if this is what a crashed creation of a table left: the marker, files of a table, and no version."""
    if created_in(objects, folder) is None:
        return "no version of the lake has it, and it does not carry the mark of a table that this lake created"
    if not all(map(_is_part_of_unfinished, objects.list_names(""))):
        return "no version of the lake has it, and it has files that an unfinished creation does not leave"
    return None


def _is_part_of_unfinished(path: str) -> bool:
    if path.startswith(f"{TREE}/"):
        path = path.split("/", 2)[-1]
    if path.rpartition("/")[2].startswith(TEMPORARY_PREFIX) or path.startswith((*MARKS, MARK)):
        return True
    manifest = manifest_name(path)
    return name_of(path) is not None if manifest is None else parse_staged_name(manifest) is not None


def _remove_empty(objects: Objects) -> None:
    """On a disk: remove the empty folders too."""
    if objects.is_local:
        LocalFolder(objects.root, reach_of(objects).root).remove_empty()


def _fence_lake(catalog: Catalog, older_ns: int) -> None:
    """Fence off paused writers: if the newest version is older than the files to delete, commit the next version.

    The timestamp of a version in a database is set by its writer, so there the fence is always committed.
    """
    if catalog.manifest is not None:
        newest = max(listed_versions(catalog.manifest.objects), key=lambda aged: aged.version)
        if newest.modified_ns > older_ns:
            return
    notes = CommitMetadata("gc: writers that stood still must look again")
    Publishing(catalog, PublishRequest(catalog.state(), notes=notes)).run()
