"""Folders: what is in one (a lake, or a table of Lance, Delta, Iceberg or Hudi); and the table folders below a lake's
root, their ownership, the folder of a new table, and folders on branches.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from urllib.parse import quote, unquote

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import folder_name, shown
from conroi.catalog.rows import TABLE, Row, new_table_row, seen_on, table_of
from conroi.errors import CommitStateUnknown, ConroiError, CorruptionError, NotFoundError
from conroi.format.json import decode_document, encode_document
from conroi.format.on_disk import (
    COLLECTED_DIR,
    CREATED_MARK,
    EXPIRED_DIR,
    LAKE_MANIFEST,
    RELEASED_DIR,
    ROW_INCARNATION,
    TEMPORARY_PREFIX,
    VERSIONS_DIR,
)
from conroi.snapshots.branch_storage import branch_folder
from conroi.storage.objects import ObjectExists, Objects
from conroi.versions.external import FinalPut
from conroi.versions.listing import manifest_files


def home_of(catalog: Catalog) -> Objects:
    """Where the lake stores records of its own: beside `__manifest`, or in its folder if a store has the history."""
    main = catalog.main
    return main.root if main.manifest is None else main.manifest.objects


# ------------------------------------------------------------------------------ creation


def mark_created(catalog: Catalog, row: Row) -> None:
    """Mark the folder of a table that is being created as the lake's own."""
    folder = table_of(row.folder)
    put_mark(catalog.opened(folder), folder, row.incarnation)


def put_mark(objects: Objects, folder: str, incarnation: str) -> None:
    """Write the marker for the table with this id."""
    objects.put(CREATED_MARK, encode_document({"table": incarnation, "folder": folder}))


def created_in(objects: Objects, folder: str) -> str | None:
    """The id of the table that the lake created in this folder; None without a marker, or with a copied one."""
    try:
        content = decode_document(objects.get(CREATED_MARK), CREATED_MARK)
        return content.text("table") if content.text("folder") == folder else None
    except NotFoundError:
        return None
    except CorruptionError:
        return None  # torn or replaced: nothing says that the folder is ours


# ------------------------------------------------------------------------------ deregistration


@dataclass(frozen=True)
class Released:
    """The folders of tables that were deregistered."""

    folders: frozenset[str]

    def has(self, folder: str, live: Iterable[Row]) -> bool:
        """Whether the folder was released; not while the lake lists a table there."""
        return folder in self.folders and not any(row.location == folder for row in live)


@contextmanager
def releasing(catalog: Catalog, rows: Sequence[Row]) -> Generator[None]:
    """Context manager around the deregistration of tables: from now on their folders are not collected.

    If the publication is refused, the records are removed again. If the outcome is unknown they stay.
    """
    home = home_of(catalog)
    records = {f"{RELEASED_DIR}/{quote(row.folder, safe='')}": row.incarnation for row in rows}
    for path, incarnation in records.items():
        home.put(path, encode_document({"table": incarnation}))
    try:
        yield
    except CommitStateUnknown:
        raise
    except ConroiError:
        home.delete(list(records))
        raise


def released(catalog: Catalog) -> Released:
    """All folders that were released."""
    names = (path.rpartition("/")[2] for path in home_of(catalog).list_names(RELEASED_DIR))
    return Released(frozenset(unquote(name) for name in names if not name.startswith(TEMPORARY_PREFIX)))


def new_location(catalog: Catalog, object_id: str) -> str:
    """The folder for a new table: named after it if that is free, else one that was never used.

    A table that is dropped and created again gets another folder, so that a paused writer of the old one cannot touch
    the new one.
    """
    plain = f"{object_id}.lance"
    if catalog.branch is not None:  # no other branch may choose the same name
        return branch_folder(_unused(catalog, object_id), catalog.branch)
    # Of names that are not fit for a folder, two could get the same one.
    if folder_name(object_id) == object_id and next(iter(catalog.objects(plain).list_names("")), None) is None:
        return plain
    return _unused(catalog, object_id)


def new_row(catalog: Catalog, object_id: str) -> Row:
    """The row of a table to be created, with a folder and a table id of its own."""
    row = new_table_row(object_id, new_location(catalog, object_id), catalog.environment)
    return row.with_notes({ROW_INCARNATION: str(catalog.environment.new_uuid())})


def found_row(catalog: Catalog, object_id: str, location: str, properties: Mapping[str, str] | None = None) -> Row:
    """The row of an existing table that other software created in this folder, pinned at its newest version.

    It is another table than one that the lake had in the same folder before.
    """
    incarnation = {ROW_INCARNATION: str(catalog.environment.new_uuid())}
    row = catalog.pinned(Row(object_id, TABLE, location).with_notes({**(properties or {}), **incarnation}))
    if row.pin is None:
        raise NotFoundError(
            f"There is no Lance table in the folder {location!r} of the lake.",
            table=shown(object_id),
            hint="Give the folder as it is called inside the lake, such as orders.lance.",
        )
    return row


def _unused(catalog: Catalog, object_id: str) -> str:
    uuid = catalog.environment.new_uuid()
    digest = hashlib.sha256(uuid.bytes).hexdigest()[:8]
    return f"{digest}_{folder_name(object_id)}"


def can_inherit(target: Catalog, source: Catalog, row: Row) -> bool:
    """Whether the target may read a table of the source where it is.

    On the main branch a table stays; the files of another branch are deleted with that branch.
    """
    return target.branch is not None and (source.branch is None or row.is_inherited)


