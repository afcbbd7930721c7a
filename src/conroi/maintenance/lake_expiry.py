"""Expiry of old versions of a lake, and of the tables that were dropped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, unquote

from conroi.catalog.catalog import Catalog
from conroi.catalog.folders import created_in, home_of, released
from conroi.catalog.lance_tags import repair_lance_tags
from conroi.catalog.rows import Row
from conroi.catalog.sql_store import SqlStore
from conroi.environment import Environment
from conroi.errors import ConroiError, CorruptionError, InvalidInputError, NotFoundError
from conroi.format.json import decode_document, encode_document
from conroi.format.naming import parse_manifest_name
from conroi.format.on_disk import DROPPED_DIR, LAKE_MANIFEST, TREE_DIR
from conroi.maintenance.expiry import (
    KEEP,
    OLDER_THAN,
    Aged,
    checked_keep,
    chosen,
    delete_in_batches,
    forget,
    held_by_refs,
    listed_versions,
    old_ones,
    oldest_ns,
    store_now_ns,
)
from conroi.maintenance.reachability import AT_ONCE, LAKE_BRANCH, Line, Needed, lines_of, rows_of
from conroi.maintenance.reports import Duration, Expired
from conroi.snapshots.pin import is_made_by
from conroi.snapshots.snapshot import TableStorage, load_snapshot
from conroi.snapshots.tags import LAKE_TAG_PREFIX
from conroi.storage.objects import Objects
from conroi.storage.parallel import in_parallel
from conroi.versions.folder import FolderVersions, ManifestRef
from conroi.versions.listing import branch_folders, manifest_files
from conroi.versions.retention import Forgetting, leased


@dataclass(frozen=True, slots=True)
class Dropped:
    """The folder of a dropped table: no retained version of the lake has it."""

    folder: str
    incarnation: str | None = None
    """The id of the table; None in records of earlier releases, which do not have it."""
    version: int = 0
    """The newest version that the lake had of it; 0 if it never had one."""
    transaction: str = ""
    """The transaction that created that version."""


def note_dropped(catalog: Catalog, before: Needed, needed: Needed) -> None:
    """Record the tables that versions of the lake had `before`, and that no retained version has."""
    for folder in before.folders:
        is_kept = folder in needed.names or folder in needed.origins
        if is_kept or f"/{TREE_DIR}/" in folder or folder == LAKE_MANIFEST or folder not in before.incarnations:
            continue
        newest = max(before.pins.get(folder, ()), key=lambda pin: pin.version, default=None)
        dropped = Dropped(
            folder,
            before.incarnations[folder],
            0 if newest is None else newest.version,
            "" if newest is None else newest.transaction,
        )
        earlier = _read(catalog, folder)
        if earlier is not None and earlier.incarnation == dropped.incarnation and earlier.version > dropped.version:
            continue  # a collector that crashed earlier had seen a newer version of the lake
        content = {"table": dropped.incarnation, "version": dropped.version, "transaction": dropped.transaction}
        home_of(catalog).put(_path(folder), encode_document(content))


def dropped_tables(catalog: Catalog) -> list[Dropped]:
    """All that were recorded."""
    names = [path.rpartition("/")[2] for path in home_of(catalog).list_names(DROPPED_DIR)]
    found = [_read(catalog, unquote(name)) for name in names if not name.startswith(".")]
    return [each for each in found if each is not None]


def forget_dropped(catalog: Catalog, folder: str) -> None:
    """Delete the record: nothing is left of the folder."""
    delete_in_batches(home_of(catalog), [_path(folder)])


def _path(folder: str) -> str:
    return f"{DROPPED_DIR}/{quote(folder, safe='')}"


def _read(catalog: Catalog, folder: str) -> Dropped | None:
    try:
        content = decode_document(home_of(catalog).get(_path(folder)), folder)
        if "table" not in content.content:
            return Dropped(folder)
        return Dropped(folder, content.text("table"), content.integer("version"), content.text("transaction"))
    except NotFoundError:
        return None
    except CorruptionError:
        return Dropped(folder)


# ------------------------------------------------------------------------------ is it the lake's?


class Kept:
    """Folders that collectors must not touch, whatever older versions of the lake list there."""

    def __init__(self, catalog: Catalog, live: Sequence[Row], lines: Sequence[Line]) -> None:
        """`live` is the newest state of the main branch; it must be read before the releases are."""
        self._catalog = catalog
        self._live = live
        self._listed = {row.location for rows in (live, *(line.rows for line in lines)) for row in rows}
        self._released = released(catalog)

    def why_released(self, folder: str) -> str | None:
        """The reason, if the table in this folder was deregistered."""
        return "it was deregistered" if self._released.has(folder, self._live) else None

    def why(self, folder: str, incarnation: str | None) -> str | None:
        """Why the folder of a table that some version of the lake has is not touched; None if it may be.

        A table that the lake only registered is maintained for as long as the lake lists it, and no longer.
        """
        why = self.why_released(folder)
        if why is not None or folder in self._listed or f"/{TREE_DIR}/" in folder:
            return why
        mark = created_in(self._catalog.opened(folder), folder)
        return None if mark is not None and mark == incarnation else "it was dropped, and this lake did not create it"


def why_kept(dropped: Dropped, objects: Objects) -> str | None:
    """Why the lake may not delete the folder; None if it may."""
    mark = created_in(objects, dropped.folder)
    if mark is None:
        return "it does not carry the mark of a table that this lake created"
    if dropped.incarnation != mark:
        return "its mark names another table than the one that was dropped"
    return _unknown_manifest(objects, dropped) or unknown_branch(objects)


def _unknown_manifest(objects: Objects, dropped: Dropped) -> str | None:
    """A version that the lake never had: another program writes the table."""
    for info in manifest_files(objects):
        parsed = parse_manifest_name(info.path.rpartition("/")[2])
        if parsed is None:
            continue
        if parsed.is_detached or parsed.version > dropped.version:
            return f"it has version {parsed.version}, which the lake never had"
        if parsed.version == dropped.version:
            try:
                snapshot = load_snapshot(objects, ManifestRef(parsed.version, info.path, parsed.naming))
                if not is_made_by(objects, snapshot, dropped.transaction):
                    return f"its version {parsed.version} is not the one that the lake had"
            except NotFoundError:  # another collector takes it
                continue
            except ConroiError as error:
                return f"its version {parsed.version} cannot be read: {error.message}"
    return None


def unknown_branch(objects: Objects) -> str | None:
    """A branch below the folder that the lake did not create."""
    for folder in sorted(branch_folders(objects)):
        if LAKE_BRANCH.fullmatch(folder.removeprefix(f"{TREE_DIR}/")) is None:
            return f"it has a branch {folder.removeprefix(f'{TREE_DIR}/')}, which the lake did not make"
    return None


_log = logging.getLogger(__name__)

LookedAt = Callable[[int], None]
"""Progress callback: number of tables processed so far."""


class History(Protocol):
    """The versions of a lake, in either kind of catalog store."""

    def versions(self) -> list[Aged]: ...

    def rows(self, kept: Sequence[Aged], gone: Sequence[Aged]) -> tuple[list[Row], list[Row]]:
        """The rows that retained versions have, and those that only expired ones had."""
        ...

    def forget(self, going: Sequence[Aged], storage_ns: int) -> list[Aged]:
        """Expire these versions, except those that are found to be held after the announcement; returns the expired
        ones.
        """
        ...

    def held(self, storage_ns: int) -> set[int]: ...

    def now_ns(self, storage_ns: int) -> int:
        """The time by the clock that dates the versions, which may be the storage's."""
        ...


