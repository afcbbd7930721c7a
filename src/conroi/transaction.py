"""The write transaction: capture the lake once, stage changes to any number of tables, commit once, then be dead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa

from conroi.catalog.catalog import Catalog, LakeTableFiles, no_table, table_files
from conroi.catalog.creating import new_location
from conroi.catalog.expectations import Expectation, ListingExpectation
from conroi.catalog.heads import Published
from conroi.catalog.names import object_id, shown
from conroi.catalog.part import Wanted
from conroi.catalog.publishing import RETRIES, LakePublisher, Order, Publishing
from conroi.catalog.records import Notes
from conroi.catalog.rows import Row, new_table_row
from conroi.commit.change import Change
from conroi.commit.run import How, checked_retries, checked_texts
from conroi.data.pinned import Pinned
from conroi.data.predicates import Predicate
from conroi.errors import AlreadyExistsError, ClosedError, ConroiError, InvalidInputError, about
from conroi.format.naming import ManifestNaming
from conroi.operations import Append
from conroi.staging import Statements, Verb
from conroi.table import Table
from conroi.verbs.create import DEFAULT_DATA_FORMAT, create
from conroi.verbs.plan import Plan
from conroi.verbs.update import Mode

if TYPE_CHECKING:
    from conroi.commit.snapshot import Snapshot
    from conroi.data.incoming import Data
    from conroi.data.writing import Progress

Isolation = Literal["snapshot", "serializable"]


@dataclass(frozen=True)
class TransactionResult:
    """What a transaction did."""

    version: int
    """The version of the lake that it made, or found if there was nothing to do."""
    tables: Mapping[str, int] = field(default_factory=dict[str, int])
    """The versions of the tables that it changed, by name."""
    attempts: int = 0
    rebased: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """By table, the versions of others that it was put on top of."""
    was_done_before: bool = False
    """Whether a publication with the same idempotency key was there already."""


class TransactionTable(Table):
    """One table inside a transaction: reads what the transaction has made of it, and its verbs stage."""

    def __init__(self, life: _Life, handle: _Handle) -> None:
        self._life = life
        self._handle = handle
        self._files = handle.files

    @property
    def _pinned(self) -> Pinned:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the next statement sees; asking for it is reading."""
        self._life.check_open()
        self._handle.is_read = True
        return self._handle.pinned()

    @property
    def name(self) -> str:
        """The name of the table in the lake."""
        return shown(self._handle.object_id)

    def update(
        self,
        values: Mapping[str, object],
        where: Predicate | None = None,
        *,
        mode: Mode = "auto",
        **how: Unpack[How],
    ) -> Table:
        """As outside; here "auto" means "rows", which folds with other statements into one version."""
        return super().update(values, where, mode="rows" if mode == "auto" else mode, **how)

    def latest(self) -> Table:
        raise InvalidInputError(
            "A table inside a transaction stays at the transaction's snapshot.",
            table=self.uri,
            hint="lake[name] outside the transaction is the newest version.",
        )

    def migrate_manifest_names(self) -> Table:
        raise InvalidInputError(
            "Manifest names cannot be migrated inside a transaction.", table=self.uri, hint="Do it outside."
        )

    def _planned(self, verb: Verb, how: How) -> tuple[Table, Plan | None]:
        self._life.check_open()
        _check_how(how)
        with about(self.name):
            return self, self._handle.stage(verb if not how.get("strict") else _Strict(verb))

    def __repr__(self) -> str:
        return f"TransactionTable({self.name!r}, version={self._handle.statements.current.version})"


