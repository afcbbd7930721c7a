"""Multi-table write transaction under snapshot isolation: one snapshot, changes staged to any tables, one commit.

After its commit or rollback a transaction is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from conroi.arguments import checked_calls
from conroi.catalog.catalog import Catalog
from conroi.catalog.folders import mark_created, new_row
from conroi.catalog.names import Names, known_id, object_id, shown
from conroi.catalog.participant import PublishRequest
from conroi.catalog.preconditions import Expectation
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import Amendment, Row
from conroi.catalog.state import CommitMetadata
from conroi.catalog.store import Published
from conroi.catalog.tables import LakeTableStorage, table_files
from conroi.commit.change import Change, Plan, checked_texts
from conroi.data.incoming import in_spark
from conroi.environment import Moment, moment
from conroi.errors import ClosedError, InvalidInputError, about
from conroi.format.fields import key_columns
from conroi.format.on_disk import AUTO_COMPACT_SETTING, IDEMPOTENCY_PROPERTY
from conroi.format.schema import schema_from_fields
from conroi.maintenance.auto_compaction import compact_after
from conroi.query import QueryParams, QueryResult, query
from conroi.retry_policy import PUBLICATION_RETRIES, PUBLICATION_TIMEOUT_S, UNLIMITED, checked_retries, checked_timeout
from conroi.staged_table import TransactionTable
from conroi.storage.parallel import ProcessLock, stays_in_process
from conroi.transaction_tables import TransactionState, TransactionTables
from conroi.verbs.create import DEFAULT_DATA_FORMAT, check_same_table, create
from conroi.versions.retention import Lease

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
class Transaction:
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
        self._lock = ProcessLock()
        self._tables = TransactionTables(catalog, self._base, self._life, self._lock)
        self._expects: list[Expectation] = []
        self._amendments: list[Amendment] = []
        self._own_rows: dict[str, Row | None] = {}
        self._unchanged: dict[str, Row | None] = {}
        self._result: TransactionResult | None = None
        key = notes.idempotency_key
        # After the base was read: what is published later is found when catching up.
        self._earlier = None if key is None else catalog.heads.published_as(key)
        self._life.is_done = self._earlier is not None
        for name, version in (expect or {}).items():
            self.expect(name, version)

    @property
    def catalog(self) -> Catalog:
        """Internal interface for statements that Spark executes."""
        return self._catalog

    def _name_for_errors(self, table: str | None) -> str | None:
        return self._catalog.name_for_errors(table)

    # ------------------------------------------------------------------------ tables

    def __getitem__(self, name: str) -> TransactionTable:
        """The table of this name, as this transaction sees it."""
        self._life.check_open()
        return TransactionTable(self._tables.open(known_id(name, self._base.rows)))

    table = __getitem__

    def __contains__(self, name: str) -> bool:
        with self._lock:
            self._life.check_open()
            return self._tables.find(object_id(name)) is not None

    def tables(self) -> list[str]:
        """The names of all tables, including this transaction's own changes."""
        with self._lock:
            self._life.check_open()
            return [shown(key) for key in self._tables.list()]

    def query(self, text: str, params: QueryParams | None = None) -> QueryResult:
        """Run one SELECT in DuckDB's SQL: see lake.query(). It sees the transaction's own changes."""
        self._life.check_open()
        return query(self, text, params)

    def sql(self, spark: SparkSession, query: str) -> DataFrame | Statement:
        """Run one statement of Spark SQL: see lake.sql(). A query sees the transaction's own changes; a change
        joins it.
        """
        return in_spark("sql").transaction_sql(self, spark, query)

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
        if self.is_done and self._tables.names.get(wanted) is not None:
            return self[name]
        if exist_ok and name in self:
            fields = self._tables.open(wanted).statements.fields
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
        if not self.is_done:
            self._tables.remove(key)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; its data stay where they are."""
        self._life.check_open()
        key, wanted = known_id(name, self._base.rows), object_id(new_name)
        if not self.is_done:
            self._tables.rename(key, wanted)

    # ------------------------------------------------------------------------ what must hold

    def expect(self, name: str, version: int | None = None) -> None:
        """Precondition: the table must be at this version at the commit; by default at its base version.

        All preconditions are kept: two versions of one table are InvalidInputError.
        """
        self._life.check_open()
        key = object_id(name)
        if version is None:
            if self._base.table(key) is None:
                self._tables.note_missing(key)
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

    # ------------------------------------------------------------------------ for inserts and merges

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
        plans = self._tables.open(object_id(name)).statements.plans
        return sum(plan.counts.get("rows_added", 0) for plan in plans)

    def new_row(self, name: str) -> Row:
        """The row of a table that is to be created, with the folder for its files; AlreadyExistsError for a name that
        is taken.

        Executors may write the files before another transaction calls `begin_table`.
        """
        key = object_id(name)
        with self._lock:
            self._life.check_open()
            self._tables.check_free(key)
        return new_row(self._catalog, key)

    def row_of(self, name: str) -> Row:
        """The row of a table of this transaction, as it will be published."""
        return self._tables.names.require(object_id(name)).row

    def begin_table(self, row: Row, begun: Callable[[LakeTableStorage], Change]) -> None:
        """Create the table of such a row; `begun` says how it begins, and marks the folder before it writes."""
        files = table_files(self._catalog, row)
        with about(shown(row.object_id)):
            first = begun(files).plan
        self._tables.add(row, files, first, Names.add)

    def bring_table(self, row: Row, plan: Callable[[LakeTableStorage], Plan]) -> None:
        """Internal interface of merges: create a table that another branch has; `plan` gives its first version."""
        self._life.check_open()
        files = table_files(self._catalog, row)
        mark_created(self._catalog, row)
        self._tables.add(row, files, plan(files), Names.put)

    def arrange(self, moves: Mapping[str, str | None]) -> None:
        """Internal interface of merges: new names of tables by their old ones, None for those dropped, all at once.

        It comes before any table is opened; names may be swapped.
        """
        self._tables.arrange(moves)

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
            self._result = self._publish(self._request())
        except BaseException:
            self._life.ended = "failed to commit"
            raise
        finally:
            self._life.release()
        return self._result

    def _publish(self, request: PublishRequest) -> TransactionResult:
        if self._earlier is not None:
            return _result_of(self._earlier)
        if not (request.tables or request.rows or request.amendments):
            return self._nothing_to_do(request)
        outcome = Publishing(self._catalog, request).run()
        if outcome.earlier is not None:
            return _result_of(outcome.earlier)
        tables: dict[str, int] = {}
        rebased: dict[str, tuple[int, ...]] = {}
        for wanted in request.tables:
            name, result = shown(wanted.object_id), outcome.tables[wanted.object_id]
            if AUTO_COMPACT_SETTING in result.snapshot.manifest.head.config:
                compact_after(wanted.files, result)
            tables[name] = result.snapshot.version
            if result.rebased_over:
                rebased[name] = result.rebased_over
        return TransactionResult(outcome.version, tables, outcome.attempts, rebased)

    def _nothing_to_do(self, request: PublishRequest) -> TransactionResult:
        """A read-only transaction: its preconditions are checked all the same."""
        publishing = Publishing(self._catalog, request)
        is_expecting = request.expects or request.tags or request.listing is not None
        publishing.check_at(self._catalog.state() if is_expecting else self._began_with)
        return TransactionResult(self._base.version)

    def _request(self) -> PublishRequest:
        properties = self._notes.to_properties()
        properties.pop(IDEMPOTENCY_PROPERTY, None)
        tables = self._tables.changes(properties, self._begun_at)
        rows, leaving = self._tables.names.changes(published=tables)
        is_serializable = self._isolation == "serializable"
        return PublishRequest(
            base=self._began_with,
            tables=tuple(tables.values()),
            rows={**rows, **self._own_rows},
            as_they_are=frozenset(self._own_rows),
            unchanged=self._unchanged,
            leaving=leaving,
            expects=[*self._expects, *(self._tables.expectations() if is_serializable else ())],
            listing=self._tables.listing() if is_serializable else None,
            tags=self._tables.tags_expectations() if is_serializable else [],
            amendments=self._amendments,
            notes=self._notes,
            uuid=self._uuid,
            retries=self._retries,
            timeout_s=self._timeout_s,
        )

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
