"""Garbage collection of dropped tables: a folder is recorded when the last lake version with the table expires.

A record names the table and the newest version that the lake had of it. The folder is deleted only if it still holds
that table: it carries the marker of its creation, and every manifest in it is one that the lake had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from conroi.catalog.catalog import Catalog
from conroi.catalog.opening import MANIFEST
from conroi.catalog.ownership import created_in, home_of, released
from conroi.catalog.rows import Row
from conroi.commit.forked import TREE
from conroi.commit.pins import is_made_by
from conroi.commit.snapshot import load_snapshot
from conroi.errors import ConroiError, CorruptionError, NotFoundError
from conroi.format.documents import decode_document, encode_document
from conroi.format.naming import parse_manifest_name
from conroi.maintenance.roots import LAKE_BRANCH, Line, Needed
from conroi.maintenance.versions import delete_in_batches
from conroi.stores.manifest_files import branch_folders, manifest_files
from conroi.stores.objects import Objects
from conroi.stores.versions import Located

_DIR = "_conroi/dropped"


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
        if is_kept or f"/{TREE}/" in folder or folder == MANIFEST or folder not in before.incarnations:
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
    names = [path.rpartition("/")[2] for path in home_of(catalog).list_names(_DIR)]
    found = [_read(catalog, unquote(name)) for name in names if not name.startswith(".")]
    return [each for each in found if each is not None]


def forget_dropped(catalog: Catalog, folder: str) -> None:
    """Delete the record: nothing is left of the folder."""
    delete_in_batches(home_of(catalog), [_path(folder)])


def _path(folder: str) -> str:
    return f"{_DIR}/{quote(folder, safe='')}"


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
        if why is not None or folder in self._listed or f"/{TREE}/" in folder:
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
                snapshot = load_snapshot(objects, Located(parsed.version, info.path, parsed.naming))
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
        if LAKE_BRANCH.fullmatch(folder.removeprefix(f"{TREE}/")) is None:
            return f"it has a branch {folder.removeprefix(f'{TREE}/')}, which the lake did not make"
    return None
