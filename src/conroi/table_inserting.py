"""Table methods that insert, and reads that exclude the rows of an unfinished insert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conroi import history
from conroi.catalog.catalog import LakeTableFiles
from conroi.commit.files import TableFiles
from conroi.commit.snapshot import Snapshot, load_transaction
from conroi.errors import CorruptionError, InvalidInputError
from conroi.format.documents import parse_json
from conroi.inserting import Insert, insert
from conroi.locks.fence import PROPERTY, note_of

if TYPE_CHECKING:
    from conroi.data.incoming import Data


def insert_into(
    files: TableFiles, data: Data, *, chunk_rows: int | None, wait_s: float | None, message: str | None
) -> Snapshot:
    """Insert into this very table; returns its new version, without another request."""
    if not isinstance(files, LakeTableFiles) or files.catalog is None:
        raise InvalidInputError(
            "insert() is for tables of a lake.", table=files.root, hint="Use append(), which is one commit."
        )
    insert(files.catalog, files.object_id, Insert([data], chunk_rows, wait_s, message, incarnation=files.incarnation))
    return files.catalog.snapshot(files.row(files.catalog.known_state()))


def unfinished(files: TableFiles, snapshot: Snapshot) -> tuple[int, int] | None:
    """The row ids of an unfinished insert in this version; None if there is none."""
    if not isinstance(files, LakeTableFiles) or files.catalog is None:
        return None
    row = files.catalog.known_state().table(files.object_id)
    pin = None if row is None or row.incarnation != files.incarnation or note_of(row) is not None else row.pin
    if pin is not None and pin.version >= snapshot.version:
        return None  # there never was one
    for version in history.snapshots(files, newest=snapshot.version):
        transaction = load_transaction(files.objects, version)
        said = None if transaction is None else transaction.properties.get(PROPERTY)
        if said is not None:
            rows, is_complete = _said(said, files.root)
            end = version.manifest.head.next_row_id
            return None if is_complete else (end - rows, end)
    return None


def _said(text: str, table: str) -> tuple[int, bool]:
    """How many rows an insert has written so far, and whether it is complete."""
    match parse_json(text, "The note of an insert in a transaction"):
        case [_, int(rows), bool(is_complete)] if rows >= 0:
            return rows, is_complete
        case _:
            raise CorruptionError(
                "The note of an insert in a transaction is damaged.",
                table=table,
                hint="Open an older version of the table.",
            )