@dataclass(frozen=True)
class ManifestHistory:
    """In `__manifest`."""

    files: TableStorage
    lines: Callable[[], Sequence[Line]]

    def versions(self) -> list[Aged]:
        return listed_versions(self.files.objects)

    def rows(self, kept: Sequence[Aged], gone: Sequence[Aged]) -> tuple[list[Row], list[Row]]:
        return list(rows_of(self.files, kept)), list(rows_of(self.files, gone))

    def forget(self, going: Sequence[Aged], storage_ns: int) -> list[Aged]:
        return forget(self.files.objects, going, lambda: self.held(storage_ns), self.files.environment)

    def held(self, storage_ns: int) -> set[int]:
        needed = [line.main_versions for line in self.lines()]
        return held_by_refs(self.files, storage_ns).union(*needed)

    def now_ns(self, storage_ns: int) -> int:
        return storage_ns


@dataclass(frozen=True)
class SqlHistory:
    """In a database, which never reuses a version number; there are no tags and no branches.

    Leases are in the folder of the lake, and so are the records that its collectors write for lease holders.
    """

    heads: SqlStore
    root: Objects
    environment: Environment

    def versions(self) -> list[Aged]:
        return [Aged(version, moment_ns) for version, moment_ns in self.heads.versions()]

    def rows(self, kept: Sequence[Aged], gone: Sequence[Aged]) -> tuple[list[Row], list[Row]]:  # noqa: ARG002
        return self.heads.rows_since(kept[0].version if kept else 0)

    def forget(self, going: Sequence[Aged], storage_ns: int) -> list[Aged]:
        note = Forgetting(self.root, [aged.version for aged in going], str(self.environment.new_uuid()))
        stays = self.held(storage_ns)
        gone = [aged for aged in going if aged.version not in stays]
        note.only([aged.version for aged in gone])
        for aged in gone:
            _log.info("expiring version %d of the lake", aged.version)
        if gone:
            self.heads.forget([aged.version for aged in gone])
        note.done()
        return gone

    def held(self, storage_ns: int) -> set[int]:
        return leased(self.root, storage_ns)

    def now_ns(self, storage_ns: int) -> int:  # noqa: ARG002
        return self.heads.now_ns()


