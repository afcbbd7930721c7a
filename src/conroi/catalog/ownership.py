"""Ownership of table folders: which folders below a lake's root garbage collection may delete as a whole.

A lake owns a folder if it created the table in it. Creation writes a marker into the folder, before the first data
file, that names the table. A folder without the marker was created by another program, copied in, or registered: it is
never deleted. Deregistering a table releases its folder: a record beside the lake's history says so. The record is
written before the table leaves the catalog, so no collector sees the second without the first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, unquote

from conroi.catalog.catalog import Catalog, location_of
from conroi.catalog.forking import table_of
from conroi.catalog.rows import Row
from conroi.errors import CommitStateUnknown, ConroiError, CorruptionError, NotFoundError
from conroi.format.documents import decode_document, encode_document
from conroi.stores.listed import TEMPORARY_PREFIX
from conroi.stores.objects import Objects

MARK = "_conroi/created"
"""Marker in the folder of a table: which table the lake created there."""
_RELEASED = "_conroi/released"
"""Beside the lake's history: the folders of tables that were deregistered, one record each."""


def home_of(catalog: Catalog) -> Objects:
    """Where the lake stores records of its own: beside `__manifest`, or in its folder if a store has the history."""
    main = catalog.main
    return main.root if main.manifest is None else main.manifest.objects


# ------------------------------------------------------------------------------ creation


def mark_created(catalog: Catalog, row: Row) -> None:
    """Mark the folder of a table that is being created as the lake's own."""
    folder = table_of(location_of(row))
    put_mark(catalog.opened(folder), folder, row.incarnation)


def put_mark(objects: Objects, folder: str, incarnation: str) -> None:
    """Write the marker for the table with this id."""
    objects.put(MARK, encode_document({"table": incarnation, "folder": folder}))


def created_in(objects: Objects, folder: str) -> str | None:
    """The id of the table that the lake created in this folder; None without a marker, or with a copied one."""
    try:
        content = decode_document(objects.get(MARK), MARK)
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
    records = {f"{_RELEASED}/{quote(location_of(row), safe='')}": row.incarnation for row in rows}
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
    names = (path.rpartition("/")[2] for path in home_of(catalog).list_names(_RELEASED))
    return Released(frozenset(unquote(name) for name in names if not name.startswith(TEMPORARY_PREFIX)))
