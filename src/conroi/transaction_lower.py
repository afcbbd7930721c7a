"""Internal transaction interface: what inserts and branch merges need beyond the verbs of its tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from conroi.arguments import checked_calls
from conroi.catalog.catalog import Catalog
from conroi.catalog.folders import mark_created, new_row
from conroi.catalog.names import object_id, shown
from conroi.catalog.renames import Names
from conroi.catalog.rows import Amendment, Row
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.catalog.tables import LakeTableStorage, table_files
from conroi.commit.change import Change
from conroi.errors import about
from conroi.folding import Statements
from conroi.staged_table import Handle, TransactionState
from conroi.verbs.plan import Plan


@checked_calls
class LowerLayer:
    """Internal interface of a transaction: rows, properties and tables that do not come from a verb."""

    _catalog: Catalog
    _notes: CommitMetadata
    _names: Names
    _handles: dict[str, Handle]
    _amendments: list[Amendment]
    _own_rows: dict[str, Row | None]
    _unchanged: dict[str, Row | None]
    _base: LakeState
    _lock: threading.RLock
    _life: TransactionState

    if TYPE_CHECKING:

        def _handle(self, key: str) -> Handle: ...
        def _new_handle(self, name: str, row: Row, files: LakeTableStorage, statements: Statements) -> Handle: ...
        def _check_free(self, key: str) -> None: ...

    def amend(self, amendment: Amendment) -> None:
        """Internal interface of locks: a change to a table's row, with a precondition on the row at the commit."""
        with self._lock:
            self._life.check_open()
            self._amendments.append(amendment)

    def note(self, name: str, value: str) -> None:
        """A property of the commit that is known only now."""
        with self._lock:
            self._life.check_open()
            self._notes = replace(self._notes, properties={**self._notes.properties, name: value})

    def rows_added(self, name: str) -> int:
        """How many rows the statements so far add to a table."""
        plans = self._handle(object_id(name)).statements.plans
        return sum(plan.counts.get("rows_added", 0) for plan in plans)

    def new_row(self, name: str) -> Row:
        """The row of a table that is to be created, with the folder for its files; AlreadyExistsError for a name that
        is taken.

        Executors may write the files before another transaction calls `begin_table`.
        """
        key = object_id(name)
        with self._lock:
            self._life.check_open()
            self._check_free(key)
        return new_row(self._catalog, key)

    def row_of(self, name: str) -> Row:
        """The row of a table of this transaction, as it will be published."""
        return self._names.require(object_id(name)).row

    def begin_table(self, row: Row, begun: Callable[[LakeTableStorage], Change]) -> None:
        """Create the table of such a row; `begun` says how it begins, and marks the folder before it writes."""
        files = table_files(self._catalog, row)
        name = shown(row.object_id)
        with about(name):
            statements = Statements(files, None).then(Plan(begun(files).staged))
        with self._lock:
            self._life.check_open()
            self._names.add(row)
            self._handles[row.object_id] = self._new_handle(name, row, files, statements)

    def bring_table(self, row: Row, plan: Callable[[LakeTableStorage], Plan]) -> None:
        """Internal interface of merges: create a table that another branch has; `plan` gives its first version."""
        self._life.check_open()
        files = table_files(self._catalog, row)
        mark_created(self._catalog, row)
        statements = Statements(files, None).then(plan(files))
        with self._lock:
            self._life.check_open()
            self._names.put(row)
            self._handles[row.object_id] = self._new_handle(shown(row.object_id), row, files, statements)

    def arrange(self, moves: Mapping[str, str | None]) -> None:
        """Internal interface of merges: new names of tables by their old ones, None for those dropped, all at once.

        It comes before any table is opened; names may be swapped.
        """
        with self._lock:
            self._life.check_open()
            assert not self._handles, "a table was opened under its old name"
            self._names.arrange(moves)

    def set_row(self, object_id: str, row: Row | None) -> None:
        """Internal interface of merges: a row that is published as it is, with no new version; None removes one."""
        with self._lock:
            self._life.check_open()
            self._own_rows[object_id] = row

    def expect_row(self, object_id: str) -> None:
        """Internal interface of merges: the row must not change until the transaction commits."""
        with self._lock:
            self._life.check_open()
            self._unchanged[object_id] = self._base.rows.get(object_id)