def history_of(catalog: Catalog) -> History:
    """The history of the lake."""
    if catalog.manifest is not None:
        return ManifestHistory(catalog.manifest, lambda: lines_of(catalog))
    assert isinstance(catalog.heads, SqlStore), "a lake without __manifest has its history in a database"
    return SqlHistory(catalog.heads, catalog.root, catalog.environment)


def expire_lake(
    catalog: Catalog,
    *,
    older_than: Duration = OLDER_THAN,
    keep: int = KEEP,
    dry_run: bool = True,
    progress: LookedAt | None = None,
) -> Expired:
    """Expire versions of a lake and of its tables."""
    if catalog.branch is not None:
        raise InvalidInputError(
            "Old versions are expired for all branches at once.",
            hint="Call expire() on the main lake, as conroi.connect() gave it.",
        )
    age_ns, keep = oldest_ns(older_than), checked_keep(keep)
    history = history_of(catalog)
    now_ns = catalog.environment.now_ns() if dry_run else store_now_ns(home_of(catalog), catalog.environment)
    versions = history.versions()
    going = chosen(versions, history.now_ns(now_ns) - age_ns, keep, history.held(now_ns))
    doomed = {aged.version for aged in going}
    kept_rows, gone_rows = history.rows([aged for aged in versions if aged.version not in doomed], going)
    needed, before = Needed().add(kept_rows), Needed().add(gone_rows)
    lines = lines_of(catalog)
    for line in lines:
        needed.add(line.rows)
    kept = Kept(catalog, list(catalog.state().rows.values()), lines)
    if not dry_run:
        repair_lance_tags(catalog)
        note_dropped(catalog, before, needed)
        gone = history.forget(going, now_ns) if going else []
        spared = [aged for aged in going if aged not in gone]  # they were referenced concurrently
        needed.add(history.rows(spared, ())[0] if spared else ()).add(catalog.state().rows.values())
        going = gone
    work = _Tables(catalog, needed, kept, now_ns, now_ns - age_ns, is_dry_run=dry_run, progress=progress)
    tables = work.all()
    removed = {aged.version for aged in going}
    home = LAKE_MANIFEST if catalog.manifest is not None else ""
    return Expired(
        removed=tuple(sorted(removed)),
        kept=tuple(aged.version for aged in versions if aged.version not in removed),
        tables={needed.names[folder]: tuple(aged.version for aged in found) for folder, found in tables.items()},
        bytes=sum(aged.size for found in [going, *tables.values()] for aged in found),
        is_dry_run=dry_run,
        skipped=work.skipped,
        paths=_paths({home: going, **tables}),
    )


def _paths(found: Mapping[str, Sequence[Aged]]) -> tuple[str, ...]:
    return tuple(f"{folder}/{aged.path}" for folder, versions in found.items() for aged in versions if aged.path)


class _Tables:
    """The tables of the lake, on its main branch."""

    def __init__(
        self,
        catalog: Catalog,
        needed: Needed,
        kept: Kept,
        now_ns: int,
        cutoff_ns: int,
        *,
        is_dry_run: bool,
        progress: LookedAt | None,
    ) -> None:
        self._catalog = catalog
        self._needed = needed
        self._kept = kept
        self._now_ns = now_ns
        self.skipped: dict[str, str] = {}
        """By folder: why it was skipped."""
        self._cutoff_ns = cutoff_ns
        self._is_dry_run = is_dry_run
        self._progress = progress

    def all(self) -> dict[str, list[Aged]]:
        """By folder, the versions to expire."""
        # What is on a branch stays for as long as the branch does.
        folders = [folder for folder in self._needed.folders if f"/{TREE_DIR}/" not in folder]
        found: dict[str, list[Aged]] = {}
        results = in_parallel(self._one, folders, AT_ONCE)
        for count, (folder, gone) in enumerate(zip(folders, results, strict=True), 1):
            if gone:
                found[folder] = gone
            if self._progress is not None:
                self._progress(count)
        return found

    def _one(self, folder: str) -> list[Aged]:
        pinned = {pin.version for pin in self._needed.pins.get(folder, ())}
        if not pinned:
            return []  # the lake does not manage it yet
        why = self._kept.why(folder, self._needed.incarnations.get(folder))
        if why is not None:
            self.skipped[folder] = why
            return []
        objects = self._catalog.opened(folder)
        versions = FolderVersions(objects, environment=self._catalog.environment)
        files = TableStorage(objects, versions, self._catalog.environment)
        # From the newest pin on: what is published and not final yet, or was written past the lake, is not ours.
        below = [aged for aged in listed_versions(objects) if aged.version <= max(pinned)]
        old = [aged for aged in old_ones(below, self._cutoff_ns) if aged.version not in pinned]
        # The tags that protect a lake's versions from other clients keep nothing: the lake itself says what it needs.
        held = held_by_refs(files, self._now_ns, without=LAKE_TAG_PREFIX) if old else set[int]()
        going = [aged for aged in old if aged.version not in held]
        if not going or self._is_dry_run:
            return going
        return forget(
            objects,
            going,
            lambda: held_by_refs(files, self._now_ns, without=LAKE_TAG_PREFIX),
            self._catalog.environment,
        )
