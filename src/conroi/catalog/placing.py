"""Folder allocation for tables that a merge brings to a branch. A folder holds one linear history and is never reused.

Two tables in one folder, or a table that was dropped and created again, would use the same version numbers for
different versions. Readers of older states, pylance by path, and caches keyed by folder and version would confuse them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from conroi.catalog.catalog import Catalog, location_of
from conroi.catalog.creating import new_location
from conroi.catalog.forking import seen_on
from conroi.catalog.ownership import MARK, mark_created
from conroi.catalog.rows import Row
from conroi.errors import NotFoundError
from conroi.format.documents import encode_document
from conroi.stores.forgotten import FORGOTTEN_DIR
from conroi.stores.manifest_files import manifest_files
from conroi.stores.objects import Objects
from conroi.stores.swept import SWEPT_DIR


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
    target.objects(location_of(row)).put(MARK, _claim(row))
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
    objects = target.objects(location_of(row))
    if _had_versions(objects):
        return False
    if target.branch is None:
        return True
    if not all(map(row.continues, _earlier_rows(target, location_of(row)))):
        return False
    try:
        return objects.get(MARK) == _claim(row)
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
    listings = (manifest_files(objects), objects.list(FORGOTTEN_DIR), objects.list(SWEPT_DIR))
    return any(next(iter(each), None) is not None for each in listings)


def _claim(row: Row) -> bytes:
    """The marker in the folder of a table on a branch that names its history, before there is a version."""
    return encode_document({"table": row.incarnation, "folder": row.location, "lineage": row.lineage})
