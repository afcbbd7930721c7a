"""Tables of a multi-table transaction: names, a handle for each that was opened, the write set and the read set.

The read set is what serializable isolation checks at the commit: the tables that were read, and the names that were
looked up, found or not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import parents, shown
from conroi.catalog.participant import TableChange
from conroi.catalog.preconditions import Expectation, ListingExpectation, TagsExpectation
from conroi.catalog.renames import Named, Names
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.catalog.tables import LakeTableStorage, table_files
from conroi.commit.change import Change, Plan
from conroi.environment import Moment
from conroi.errors import AlreadyExistsError, NotFoundError, about
from conroi.folding import Statements
from conroi.snapshots.table_storage import version_in_use
from conroi.staged_table import Handle, TransactionState, VersionsUpTo


class TransactionTables:
    """The tables of a transaction, by their current names."""

    def __init__(self, catalog: Catalog, base: LakeState, life: TransactionState, lock: threading.RLock) -> None:
        self.names = Names(base)
        self.handles: dict[str, Handle] = {}
        """Those that were opened, by the current name of the table."""
        self._catalog = catalog
        self._base = base
        self._life = life
        self._lock = lock
        self._opening: dict[str, threading.Lock] = {}
        self._reads: dict[str, Expectation] = {}
        """Of tables that were read and then dropped, and of those that have no version yet."""
        self._dropped: list[Handle] = []
        self._present: set[str] = set()
        """Names of the snapshot that were looked up and found."""
        self._missed: set[str] = set()
        """Names that were looked up and not found."""
        self._is_listed = False

    # ------------------------------------------------------------------------ looking up

    def find(self, key: str) -> Named | None:
        """The table of this name; the result, found or not, is part of the read set."""
        named = self.names.get(key)
        (self._missed if named is None else self._present).add(key)
        return named

    def list(self) -> list[str]:
        """All names, which are part of the read set."""
        self._is_listed = True
        return self.names.all()

    def check_free(self, key: str) -> None:
        """AlreadyExistsError if the name cannot be given to a table; counts as a read."""
        try:
            self.names.check_free(key)
        except AlreadyExistsError:
            self._present |= {each for each in (key, *parents(key)) if self.names.get(each) is not None}
            raise

    def note_missing(self, key: str) -> None:
        """A name that is to go: that it is there is checked anyway when the transaction commits."""
        if self.names.get(key) is None:
            self._missed.add(key)

    # ------------------------------------------------------------------------ opening

    def open(self, key: str) -> Handle:
        """Opened once; a failed opening is not cached."""
        with self._lock:
            self._life.check_open()
            found = self.handles.get(key)
            if found is not None:
                return found
            self.find(key)
            row = self.names.require(key).row
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:
            with self._lock:
                if key in self.handles:
                    return self.handles[key]
            objects = self._catalog.objects_of(row)
            try:
                with about(shown(key)), version_in_use(objects, None, is_base=True):
                    snapshot = self._catalog.snapshot(row)
            except NotFoundError:
                self._unwritten(key, row)
                raise
            files = self.storage(row)
            handle = self._new_handle(row, files, Statements(files, snapshot))
            with self._lock:
                self._life.check_open()
                return self.handles.setdefault(key, handle)

    def storage(self, row: Row) -> LakeTableStorage:
        """The storage of a table."""
        return table_files(self._catalog, row)

    def _new_handle(self, row: Row, files: LakeTableStorage, statements: Statements) -> Handle:
        base = statements.base
        newest = None if base is None else partial(self._catalog.located, row)
        versions = VersionsUpTo(self._catalog.folder_of(row), 0 if base is None else base.version, newest)
        return Handle(shown(row.object_id), files, statements, self._life, versions=versions)

    def _unwritten(self, key: str, row: Row) -> None:
        """A declared table without versions was read: it must still have none at the commit."""
        if row.pin is None:
            with self._lock:
                self._reads[key] = Expectation(key, 0, row.incarnation, is_explicit=False)

    # ------------------------------------------------------------------------ creating, renaming, dropping

    def add(self, row: Row, files: LakeTableStorage, first: Plan, name: Callable[[Names, Row], None]) -> None:
        """A table that begins with this plan; `name` puts its row among the names."""
        statements = Statements(files, None).then(first)
        with self._lock:
            self._life.check_open()
            name(self.names, row)
            self.handles[row.object_id] = self._new_handle(row, files, statements)

    def remove(self, key: str) -> None:
        """A dropped table stays in the read set, if it was read."""
        with self._lock:
            self._life.check_open()
            read = self._read_expectation(key)
            self.note_missing(key)
            self.names.forget(key)
            handle = self.handles.pop(key, None)
            if read is not None:
                self._reads[read.object_id] = read
            if handle is not None:
                self._dropped.append(handle)

    def rename(self, key: str, wanted: str) -> None:
        """A table that is open keeps its statements."""
        with self._lock:
            self._life.check_open()
            self.note_missing(key)
            if self.names.get(key) is not None:
                self.check_free(wanted)
            self.names.rename(key, wanted)
            handle = self.handles.pop(key, None)
            if handle is not None:
                handle.name = shown(wanted)
                self.handles[wanted] = handle

    def arrange(self, moves: Mapping[str, str | None]) -> None:
        """New names of tables by their old ones, None for those dropped, all at once; before any table is opened."""
        with self._lock:
            self._life.check_open()
            assert not self.handles, "a table was opened under its old name"
            self.names.arrange(moves)

    # ------------------------------------------------------------------------ the write set

    def changes(self, properties: Mapping[str, str], begun_at: Moment) -> list[TableChange]:
        """One change for each table with statements; no statement can be added any more."""
        found: list[TableChange] = []
        for key, handle in self.handles.items():
            with about(shown(key)), handle.using_base():
                change = self._change(handle.close(), properties, begun_at)
            named = self.names.require(key)
            if change is not None:
                found.append(TableChange(key, named.was, handle.files, change, named.row))
        return found

    def _change(self, statements: Statements, properties: Mapping[str, str], begun_at: Moment) -> Change | None:
        """One change for all statements on a table; None if there is nothing to do."""
        plan = statements.folded()
        if plan is None:
            return None
        uuid = str(self._catalog.environment.new_uuid())
        if statements.base is None:
            return Change(staged=plan.staged, base=None, uuid=uuid, properties=properties, begun_at=begun_at)
        change = plan.change(statements.base, uuid=uuid, properties=properties, must_not_move=False)
        return replace(change, begun_at=begun_at)

    # ------------------------------------------------------------------------ the read set

    def expectations(self) -> list[Expectation]:
        """Every table that was read, and every name that was looked up, found or not."""
        found = dict(self._reads)
        opened: set[str] = set()
        for key in self.handles:
            read = self._read_expectation(key)
            if read is not None:
                found[read.object_id] = read
                opened.add(read.object_id)
        present = [self._presence(key) for key in sorted(self._present - opened) if self._base.table(key) is not None]
        absent = [key for key in sorted(self._missed) if self._base.table(key) is None]
        return [*found.values(), *present, *(Expectation(key, 0, is_explicit=False) for key in absent)]

    def _presence(self, key: str) -> Expectation:
        """That the lake has a table of this name."""
        row = self._base.table(key)
        version = 1 if row is None or row.pin is None else row.pin.version
        return Expectation(key, version, is_explicit=False, is_presence=True)

    def _read_expectation(self, key: str) -> Expectation | None:
        """That a table which was opened still exists, and is unchanged as far as it was read."""
        handle, named = self.handles.get(key), self.names.get(key)
        if handle is None or named is None or named.was is None:
            return None
        base = handle.statements.base
        assert base is not None, "only a table that is made here has no base"
        return Expectation(
            named.was,
            base.version,
            named.row.incarnation,
            is_explicit=False,
            allows_maintenance=not handle.is_version_read,
            is_presence=not (handle.is_read or handle.is_version_read),
            seen=named.row,
        )

    def tags_expectations(self) -> list[TagsExpectation]:
        """The tags of every table of which they were read."""
        looked = [(handle, handle.tags.seen) for handle in (*self.handles.values(), *self._dropped)]
        return [TagsExpectation(handle.name, handle.files, tuple(seen)) for handle, seen in looked if seen is not None]

    def listing(self) -> ListingExpectation | None:
        """The names of all tables, if they were listed."""
        return ListingExpectation(frozenset(row.object_id for row in self._base.tables())) if self._is_listed else None
