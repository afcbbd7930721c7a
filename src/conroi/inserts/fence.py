"""Fencing token of an insert: recorded in the table's row, and verified at the commit of each piece."""

from __future__ import annotations

import json
from dataclasses import dataclass

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import shown
from conroi.catalog.rows import Row
from conroi.catalog.tables import LakeTableStorage
from conroi.errors import CorruptionError, InsertInterrupted, RetryableConflict
from conroi.format.json import parse_json
from conroi.format.on_disk import INSERT_PROPERTY
from conroi.history import snapshots
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_transaction

REPLACING = ("Overwrite", "Restore", "Clone", "Unknown")
"""Operations after which earlier rows may be gone although the next row id is unchanged."""


@dataclass(frozen=True)
class InsertNote:
    """The record of the newest insert into a table: the row ids from `first` up to, excluding, `next`."""

    id: str
    first: int
    next: int
    is_complete: bool

    def to_json(self) -> str:
        return json.dumps([self.id, self.first, self.next, self.is_complete], separators=(",", ":"))


def note_of(row: Row) -> InsertNote | None:
    """The record of the newest insert in the row."""
    if row.insert is None:
        return None
    try:
        noted: object = parse_json(row.insert, "The note on the newest insert")
    except CorruptionError:
        noted = None
    match noted:
        case [str(id_), int(first), int(following), bool(is_complete)]:
            return InsertNote(id_, first, following, is_complete)
        case _:
            raise CorruptionError(
                f"The note on the newest insert into {row.object_id!r} is damaged.",
                table=row.object_id,
                hint="Open an older version of the lake with lake.at(version=…).",
            )


class Fence:
    """Precondition of one piece of an insert: it is committed right after the previous piece, or not at all."""

    def __init__(self, catalog: Catalog, row: Row, insert_id: str, *, keeps_remains: bool = False) -> None:
        self.object_id: str = row.object_id
        self._incarnation = row.incarnation
        self._catalog = catalog
        self._id = insert_id
        self._keeps_remains = keeps_remains
        self.landed: InsertNote | None = None
        """The part of the insert that is committed."""
        self._next: InsertNote | None = None
        self._landed_in: Row | None = None
        """The table's row with its newest piece."""
        self._published: Row | None = None
        self._rows = 0
        self._is_last = False

    def piece(self, rows: int, *, is_last: bool) -> Fence:
        """Announce the piece that is about to be published."""
        self._rows, self._is_last = rows, is_last
        return self

    def check(self, row: Row | None) -> None:
        if row is None or row.incarnation != self._incarnation:
            raise self._interrupted("The table was dropped while rows were being inserted.")
        note, at = note_of(row), self._catalog.snapshot(row).manifest.head.next_row_id
        if self.landed is None:
            self._check_first(note)
            first = at
        else:
            if note is None or note.id != self._id:
                raise self._interrupted("Another worker has taken the place of this insert, whose lock was lost.")
            if at != self.landed.next:
                raise self._interrupted("Rows that took no lock were added behind what was inserted so far.")
            self._check_line(row)
            first = self.landed.first
        self._next = InsertNote(self._id, first, at + self._rows, self._is_last)

    def _check_line(self, row: Row) -> None:
        """Refuse unless the version of the newest piece is an ancestor of this one, with no replacement in between."""
        before = self._landed_in
        assert before is not None, "publishing_done() noted it"
        assert before.pin is not None, "a published row has a pin"
        now = row.pin
        if now is not None and now.version == before.pin.version and now.transaction == before.pin.transaction:
            return
        is_one_line = now is not None and row.location == before.location and row.repaired_in <= before.pin.version
        if now is None or not is_one_line or now.version <= before.pin.version:
            raise self._interrupted("The table's version with what was inserted so far was replaced by another.")
        found = self._catalog.operations_between(row, before.pin.version, now.version)
        replacing = next((name for name in found if name in REPLACING), None)
        if replacing is not None:
            what = "a version that cannot be read" if replacing == "Unknown" else f"a concurrent {replacing}"
            raise self._interrupted(f"What was inserted so far may have been replaced by {what}.")
        for version, name in enumerate(found, before.pin.version + 1):
            if name == "Merge" and self._rows_in(row, version) < self._rows_in(row, version - 1):
                raise self._interrupted("What was inserted so far was replaced by a merge of branches or of schemas.")

    def _rows_in(self, row: Row, version: int) -> int:
        """How many rows of this insert the version has, deleted ones included."""
        assert self.landed is not None
        assert row.pin is not None
        is_newest = version == row.pin.version
        found = self._catalog.snapshot(row) if is_newest else self._catalog.final_version(row, version)
        return found.count_row_ids(self.landed.first, self.landed.next)

    def _check_first(self, note: InsertNote | None) -> None:
        if note is not None and not note.is_complete and not self._keeps_remains:
            raise RetryableConflict(
                "An insert into the table is not finished: its worker crashed, or one of the two lost the lock.",
                table=shown(self.object_id),
                hint="Insert again.",
            )

    def amended(self, row: Row) -> Row:
        assert self._next is not None, "check() comes first"
        self._published = row.with_insert(self._next.to_json())
        return self._published

    def publishing_done(self) -> None:
        """The piece was committed."""
        self.landed, self._landed_in = self._next, self._published

    def _interrupted(self, what: str) -> InsertInterrupted:
        return InsertInterrupted(
            what,
            table=shown(self.object_id),
            hint="The insert was not finished, and its rows do not stay. Insert again; let all writers of rows in "
            "this table use insert().",
        )


@dataclass(frozen=True)
class Removal:
    """The removal of an unfinished insert: it must not have been continued concurrently."""

    object_id: str
    unfinished: InsertNote
    by: str
    """The id of the insert that removes it; the unfinished one is fenced off from then on."""

    def check(self, row: Row | None) -> None:
        if row is None or note_of(row) != self.unfinished:
            raise RetryableConflict(
                "The unfinished insert changed while it was being removed.",
                table=shown(self.object_id),
                hint="Insert again.",
            )

    def amended(self, row: Row) -> Row:
        return row.with_insert(InsertNote(self.by, self.unfinished.first, self.unfinished.first, True).to_json())


def unfinished(files: TableStorage, snapshot: Snapshot) -> tuple[int, int] | None:
    """The row ids of an unfinished insert in this version; None if there is none."""
    if not isinstance(files, LakeTableStorage) or files.catalog is None:
        return None
    row = files.catalog.known_state().table(files.object_id)
    pin = None if row is None or row.incarnation != files.incarnation or note_of(row) is not None else row.pin
    if pin is not None and pin.version >= snapshot.version:
        return None  # there never was one
    for version in snapshots(files, newest=snapshot.version):
        transaction = load_transaction(files.objects, version)
        said = None if transaction is None else transaction.properties.get(INSERT_PROPERTY)
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
