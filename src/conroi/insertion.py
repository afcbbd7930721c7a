"""Inserts: the rows of one insert get one unbroken run of row ids, in one commit or in several."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import object_id, shown
from conroi.catalog.rows import Row
from conroi.catalog.state import CommitMetadata
from conroi.catalog.tables import LakeTableStorage, table_files
from conroi.data.casts import checked_columns
from conroi.data.incoming import from_elsewhere, is_one_shot, to_reader
from conroi.data.scans import Scan
from conroi.data.table_version import TableVersion
from conroi.environment import moment
from conroi.errors import (
    AlreadyExistsError,
    ConroiError,
    IncompatibleConflict,
    InvalidInputError,
    NotFoundError,
    RetryableConflict,
)
from conroi.format.on_disk import INSERT_PROPERTY
from conroi.inserts.fence import Fence, InsertNote, Removal, note_of
from conroi.inserts.insert_locks import Holding, check_wait, locks_of
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.transaction import Transaction

if TYPE_CHECKING:
    from conroi.data.incoming import Data


_log = logging.getLogger(__name__)

ATTEMPTS = 5
"""Maximum number of attempts to commit a piece while unfinished inserts of other workers are in the way."""

Piece = Sequence[object]
"""Data of one commit of an insert."""
Remains = Literal["remove", "keep"]
"""What to do with the partial insert of a crashed worker."""


@dataclass(frozen=True)
class Insert:
    """An insert request."""

    sources: Piece
    chunk_rows: int | None = None
    wait_s: float | None = None
    message: str | None = None
    remains: Remains = "remove"
    incarnation: str | None = None
    """The table id that is meant; None for any table of that name."""

    def __post_init__(self) -> None:
        if self.chunk_rows is not None and not 1 <= self.chunk_rows < 1 << 63:
            raise InvalidInputError(
                f"chunk_rows={self.chunk_rows} is not a number of rows.", hint="Give 1 or more, or leave it out."
            )
        check_remains(self.remains)
        check_wait(self.wait_s)


def insert(catalog: Catalog, key: str, what: Insert) -> int:
    """Acquire the table's lock and insert; returns the number of rows. Every insert of a lake goes through here."""
    with locks_of(catalog).held(key, what.wait_s) as holding:
        if what.incarnation is not None and holding.row.incarnation != what.incarnation:
            raise NotFoundError(
                f"The table {shown(key)!r} was dropped and created again.",
                table=shown(key),
                hint="lake[name] opens the table that has this name now.",
            )
        # A DataFrame is written once, however often its piece is tried.
        sources = [from_elsewhere(each) or each for each in what.sources]
        return Inserting(catalog, holding, replace(what, sources=sources)).run()


def write(catalog: Catalog, name: str, data: Data, key: str | Sequence[str] | None, what: Insert) -> None:
    """Insert into the table of this name; one that does not exist is created, with stable row ids.

    A new table and its rows are one commit; with `chunk_rows` the table is created first.
    """
    rows: Any = data
    if catalog.state().table(object_id(name)) is None:
        locks_of(catalog).check_available()
        if what.chunk_rows is None:
            rows = _create_with(catalog, name, data, key, what)
            if rows is None:
                return
        else:
            rows = from_elsewhere(data) or to_reader(data)
            with (
                contextlib.suppress(AlreadyExistsError),  # created concurrently by another worker
                Transaction(catalog, notes=CommitMetadata(f"create {name}")) as tx,
            ):
                tx.create_table(name, rows.schema, key=key, stable_row_ids=True)
    insert(catalog, object_id(name), replace(what, sources=[rows]))


def _create_with(catalog: Catalog, name: str, rows: Any, key: str | Sequence[str] | None, what: Insert) -> Any:
    """Create a table with its rows, in one commit, under the lock of the new table.

    Returns None; or, if a concurrent worker created the table first, the rows again: those of a consumed stream are
    read from the files that were written for the table.
    """
    written: TableVersion | None = None
    notes = CommitMetadata(what.message or f"insert into {name}")
    try:
        with contextlib.ExitStack() as stack, Transaction(catalog, notes=notes) as tx:
            written = tx.create_table(name, rows, key=key, stable_row_ids=True).scan.pinned
            lock = tx.row_of(name).lock
            assert lock is not None, "a new row has a lock id"
            stack.callback(locks_of(catalog).hold(lock, name, what.wait_s).release)
    except AlreadyExistsError:
        return rows if written is None or not is_one_shot(rows) else Scan(written).stored_rows()
    return None


def check_remains(remains: str) -> None:
    """Validate the option."""
    if remains not in get_args(Remains):
        raise InvalidInputError(f"remains={remains!r} is not known.", hint='Give "remove" or "keep".')