def inherited_row(target: Catalog, source: Row, current: Row | None) -> Row:
    """The row by which a branch reads a table of another branch where it is; `current` is its row of that table now.

    It stays in its folder if the versions there continue those of the source; otherwise a free folder is used.
    """
    assert target.branch is not None, "the main branch has its tables in folders of its own"
    row = seen_on(target.branch, source)
    if current is not None and current.is_inherited and row.continues(current):
        return row
    if not _is_free(target, row):
        row = row.moved(new_location(target, row.object_id), row.lineage)
        mark_created(target, row)
    target.objects(row.folder).put(CREATED_MARK, _claim(row))
    return row


def brought_row(target: Catalog, source: Row) -> Row:
    """The row of a table that is copied to a branch with its files, in a folder that has no versions and never had any.

    Never in the folder of its source table, or in one below it: to pylance it would be a branch of that table, or have
    it as a branch, and its versions do not say so.
    """
    return source.moved(new_location(target, source.object_id), ())


def _is_free(target: Catalog, row: Row) -> bool:
    """Whether the folder of the row has no history, and never had one; or exactly this one.

    A folder that was never written may still be the one by which older states of the branch read inherited versions.
    """
    objects = target.objects(row.folder)
    if _had_versions(objects):
        return False
    if target.branch is None:
        return True
    if not all(map(row.continues, _earlier_rows(target, row.folder))):
        return False
    try:
        return objects.get(CREATED_MARK) == _claim(row)
    except NotFoundError:
        return True


def _earlier_rows(target: Catalog, location: str) -> Iterator[Row]:
    """The rows that states of the branch have had of the table in this folder."""
    began = target.identity.parent_version
    yield from (row for row in target.at(began).tables() if row.location == location)
    for published in takewhile(
        lambda each: each.version > began, target.heads.history(target.known_state().version, None)
    ):
        rows = (published.changes or {}).values()
        yield from (row for row in rows if row is not None and row.location == location)


def _had_versions(objects: Objects) -> bool:
    listings = (manifest_files(objects), objects.list(EXPIRED_DIR), objects.list(COLLECTED_DIR))
    return any(next(iter(each), None) is not None for each in listings)


def _claim(row: Row) -> bytes:
    """The marker in the folder of a table on a branch that names its history, before there is a version."""
    return encode_document({"table": row.incarnation, "folder": row.location, "lineage": row.lineage})


# ------------------------------------------------------------------------------ kinds of folders

_TABLE_FOLDERS = {VERSIONS_DIR: "a Lance table", "_delta_log": "a Delta table", ".hoodie": "a Hudi table"}
_ICEBERG_FOLDER, _ICEBERG_METADATA = "metadata", ".metadata.json"
_LOOKED_AT = 1000
"""So many files of a folder `metadata` are looked at."""


def content_of(folder: Objects) -> str | None:
    """What kind of table or lake a folder is; None if it is none."""
    if folder.is_local:
        path = folder.root
        if any(os.path.exists(f"{path}/{name}") for name in (LAKE_MANIFEST, MARKER)):
            return "a lake"
        for name, kind in _TABLE_FOLDERS.items():
            if os.path.isdir(f"{path}/{name}"):
                return kind
        with contextlib.suppress(OSError):
            if any(name.endswith(_ICEBERG_METADATA) for name in os.listdir(f"{path}/{_ICEBERG_FOLDER}")):
                return "an Iceberg table"
        return None
    if folder.head(MARKER) is not None or _has(folder, LAKE_MANIFEST):
        return "a lake"
    for name, kind in _TABLE_FOLDERS.items():
        if _has(folder, name):
            return kind
    names = itertools.islice(folder.list_names(_ICEBERG_FOLDER), _LOOKED_AT)
    return "an Iceberg table" if any(name.endswith(_ICEBERG_METADATA) for name in names) else None


def _has(folder: Objects, name: str) -> bool:
    return next(iter(folder.list_names(name)), None) is not None


MARKER = "__conroi.json"


@dataclass(frozen=True, slots=True)
class Marker:
    """What the file says."""

    history: str
    """The kind of store: `sqlite` or `postgresql`."""
    lake: str | None = None
    """The id of the lake in the store; None if an older conroi wrote the file, whose ids are the lakes' folders."""


def marker(root: Objects) -> Marker | None:
    """The marker of the lake in this folder; None if it has no store, or there is no lake."""
    try:
        content = decode_document(root.get(MARKER), MARKER)
        return Marker(content.text("history"), content.optional_text("lake"))
    except NotFoundError:
        return None
    except CorruptionError as error:
        raise CorruptionError(
            f"The file {MARKER} of the lake cannot be read.",
            table=root.root,
            hint='Write {"history": "postgresql"} or {"history": "sqlite"} into it, whichever the lake has, and open '
            "the lake with its store, which adds the rest.",
        ) from error


def mark(root: Objects, made: Marker) -> Marker:
    """Write the marker, unless there is one; returns its content. Works on storage without conditional writes."""
    try:
        FinalPut().put_new(root, MARKER, _encoded(made))
    except ObjectExists:
        return marker(root) or made
    return made


def mark_again(root: Objects, changed: Marker) -> None:
    """Replace the marker after the lake got another id."""
    root.put(MARKER, _encoded(changed))


def _encoded(made: Marker) -> bytes:
    return encode_document({"history": made.history, "lake": made.lake})
