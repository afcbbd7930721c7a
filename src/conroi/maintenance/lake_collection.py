"""Garbage collection of a lake: the folders of its tables, branches and dropped tables, and those it does not own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from conroi.catalog.branches import BranchedLake
from conroi.catalog.catalog import Catalog
from conroi.catalog.folders import created_in, home_of
from conroi.catalog.lance_tags import repair_lance_tags
from conroi.catalog.participant import PublishRequest
from conroi.catalog.publication import Publishing
from conroi.catalog.state import CommitMetadata
from conroi.errors import InvalidInputError, NotFoundError
from conroi.format.naming import parse_staged_name
from conroi.format.on_disk import CREATED_MARK, LAKE_MANIFEST, LEASES_DIR, TEMPORARY_PREFIX, TREE_DIR
from conroi.format.references import name_of
from conroi.maintenance.collection import MARKS, MIN_AGE, Collecting, LookedAt
from conroi.maintenance.expiry import delete_in_batches, listed_versions, store_now_ns
from conroi.maintenance.lake_expiry import Kept, dropped_tables, forget_dropped, history_of, why_kept
from conroi.maintenance.reachability import AT_ONCE, LAKE_BRANCH, Line, Needed, Place, lines_of
from conroi.maintenance.reports import Collected, Duration
from conroi.snapshots.branch_names import Branch, lance_ref_path
from conroi.snapshots.branch_storage import branch_folder
from conroi.snapshots.snapshot import TableStorage
from conroi.storage.local_folders import LocalFolder
from conroi.storage.objects import Objects, reach_of
from conroi.storage.parallel import in_parallel
from conroi.versions.listing import branch_folders, manifest_name
from conroi.versions.retention import has_ended

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
        return [Place(LAKE_MANIFEST, files.objects, keys_of=keys), *self._branches(LAKE_MANIFEST, lines)]

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
            label = (
                name if f"/{TREE_DIR}/" not in folder else f"{name}/{TREE_DIR}/{folder.partition(f'/{TREE_DIR}/')[2]}"
            )
            pinned = frozenset(pin.manifest for pin in needed.pins.get(folder, ()))
            yield Place(label, objects, pinned)
            if f"/{TREE_DIR}/" not in folder:
                tables.append(folder)
        known = set(needed.folders)
        for places in in_parallel(partial(self._branches, lines=lines), tables, AT_ONCE):
            yield from (place for place in places if place.name not in known)

    def _branches(self, folder: str, lines: Sequence[Line]) -> list[Place]:
        """The branches below a folder; a deleted branch of the lake is collected as a whole."""
        above = self._catalog.opened(folder)
        # Of a deleted branch that is needed as a merge base, the list stays; of its tables those that are pinned there.
        live = {line.name for line in lines if line.is_living or folder == LAKE_MANIFEST}
        found: list[Place] = []
        for inner in sorted(_branch_folders(above)):
            place = f"{folder}/{inner}"
            branch = inner.removeprefix(f"{TREE_DIR}/")
            is_listed = branch in live or (folder != LAKE_MANIFEST and above.head(lance_ref_path(branch)) is not None)
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
        for folder in self._unknown({*known, *dropped, LAKE_MANIFEST}):
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
    parts = (path.split("/") for path in objects.list_names(TREE_DIR))
    return branch_folders(objects) | {f"{TREE_DIR}/{part[1]}" for part in parts if LAKE_BRANCH.fullmatch(part[1])}


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
    if path.startswith(f"{TREE_DIR}/"):
        path = path.split("/", 2)[-1]
    if path.rpartition("/")[2].startswith(TEMPORARY_PREFIX) or path.startswith((*MARKS, CREATED_MARK)):
        return True
    manifest = manifest_name(path)
    return name_of(path) is not None if manifest is None else parse_staged_name(manifest) is not None


def _remove_empty(objects: Objects) -> None:
    """On a disk: remove the empty folders too."""
    if objects.is_local:
        LocalFolder(objects.root, reach_of(objects).root).remove_empty()


def _fence_lake(catalog: Catalog, older_ns: int) -> None:
    """Fence off paused writers: on each branch whose newest version is older than the files to delete, commit the next.

    The timestamp of a version in a database is set by its writer, so there the fence is always committed.
    """
    if catalog.manifest is None:
        _commit_fence(catalog)
        return
    if _is_older(catalog.manifest.objects, older_ns):
        _commit_fence(catalog)
    _fence_branches(catalog, catalog.manifest, older_ns)


def _fence_branches(main: Catalog, manifest: TableStorage, older_ns: int) -> None:
    """A writer on a branch depends on the versions of that branch alone."""
    branched = BranchedLake(main, manifest)
    for branch in branched.names.all():
        if branch.lance_name is None:
            continue
        if _is_older(main.opened(branch_folder(LAKE_MANIFEST, branch.lance_name)), older_ns):
            try:
                fence_branch(branched, branch)
            except NotFoundError:
                if branch in branched.names.all():
                    raise  # else it was deleted meanwhile: nothing more can be published there


def fence_branch(branched: BranchedLake, branch: Branch) -> None:
    """Commit the next version of a branch."""
    _commit_fence(branched.opened(branch)[0])


def _is_older(objects: Objects, older_ns: int) -> bool:
    newest = max(listed_versions(objects), key=lambda aged: aged.version, default=None)
    return newest is not None and newest.modified_ns <= older_ns


def _commit_fence(catalog: Catalog) -> None:
    notes = CommitMetadata("gc: writers that stood still must look again")
    Publishing(catalog, PublishRequest(catalog.state(), notes=notes)).run()