class Inserting:
    """One insert, under its lock."""

    def __init__(self, catalog: Catalog, holding: Holding, what: Insert) -> None:
        self._catalog = catalog
        self._holding = holding
        self._what = what
        self._row: Row = holding.row
        self._name = shown(holding.row.object_id)
        self._id = str(catalog.environment.new_uuid())
        self._fence = Fence(catalog, holding.row, self._id, keeps_remains=what.remains == "keep")
        self._is_stable = catalog.snapshot(holding.row).manifest.has_stable_row_ids
        self._rows = 0
        is_elsewhere = any(from_elsewhere(source) is not None for source in what.sources)
        self._written_at = moment(catalog.environment) if is_elsewhere else None
        """Files of any piece may be as old as this; None if each piece writes its own."""

    def run(self) -> int:
        """All pieces, or none."""
        if self._what.chunk_rows is not None and not self._is_stable:
            raise InvalidInputError(
                "An insert in several commits needs row ids that stay.",
                table=self._name,
                hint="Make the table with stable_row_ids=True, or leave out chunk_rows.",
            )
        try:
            for piece, is_last in _with_last(self._pieces()):
                self._holding.confirm()
                self._in_spite_of_remains(piece, is_last)
        except BaseException:
            self._take_back()
            raise
        return self._rows

    def _pieces(self) -> Iterator[Piece]:
        size = self._what.chunk_rows
        if size is None:
            yield self._what.sources
            return
        pinned = self._pinned()
        for source in self._what.sources:
            elsewhere = from_elsewhere(source)
            if elsewhere is None:
                for chunk in chunks(to_reader(source, pinned.schema), size):
                    yield [chunk]
                continue
            checked_columns(elsewhere.schema, pinned.schema, table=self._name)  # before executors start to work
            key = pinned.key
            for part in elsewhere.in_pieces(pinned.writer(), pinned.schema, key, size):
                yield [part]

    def _pinned(self) -> TableVersion:
        row, snapshot = self._catalog.newest(lambda state: self._catalog.row(self._row.object_id, state))
        return TableVersion(table_files(self._catalog, row), snapshot)

    # ------------------------------------------------------------------------ one piece

    def _in_spite_of_remains(self, piece: Piece, is_last: bool) -> None:
        """Commit the first piece; a partial insert of a crashed worker is removed first, in a commit of its own."""
        is_reusable = not any(map(is_one_shot, piece))
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._is_stable and self._fence.landed is None and self._what.remains == "remove":
                    self._remove_remains()
                self._commit(piece, is_last)
            except RetryableConflict:
                if attempt == ATTEMPTS or not is_reusable:
                    raise
            else:
                return

    def _commit(self, piece: Piece, is_last: bool) -> None:
        tx = self._begin(self._what.message or f"insert into {self._name}")
        try:
            table = tx[self._name]
            for data in piece:
                table.append(data)  # pyright: ignore[reportArgumentType]
            rows = tx.rows_added(self._name)
            if not rows:
                tx.rollback()
                return
            if self._is_stable:
                tx.amend(self._fence.piece(rows, is_last=is_last))
                tx.note(INSERT_PROPERTY, json.dumps([self._id, self._rows + rows, is_last]))
        except BaseException:
            tx.rollback()
            raise
        tx.commit()
        self._fence.publishing_done()
        self._rows += rows

    def _begin(self, message: str) -> Transaction:
        return Transaction(self._catalog, notes=CommitMetadata(message), begun_at=self._written_at)

    # ------------------------------------------------------------------------ remains

    def _remove_remains(self) -> None:
        row = self._catalog.state().table(self._row.object_id)
        note = None if row is None else note_of(row)
        if note is not None and not note.is_complete:
            _log.warning("%s: removing the rows of an insert that was not finished", self._name)
            try:
                self._remove(note, f"remove an unfinished insert from {self._name}")
            except IncompatibleConflict as error:
                # The whole table was replaced concurrently; the next attempt checks whether those rows still exist.
                raise RetryableConflict(error.message, table=error.table, hint="Insert again.") from error

    def _remove(self, note: InsertNote, message: str) -> None:
        tx = self._begin(message)
        try:
            tx[self._name].delete(f"_rowid >= {note.first} AND _rowid < {note.next}")
            tx.amend(Removal(self._row.object_id, note, self._id))
            tx.note(INSERT_PROPERTY, json.dumps([self._id, 0, True]))
        except BaseException:
            tx.rollback()
            raise
        tx.commit()

    def _take_back(self) -> None:
        """Roll back the committed pieces of a failed insert, best effort; else the next worker removes them."""
        landed = self._fence.landed
        if landed is not None and not landed.is_complete:
            with contextlib.suppress(ConroiError):
                self._remove(landed, f"take back an insert into {self._name} that failed")


def chunks(reader: pa.RecordBatchReader, rows: int) -> Iterator[pa.Table]:
    """Tables of this many rows; the last may be smaller."""
    kept: list[pa.RecordBatch] = []
    count = 0
    for batch in reader:
        rest = batch
        while rest.num_rows:
            part = rest.slice(0, rows - count)
            rest = rest.slice(part.num_rows)
            kept.append(part)
            count += part.num_rows
            if count == rows:
                yield pa.Table.from_batches(kept)
                kept, count = [], 0
    if kept:
        yield pa.Table.from_batches(kept)


def _with_last(pieces: Iterable[Piece]) -> Generator[tuple[Piece, bool]]:
    """Each piece, and whether it is the last."""
    before: Piece | None = None
    for piece in pieces:
        if before is not None:
            yield before, False
        before = piece
    if before is not None:
        yield before, True


def insert_into(
    files: TableStorage, data: Data, *, chunk_rows: int | None, wait_s: float | None, message: str | None
) -> Snapshot:
    """Insert into this very table; returns its new version, without another request."""
    if not isinstance(files, LakeTableStorage) or files.catalog is None:
        raise InvalidInputError(
            "insert() is for tables of a lake.", table=files.root, hint="Use append(), which is one commit."
        )
    insert(files.catalog, files.object_id, Insert([data], chunk_rows, wait_s, message, incarnation=files.incarnation))
    return files.catalog.snapshot(files.row(files.catalog.known_state()))
