"""Multi-table write transaction under snapshot isolation: one snapshot, changes staged to any tables, one commit.

After its commit or rollback a transaction is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from conroi.arguments import checked_calls
from conroi.catalog.catalog import Catalog
from conroi.catalog.folders import mark_created
from conroi.catalog.names import known_id, object_id, parents, shown
from conroi.catalog.participant import TableChange
from conroi.catalog.preconditions import Expectation, ListingExpectation, TagsExpectation
from conroi.catalog.publication import Publishing, PublishRequest
from conroi.catalog.renames import Named, Names
from conroi.catalog.rows import Amendment, Row
from conroi.catalog.state import CommitMetadata
from conroi.catalog.store import Published
from conroi.catalog.tables import LakeTableStorage, table_files
from conroi.commit.change import Change
from conroi.commit.execution import checked_texts
from conroi.commit.idempotency import IDEMPOTENCY
from conroi.data.remote_rows import in_spark
from conroi.environment import Moment, moment
from conroi.errors import AlreadyExistsError, ClosedError, InvalidInputError, NotFoundError, about
from conroi.folding import Statements
from conroi.format.fields import key_columns
from conroi.format.schema import schema_from_fields
from conroi.maintenance.auto_compaction import compact_after
from conroi.query import QueryParams, QueryResult, query
from conroi.retry_policy import PUBLICATION_RETRIES, PUBLICATION_TIMEOUT_S, UNLIMITED, checked_retries, checked_timeout
from conroi.snapshots.table_storage import version_in_use
from conroi.staged_table import Handle, TransactionState, TransactionTable, VersionsUpTo
from conroi.storage.parallel import stays_in_process
from conroi.transaction_lower import LowerLayer
from conroi.verbs.create import DEFAULT_DATA_FORMAT, check_same_table, create
from conroi.versions.leases import Lease

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conroi.data.incoming import Data
    from conroi.data.writer import Progress
    from conroi.spark.sql import Statement

Isolation = Literal["snapshot", "serializable"]


@dataclass(frozen=True)
class TransactionResult:
    """Result of a transaction."""

    version: int
    """Its new version of the lake, or the newest one if it was a no-op."""
    tables: Mapping[str, int] = field(default_factory=dict[str, int])
    """The new versions of the tables that it changed, by name."""
    attempts: int = 0
    rebased: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """By table, the concurrent versions that it was rebased over."""
    was_done_before: bool = False
    """Whether a publication with the same idempotency key already existed."""


@checked_calls
@stays_in_process("A transaction", "Hand over the lake, and begin one in the other process.")
class Transaction(LowerLayer):
    """A multi-table transaction: changes to any number of tables of a lake, committed atomically. See `lake.begin()`.

    >>> import conroi
    >>> lake = conroi.connect("memory://transaction-example")
    >>> orders = lake.create_table("orders", [{"id": 1}], key="id")
    >>> with lake.begin("two tables") as tx:
    ...     tx["orders"].append([{"id": 2}])
    ...     tx.create_table("customers", [{"name": "Ada"}])
    TransactionTable('orders', version=1)
    TransactionTable('customers', new)
    >>> sorted(tx.result.tables.items())
    [('customers', 1), ('orders', 2)]
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        notes: CommitMetadata,
        isolation: Isolation = "snapshot",
        expect: Mapping[str, int] | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        begun_at: Moment | None = None,
    ) -> None:
        if isolation not in ("snapshot", "serializable"):
            raise InvalidInputError(f"isolation={isolation!r} is not known.", hint='Give "snapshot" or "serializable".')
        self._catalog = catalog
        # What was written before it began counts as its work: collection may have gone over it since.
        self._begun_at = moment(catalog.environment) if begun_at is None else begun_at
        self._began_with = catalog.state()
        self._life = TransactionState("lake.begin()", catalog.environment.now_ns())
        self._base = self._began_with.seen_at(self._life.began_ns)
        """Its snapshot: a table that the lake has not pinned yet is read as of this time."""
        self._notes = notes
        self._isolation = isolation
        self._timeout_s = PUBLICATION_TIMEOUT_S if timeout is None else checked_timeout(timeout)
        by_default = PUBLICATION_RETRIES if timeout is None else UNLIMITED
        self._retries = by_default if retries is None else checked_retries(retries)
        self._uuid = str(catalog.environment.new_uuid())
        self._names = Names(self._base)
        self._handles: dict[str, Handle] = {}
        """By the current name of the table."""
        self._opening: dict[str, threading.Lock] = {}
        self._reads: dict[str, Expectation] = {}
        """Of tables that were read and then dropped, and of those that have no version yet."""
        self._dropped: list[Handle] = []
        self._expects: list[Expectation] = []
        self._amendments: list[Amendment] = []
        self._own_rows: dict[str, Row | None] = {}
        self._unchanged: dict[str, Row | None] = {}
        self._present: set[str] = set()
        """Names of the snapshot that were looked up and found."""
        self._missed: set[str] = set()
        """Names that were looked up and not found."""
        self._is_listed = False
        self._lock = threading.RLock()
        self._result: TransactionResult | None = None
        key = notes.idempotency_key
        # After the base was read: what is published later is found when catching up.
        self._earlier = None if key is None else catalog.heads.published_as(key)
        self._life.is_done = self._earlier is not None
        for name, version in (expect or {}).items():
            self.expect(name, version)

    def _name_for_errors(self, table: str | None) -> str | None:
        return self._catalog.name_for_errors(table)

    # ------------------------------------------------------------------------ tables

    def __getitem__(self, name: str) -> TransactionTable:
        """The table of this name, as this transaction sees it."""
        self._life.check_open()
        return TransactionTable(self._handle(known_id(name, self._base.rows)))

    table = __getitem__

    def __contains__(self, name: str) -> bool:
        with self._lock:
            self._life.check_open()
            return self._found(object_id(name)) is not None

    def tables(self) -> list[str]:
        """The names of all tables, including this transaction's own changes."""
        with self._lock:
            self._life.check_open()
            self._is_listed = True
            return [shown(key) for key in self._names.all()]

    def query(self, text: str, params: QueryParams | None = None) -> QueryResult:
        """Run one SELECT in DuckDB's SQL: see lake.query(). It sees the transaction's own changes."""
        self._life.check_open()
        return query(self, text, params)

    def sql(self, spark: SparkSession, query: str) -> DataFrame | Statement:
        """Run one statement of Spark SQL: see lake.sql(). A query sees the transaction's own changes; a change
        joins it.
        """
        return in_spark("sql").transaction_sql(self, spark, query)

    def _found(self, key: str) -> Named | None:
        """The table of this name; under serializable isolation the result, found or not, must still hold at the
        commit.
        """
        named = self._names.get(key)
        (self._missed if named is None else self._present).add(key)
        return named

    def _check_free(self, key: str) -> None:
        """AlreadyExistsError if the name cannot be given to a table; counts as a read."""
        try:
            self._names.check_free(key)
        except AlreadyExistsError:
            self._present |= {each for each in (key, *parents(key)) if self._names.get(each) is not None}
            raise

    def _handle(self, key: str) -> Handle:
        """Opened once; a failed opening is not cached."""
        with self._lock:
            self._life.check_open()
            found = self._handles.get(key)
            if found is not None:
                return found
            self._found(key)
            row = self._names.require(key).row
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:
            with self._lock:
                if key in self._handles:
                    return self._handles[key]
            objects = self._catalog.objects_of(row)
            try:
                with about(shown(key)), version_in_use(objects, None, is_base=True):
                    snapshot = self._catalog.snapshot(row)
            except NotFoundError:
                self._unwritten(key, row)
                raise
            files = table_files(self._catalog, row)
            handle = self._new_handle(shown(key), row, files, Statements(files, snapshot))
            with self._lock:
                self._life.check_open()
                return self._handles.setdefault(key, handle)

    def _new_handle(self, name: str, row: Row, files: LakeTableStorage, statements: Statements) -> Handle:
        base = statements.base
        newest = None if base is None else partial(self._catalog.located, row)
        versions = VersionsUpTo(self._catalog.folder_of(row), 0 if base is None else base.version, newest)
        return Handle(name, files, statements, self._life, versions=versions)

    def _unwritten(self, key: str, row: Row) -> None:
        """A declared table without versions was read: it must still have none at the commit."""
        if row.pin is None:
            with self._lock:
                self._reads[key] = Expectation(key, 0, row.incarnation, is_explicit=False)

    def create_table(
        self,
        name: str,
        schema_or_data: pa.Schema | Data,
        *,
        key: str | Sequence[str] | None = None,
        stable_row_ids: bool = False,
        config: Mapping[str, str] | None = None,
        data_format: str = DEFAULT_DATA_FORMAT,
        schema: pa.Schema | None = None,
        exist_ok: bool = False,
        progress: Progress | None = None,
    ) -> TransactionTable:
        """Create a table, in the same commit as everything else; see lake.create_table()."""
        self._life.check_open()
        wanted = object_id(name)
        if self.is_done and self._names.get(wanted) is not None:
            return self[name]
        if exist_ok and name in self:
            fields = self._handle(wanted).statements.fields
            check_same_table(
                schema_from_fields(fields, {}), key_columns(fields), schema_or_data, schema, key, table=name
            )
            return self[name]
        row = self.new_row(name)

        def begun(files: LakeTableStorage) -> Change:
            return create(
                files,
                schema_or_data,
                key=key,
                stable_row_ids=stable_row_ids,
                config=checked_texts(config or {}),
                data_format=data_format,
                schema=schema,
                progress=progress,
                claim=lambda: mark_created(self._catalog, row),
            )

        self.begin_table(row, begun)
        return self[name]

    def drop_table(self, name: str) -> None:
        """Drop a table; older versions of the lake still have it."""
        self._life.check_open()
        key = known_id(name, self._base.rows)
        if self.is_done:
            return
        with self._lock:
            self._life.check_open()
            read = self._read_expectation(key)
            self._note_missing(key)
            self._names.forget(key)
            handle = self._handles.pop(key, None)
            if read is not None:
                self._reads[read.object_id] = read
            if handle is not None:
                self._dropped.append(handle)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; its data stay where they are."""
        self._life.check_open()
        key, wanted = known_id(name, self._base.rows), object_id(new_name)
        if self.is_done:
            return
        with self._lock:
            self._life.check_open()
            self._note_missing(key)
            if self._names.get(key) is not None:
                self._check_free(wanted)
            self._names.rename(key, wanted)
            handle = self._handles.pop(key, None)
            if handle is not None:
                handle.name = new_name
                self._handles[wanted] = handle

    def _note_missing(self, key: str) -> None:
        """A name that is to go: that it is there is checked anyway when the transaction commits."""
        if self._names.get(key) is None:
            self._missed.add(key)

    # ------------------------------------------------------------------------ what must hold

    def expect(self, name: str, version: int | None = None) -> None:
        """Precondition: the table must be at this version at the commit; by default at its base version.

        All preconditions are kept: two versions of one table are InvalidInputError.
        """
        self._life.check_open()
        key = object_id(name)
        if version is None:
            if self._base.table(key) is None:
                self._note_missing(key)
            row = self._catalog.row(key, self._base)
            wanted = Expectation(key, self._catalog.version_of(row), row.incarnation, seen=row)
        else:
            if isinstance(version, bool) or not isinstance(version, int) or version < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidInputError(
                    f"{version!r} is not a version number.",
                    table=name,
                    hint="They count from 1; 0 says that the table must not be there.",
                )
            row = self._base.table(key)
            row = row if version else None
            wanted = Expectation(key, version, None if row is None else row.incarnation, seen=row)
        with self._lock:
            self._life.check_open()
            for other in self._expects:
                if other.object_id == key and other.version != wanted.version:
                    raise InvalidInputError(
                        f"Table {name!r} is expected at version {other.version} already, so it cannot be expected at "
                        f"version {wanted.version}.",
                        table=name,
                        hint="Expect one version of a table; begin another transaction to expect another one.",
                    )
            self._expects.append(wanted)

    def _isolation_expects(self) -> list[Expectation]:
        """Under `serializable` isolation, every table that was read, and every name that was looked up, found or
        not.
        """
        if self._isolation == "snapshot":
            return []
        found = dict(self._reads)
        opened: set[str] = set()
        for key in self._handles:
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

    def _tags_expects(self) -> list[TagsExpectation]:
        """Under `serializable` isolation, the tags of every table of which they were read."""
        if self._isolation == "snapshot":
            return []
        looked = [(handle, handle.tags.seen) for handle in (*self._handles.values(), *self._dropped)]
        return [TagsExpectation(handle.name, handle.files, tuple(seen)) for handle, seen in looked if seen is not None]

    def _read_expectation(self, key: str) -> Expectation | None:
        """That a table which was opened still exists, and is unchanged as far as it was read."""
        handle, named = self._handles.get(key), self._names.get(key)
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
        """Roll back. Files that were written are left to garbage collection."""
        self._life.end("was rolled back")
        self._life.release()

    def commit(self) -> TransactionResult:
        """Commit all changes atomically; afterwards the transaction is closed in any case."""
        with self._lock:  # whatever another thread does from here on is refused
            self._life.end("has committed")
        try:
            self._result = self._publish(self._order())
        except BaseException:
            self._life.ended = "failed to commit"
            raise
        finally:
            self._life.release()
        return self._result

    def _publish(self, order: PublishRequest) -> TransactionResult:
        if self._earlier is not None:
            return _result_of(self._earlier)
        if not (order.tables or order.rows or order.amendments):
            return self._nothing_to_do(order)
        outcome = Publishing(self._catalog, order).run()
        if outcome.earlier is not None:
            return _result_of(outcome.earlier)
        for wanted in order.tables:
            compact_after(wanted.files, outcome.tables[wanted.object_id])
        return TransactionResult(
            version=outcome.version,
            tables={shown(key): result.version for key, result in outcome.tables.items()},
            attempts=outcome.attempts,
            rebased={shown(key): result.rebased_over for key, result in outcome.tables.items() if result.rebased_over},
        )

    def _nothing_to_do(self, order: PublishRequest) -> TransactionResult:
        """A read-only transaction: its preconditions are checked all the same."""
        publishing = Publishing(self._catalog, order)
        is_expecting = order.expects or order.tags or order.listing is not None
        publishing.check_at(self._catalog.state() if is_expecting else self._began_with)
        return TransactionResult(self._base.version)

    def _order(self) -> PublishRequest:
        tables: list[TableChange] = []
        for key, handle in self._handles.items():
            with about(shown(key)), handle.using_base():
                change = self._change(handle.close())
            named = self._names.require(key)
            if change is not None:
                tables.append(TableChange(key, named.was, handle.files, change, named.row))
        names = frozenset(row.object_id for row in self._base.tables()) if self._is_listed else frozenset[str]()
        is_serializable = self._isolation == "serializable"
        return PublishRequest(
            base=self._began_with,
            tables=tables,
            rows={**self._names.rows({wanted.object_id for wanted in tables}), **self._own_rows},
            as_they_are=frozenset(self._own_rows),
            unchanged=self._unchanged,
            leaving=self._names.leaving(),
            expects=[*self._expects, *self._isolation_expects()],
            listing=ListingExpectation(names) if is_serializable and self._is_listed else None,
            tags=self._tags_expects(),
            amendments=self._amendments,
            notes=self._notes,
            uuid=self._uuid,
            retries=self._retries,
            timeout_s=self._timeout_s,
        )

    def _change(self, statements: Statements) -> Change | None:
        """One change for all statements on a table; None if there is nothing to do."""
        plan = statements.folded()
        if plan is None:
            return None
        properties = self._notes.to_properties()
        properties.pop(IDEMPOTENCY, None)
        uuid = str(self._catalog.environment.new_uuid())
        if statements.base is None:
            return Change(staged=plan.staged, base=None, uuid=uuid, properties=properties, begun_at=self._begun_at)
        change = plan.change(statements.base, uuid=uuid, properties=properties, must_not_move=False)
        return replace(change, begun_at=self._begun_at)

    @property
    def result(self) -> TransactionResult:
        """The result, once it has committed."""
        if self._result is None:
            raise ClosedError(
                f"The transaction {self._life.ended or 'has not committed yet'}, so it has no result.",
                hint="Leave the with block, or call commit(), first.",
            )
        return self._result

    @property
    def is_done(self) -> bool:
        """Whether its idempotency key was published before it began: then its statements do nothing."""
        return self._life.is_done

    @property
    def lease(self) -> Lease | None:
        """Lease on its snapshot, if begin(keep=…) was used; renew() extends it."""
        return self._life.lease

    def hold(self, lease: Lease | None) -> None:
        """Internal interface of begin(keep=…): a lease that ends with the transaction."""
        self._life.lease = lease

    @property
    def base_version(self) -> int:
        """The version of the lake that this transaction reads (its snapshot)."""
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