class _Handle:
    """One table of a transaction: opened once, whatever the number of statements and threads."""

    def __init__(
        self, object_id: str, row: Row, files: LakeTableFiles, statements: Statements, was: str | None
    ) -> None:
        self.object_id = object_id
        self.was = was
        self.row = row
        self.files = files
        self.statements = statements
        self.is_read = False
        self._pinned_at: tuple[Snapshot, Pinned] | None = None
        self._lock = threading.RLock()

    def pinned(self) -> Pinned:
        with self._lock:
            current = self.statements.current
            if self._pinned_at is None or self._pinned_at[0] is not current:
                self._pinned_at = (current, Pinned(self.files, current))
            return self._pinned_at[1]

    def stage(self, verb: Verb) -> Plan | None:
        """Do a statement's work and add it; threads take turns, except while rows are only being written."""
        before = self.statements
        if not self._is_keyed and _is_append(verb):
            plan = verb(self._pinned_for_append())
            with self._lock:
                if plan is None or self._still_fits(before):
                    return self._add(plan)
        with self._lock:
            return self._add(verb(self.pinned()))

    def _pinned_for_append(self) -> Pinned:
        """What an append must know is the columns: those of the base, while only rows have changed."""
        statements = self.statements
        if statements.base is None or not statements.has_fields_of_base:
            return self.pinned()
        if self._pinned_at is not None and self._pinned_at[0] is statements.base:
            return self._pinned_at[1]
        self._pinned_at = (statements.base, Pinned(self.files, statements.base))
        return self._pinned_at[1]

    @property
    def _is_keyed(self) -> bool:
        from conroi.format.fields import key_columns

        return bool(key_columns(self.statements.fields))

    def _still_fits(self, before: Statements) -> bool:
        return self.statements is before or self.statements.fields == before.fields

    def _add(self, plan: Plan | None) -> Plan | None:
        if plan is not None:
            if not isinstance(plan.staged.operation, Append) or plan.guard is not None:
                self.is_read = True  # it looked for rows to change, or for keys
            self.statements = self.statements.then(plan)
        return plan


class _Life:
    """Whether a transaction has ended, and how; its tables know it too."""

    ended: str | None = None

    def check_open(self) -> None:
        if self.ended is not None:
            raise ClosedError(
                f"The transaction {self.ended}; it and its tables cannot be used any more.",
                hint="Begin a new one with lake.begin().",
            )


def _check_how(how: How) -> None:
    refused = sorted(set(how) - {"strict"})
    if refused:
        raise InvalidInputError(
            f"{', '.join(refused)} cannot be given to a statement inside a transaction.",
            hint="Give it to lake.begin().",
        )


class _Strict:
    """A verb whose table must not move until the commit."""

    def __init__(self, verb: Verb) -> None:
        self._verb = verb

    def __call__(self, at: Pinned) -> Plan | None:
        plan = self._verb(at)
        return None if plan is None else replace(plan, must_not_move=True)


def _is_append(verb: Verb) -> bool:
    from conroi.verbs import Appending

    return isinstance(verb, Appending)


class Transaction:
    """Changes to any number of tables of a lake that happen together or not at all. Made by `lake.begin()`.

    >>> import conroi
    >>> lake = conroi.connect("memory://transaction-example")
    >>> orders = lake.create_table("orders", [{"id": 1}], key="id")
    >>> with lake.begin("two tables") as tx:
    ...     tx["orders"].append([{"id": 2}])
    ...     tx.create_table("customers", [{"name": "Ada"}])
    TransactionTable('orders', version=1)
    TransactionTable('customers', version=1)
    >>> sorted(tx.result.tables.items())
    [('customers', 1), ('orders', 2)]
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        notes: Notes,
        isolation: Isolation = "snapshot",
        expect: Mapping[str, int] | None = None,
        retries: int | None = None,
    ) -> None:
        if isolation not in ("snapshot", "serializable"):
            raise InvalidInputError(f"isolation={isolation!r} is not known.", hint='Give "snapshot" or "serializable".')
        self._catalog = catalog
        self._publisher = LakePublisher(catalog)
        self._base = catalog.state()
        self._notes = notes
        self._isolation = isolation
        self._retries = RETRIES if retries is None else checked_retries(retries)
        self._uuid = str(catalog.environment.new_uuid())
        self._handles: dict[str, _Handle] = {}
        self._opening: dict[str, threading.Lock] = {}
        self._rows: dict[str, Row | None] = {}
        self._expects: dict[str, Expectation] = {}
        self._missed: set[str] = set()
        self._is_listed = False
        self._lock = threading.RLock()
        self._life = _Life()
        self._result: TransactionResult | None = None
        for name, version in (expect or {}).items():
            self.expect(name, version)

    # ------------------------------------------------------------------------ tables

    def __getitem__(self, name: str) -> TransactionTable:
        """The table of this name, as this transaction sees it."""
        self._life.check_open()
        return TransactionTable(self._life, self._handle(object_id(name)))

    table = __getitem__

    def __contains__(self, name: str) -> bool:
        self._life.check_open()
        return self._row(object_id(name)) is not None

    def tables(self) -> list[str]:
        """The names of all tables, with what this transaction made and dropped."""
        self._life.check_open()
        self._is_listed = True
        rows = self._base.changed(self._rows)
        for handle in self._handles.values():
            rows[handle.object_id] = handle.row
        return sorted(shown(key) for key, row in rows.items() if row.is_table)

    def _row(self, key: str) -> Row | None:
        """The row of a table as this transaction sees it."""
        if key in self._handles:
            return self._handles[key].row
        row = self._rows[key] if key in self._rows else self._base.rows.get(key)
        if row is None or not row.is_table:
            self._missed.add(key)
            return None
        return row

    def _handle(self, key: str) -> _Handle:
        """Opened once; a failed opening is not remembered."""
        with self._lock:
            found = self._handles.get(key)
            if found is not None:
                return found
            row = self._row(key)
            if row is None:
                raise no_table(key, replace(self._base, rows=self._base.changed(self._rows)))
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:
            with self._lock:
                if key in self._handles:
                    return self._handles[key]
            with about(shown(key)):
                snapshot = self._catalog.snapshot(row)
            files = table_files(self._catalog, row, self._publisher)
            was = self._was(row)
            handle = _Handle(key, row, files, Statements(files, snapshot), was)
            with self._lock:
                return self._handles.setdefault(key, handle)

    def _was(self, row: Row) -> str:
        """The name that the table had when the transaction began."""
        for key, then in self._base.rows.items():
            if then.is_table and then.incarnation == row.incarnation:
                return key
        return row.object_id

    def create_table(
        self,
        name: str,
        schema_or_data: pa.Schema | Data,
        *,
        key: str | Sequence[str] | None = None,
        stable_row_ids: bool = False,
        config: Mapping[str, str] | None = None,
        data_format: str = DEFAULT_DATA_FORMAT,
        progress: Progress | None = None,
    ) -> TransactionTable:
        """Make a table, in the same commit as everything else."""
        self._life.check_open()
        wanted = object_id(name)
        rows = self._base.changed(self._rows)
        if wanted in self._handles or wanted in rows:
            raise AlreadyExistsError(
                f"There is a {rows[wanted].object_type if wanted in rows else 'table'} {name!r} already.",
                table=name,
                hint="Open it with tx[name], or choose another name.",
            )
        row = new_table_row(
            wanted, new_location(self._catalog, wanted), self._catalog.environment.random_u64() >> 1
        ).with_notes({"conroi.incarnation": str(self._catalog.environment.new_uuid())})
        files = table_files(self._catalog, row, self._publisher)
        with about(name):
            change = create(
                files,
                schema_or_data,
                key=key,
                stable_row_ids=stable_row_ids,
                config=checked_texts(config or {}),
                data_format=data_format,
                naming=ManifestNaming.V2,
                properties={},
                progress=progress,
            )
            statements = Statements(files, None).then(Plan(change.staged))
        with self._lock:
            self._handles[wanted] = _Handle(wanted, row, files, statements, None)
        return self[name]

    def drop_table(self, name: str) -> None:
        """Take a table out of the lake; older versions of the lake still have it."""
        self._life.check_open()
        key = object_id(name)
        with self._lock:
            row = self._row(key)
            if row is None:
                raise no_table(key, replace(self._base, rows=self._base.changed(self._rows)))
            handle = self._handles.pop(key, None)
            was = handle.was if handle is not None else self._was(row)
            self._rows.pop(key, None)
            if was is not None:
                self._rows[was] = None

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name; its data stay where they are."""
        self._life.check_open()
        key, wanted = object_id(name), object_id(new_name)
        with self._lock:
            row = self._row(key)
            if row is None:
                raise no_table(key, replace(self._base, rows=self._base.changed(self._rows)))
            if self._row(wanted) is not None or wanted in self._base.changed(self._rows):
                raise AlreadyExistsError(
                    f"There is a table {new_name!r} already.", table=new_name, hint="Choose another name."
                )
            handle = self._handles.pop(key, None)
            if handle is not None:
                handle.object_id, handle.row = wanted, row.renamed(wanted)
                self._handles[wanted] = handle
                was = handle.was
            else:
                was = self._was(row)
            self._rows.pop(key, None)
            self._rows[wanted] = row.renamed(wanted)
            if was is not None and was != wanted:
                self._rows[was] = None

    # ------------------------------------------------------------------------ what must hold

    def expect(self, name: str, version: int | None = None) -> None:
        """The table must be at this version when the transaction commits; by default at the one it began with."""
        self._life.check_open()
        key = object_id(name)
        if version is None:
            row = self._base.table(key)
            if row is None:
                raise no_table(key, self._base)
            wanted = Expectation(key, self._catalog.version_of(row), row.incarnation)
        else:
            if isinstance(version, bool) or not isinstance(version, int) or version < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidInputError(
                    f"{version!r} is not a version number.",
                    table=name,
                    hint="They count from 1; 0 says that the table must not be there.",
                )
            wanted = Expectation(key, version)
        self._expects[key] = wanted

    def _isolation_expects(self) -> list[Expectation]:
        """Under `serializable`, every table that was read, and every name that was looked for in vain."""
        if self._isolation == "snapshot":
            return []
        found: list[Expectation] = []
        for handle in self._handles.values():
            if handle.is_read and handle.was is not None and handle.statements.base is not None:
                row = self._base.rows[handle.was]
                found.append(
                    Expectation(
                        handle.was,
                        handle.statements.base.version,
                        row.incarnation,
                        is_explicit=False,
                        allows_maintenance=True,
                    )
                )
        made = {handle.object_id for handle in self._handles.values() if handle.was is None}
        found += [
            Expectation(key, 0, is_explicit=False) for key in sorted(self._missed - made) if key not in self._base.rows
        ]
        return found

    # ------------------------------------------------------------------------ the end

    def __enter__(self) -> Transaction:
        self._life.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._life.ended is not None:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def rollback(self) -> None:
        """End without committing. What was written stays as garbage for collection."""
        self._life.check_open()
        self._life.ended = "was rolled back"

    def commit(self) -> TransactionResult:
        """Publish everything at once; afterwards the transaction is dead, won or lost."""
        self._life.check_open()
        with self._lock:
            order = self._order()
            self._life.ended = "has committed"
        try:
            self._result = self._publish(order)
        except ConroiError:
            self._life.ended = "failed to commit"
            raise
        return self._result

    def _publish(self, order: Order) -> TransactionResult:
        if not order.tables and not order.rows:
            return self._nothing_to_do(order)
        outcome = Publishing(self._catalog, order).run()
        if outcome.earlier is not None:
            return _result_of(outcome.earlier)
        return TransactionResult(
            version=outcome.version,
            tables={shown(key): result.version for key, result in outcome.tables.items()},
            attempts=outcome.attempts,
            rebased={shown(key): result.rebased_over for key, result in outcome.tables.items() if result.rebased_over},
        )

    def _nothing_to_do(self, order: Order) -> TransactionResult:
        """A transaction that only read: what it expected is checked all the same."""
        publishing = Publishing(self._catalog, order)
        state = self._catalog.state() if order.expects or order.listing is not None else self._base
        publishing.check(state)
        return TransactionResult(self._base.version)

    def _order(self) -> Order:
        tables: list[Wanted] = []
        rows = dict(self._rows)
        for handle in self._handles.values():
            plans = handle.statements.folded()
            if not plans:
                continue
            changes = [self._change(handle, plan) for plan in plans]
            tables.append(Wanted(handle.object_id, handle.was, handle.files, changes, handle.row))
            if rows.get(handle.object_id) is not None:
                del rows[handle.object_id]
        # A name that is dropped and made again in one transaction is only made again: the row is replaced.
        names = frozenset(row.object_id for row in self._base.tables())
        is_serializable = self._isolation == "serializable"
        return Order(
            base=self._base,
            tables=tables,
            rows=rows,
            expects=[*self._expects.values(), *self._isolation_expects()],
            listing=ListingExpectation(names) if is_serializable and self._is_listed else None,
            notes=self._notes,
            uuid=self._uuid,
            retries=self._retries,
        )

    def _change(self, handle: _Handle, plan: Plan) -> Change:
        properties = self._notes.to_properties()
        properties.pop("conroi.idempotency", None)
        uuid = str(self._catalog.environment.new_uuid())
        if handle.statements.base is None and plan.staged.base.message == b"":
            return Change(staged=plan.staged, base=None, uuid=uuid, properties=properties)
        base = handle.statements.base or handle.statements.current
        return plan.change(base, uuid=uuid, properties=properties, must_not_move=False)

    @property
    def result(self) -> TransactionResult:
        """What the transaction did, once it has committed."""
        if self._result is None:
            raise ClosedError(
                f"The transaction {self._life.ended or 'has not committed yet'}, so it has no result.",
                hint="Leave the with block, or call commit(), first.",
            )
        return self._result

    @property
    def base_version(self) -> int:
        """The version of the lake that this transaction reads."""
        return self._base.version

    def __repr__(self) -> str:
        return f"Transaction(base={self._base.version}, {self._life.ended or 'open'})"


def _result_of(earlier: Published) -> TransactionResult:
    tables = {
        shown(key): row.pin.version
        for key, row in (earlier.changes or {}).items()
        if row is not None and row.pin is not None
    }
    return TransactionResult(earlier.version, tables, was_done_before=True)


Work = Callable[[Transaction], Any]
