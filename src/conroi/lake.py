"""Lake: a catalog of Lance tables with atomic multi-table transactions."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from conroi.arguments import checked_call, checked_calls
from conroi.catalog.branch_rows import table_of
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import known_id, object_id, shown
from conroi.catalog.opening import open_catalog
from conroi.catalog.replica_store import ReplicaStore
from conroi.catalog.rows import NAMESPACE, Row
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.catalog.tables import table_files
from conroi.commit.execution import checked_texts
from conroi.data.remote_rows import in_spark
from conroi.display.grid import Listing, to_html
from conroi.display.pages import lake_history_page, lake_page
from conroi.environment import SYSTEM, Environment
from conroi.errors import AlreadyExistsError, ConflictError, InvalidInputError, NotFoundError, about
from conroi.history import find
from conroi.inserts import locks_of
from conroi.inserts.insert_locks import checked_address
from conroi.jobs import LakeScopes
from conroi.lake_branches import LakeBranches
from conroi.lake_history import LakeCommit, lake_commit
from conroi.lake_inserting import LakeInserts
from conroi.lake_listing import LakeListing
from conroi.lake_upkeep import LakeUpkeep
from conroi.maintenance.repair import mend
from conroi.maintenance.reports import Duration
from conroi.pickles import Reduced, reduced_lake
from conroi.query import QueryParams, QueryResult, query
from conroi.retry_policy import Budget, pause_s
from conroi.snapshots.branch_names import MAIN
from conroi.snapshots.table_storage import TableStorage
from conroi.table import Table
from conroi.transaction import Isolation, Transaction, TransactionResult
from conroi.verbs.create import DEFAULT_DATA_FORMAT, check_same_table
from conroi.versions.leases import Lease

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conroi.data.incoming import Data
    from conroi.data.writer import Progress
    from conroi.doctor import Diagnosis
    from conroi.spark.sql import Statement

_log = logging.getLogger(__name__)

T = TypeVar("T")


@checked_calls
class Lake(LakeListing, LakeInserts, LakeScopes, LakeBranches, LakeUpkeep):
    """A catalog of Lance tables in one folder, with atomic multi-table transactions; `conroi.connect(uri)` opens one.

    >>> import conroi
    >>> lake = conroi.connect("memory://lake-example")
    >>> lake.create_table("orders", [{"id": 1, "amount": 5.0}], key="id").version
    1
    >>> with lake.begin("nightly") as tx:
    ...     changed = tx["orders"].append([{"id": 2, "amount": 7.5}])
    >>> lake["orders"].count_rows(), lake.tables()
    (2, ['orders'])
    """

    def __init__(
        self, catalog: Catalog, manifest: TableStorage | None = None, *, pinned: LakeState | None = None
    ) -> None:
        self._catalog = catalog
        self._pinned = pinned
        self._manifest = manifest
        self.lease: Lease | None = None
        """Lease on the version of a past lake, if at(…, keep=…) was used."""

    # ------------------------------------------------------------------------ facts

    @property
    def uri(self) -> str:
        """The location of the lake."""
        return self._catalog.uri

    @property
    def version(self) -> int:
        """The newest version of the lake; for a lake from at(), its version."""
        return self._state().version

    @property
    def catalog(self) -> Catalog:
        """Internal interface for publishing through this lake."""
        return self._catalog

    @property
    def pinned(self) -> LakeState | None:
        """The state of a lake from at(); None for the lake itself."""
        return self._pinned

    def _name_for_errors(self, table: str | None) -> str | None:
        return self._catalog.name_for_errors(table)

    def _state(self) -> LakeState:
        return self._pinned or self._catalog.state()

    def tables(self, namespace: str | None = None) -> list[str]:
        """The names of all tables, or of those in a namespace."""
        names = [shown(row.object_id) for row in self._state().tables()]
        if namespace is None:
            return names
        object_id(namespace)
        return [name for name in names if name.startswith(f"{namespace}.")]

    def namespaces(self) -> list[str]:
        """The names of all namespaces."""
        rows = [row for row in self._state().rows.values() if row.object_type == NAMESPACE]
        return sorted(shown(row.object_id) for row in rows if not row.object_id.startswith("__"))

    def __contains__(self, name: str) -> bool:
        return self._state().table(object_id(name)) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __len__(self) -> int:
        return len(self._state().tables())

    # ------------------------------------------------------------------------ tables

    def __getitem__(self, name: str) -> Table:
        """The table of this name, pinned at its newest version."""
        sought = known_id(name, (self._pinned or self._catalog.known_state()).rows)
        with about(shown(sought)):
            if self._pinned is not None:
                row = self._past_row(sought, self._pinned)
                files = replace(table_files(self._catalog, row), past=self._pinned.version)
                return Table(files, self._catalog.snapshot(row))
            row, snapshot = self._catalog.newest(lambda state: self._catalog.row(sought, state))
            return Table(table_files(self._catalog, row), snapshot)

    def _past_row(self, sought: str, state: LakeState) -> Row:
        if state.table(sought) is None:
            now = self._catalog.known_state()
            later = f"The lake has it at version {now.version}; lake.history() shows since when."
            had = ", ".join(shown(row.object_id) for row in state.tables()[:10]) or "no table"
            raise NotFoundError(
                f"The lake had no table {shown(sought)!r} at version {state.version}.",
                hint=later if now.table(sought) is not None else f"It had {had} then.",
            )
        return self._catalog.row(sought, state)

    def _published(self, name: str) -> Table:
        """The table as this lake has just published it. No request is sent: a failure after the commit would look
        like a conflict.
        """
        with about(name):
            row = self._catalog.row(object_id(name), self._catalog.known_state())
            return Table(table_files(self._catalog, row), self._catalog.snapshot(row))

    def files_at(self, folder: str) -> TableStorage | None:
        """The storage of the table in this folder of the lake; None if there is none."""
        for row in self._state().tables():
            if row.location is not None and table_of(row.location) == folder:
                return table_files(self._catalog, row)
        return None

    def table(
        self,
        name: str,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
    ) -> Table:
        """The table of this name; optionally at a version, at a tag, or as of a time."""
        if version is None and tag is None and as_of is None:
            return self[name]
        row = self._catalog.row(object_id(name), self._state())
        files = table_files(self._catalog, row)
        with about(shown(row.object_id)):
            return Table(files, find(files, version, tag, as_of))

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
        message: str | None = None,
        progress: Progress | None = None,
    ) -> Table:
        """Create a table from a pyarrow schema (empty) or from data. Namespaces in its name are created with it.

        `schema` sets the types of the data's columns, including fixed-size vectors. With `exist_ok=True` an existing
        table is opened and no row is written; AlreadyExistsError if its columns or its key differ.
        """
        try:
            with self.begin(message or f"create {name}") as tx:
                tx.create_table(
                    name,
                    schema_or_data,
                    key=key,
                    stable_row_ids=stable_row_ids,
                    config=config,
                    data_format=data_format,
                    schema=schema,
                    exist_ok=exist_ok,
                    progress=progress,
                )
        except AlreadyExistsError:
            if not exist_ok or name not in self:
                raise
            found = self[name]  # a concurrent writer created it first
            check_same_table(found.schema, found.key, schema_or_data, schema, key, table=name)
            return found
        return self._published(name)

    def drop_table(self, name: str, *, message: str | None = None) -> None:
        """Drop a table; older versions of the lake (`lake.at(older)`) still have it."""
        with self.begin(message or f"drop {name}") as tx:
            tx.drop_table(name)

    def rename_table(self, name: str, new_name: str, *, message: str | None = None) -> Table:
        """Rename a table."""
        self._refuse_pinned()
        _ = self[name]  # loaded before the commit
        with self.begin(message or f"rename {name} to {new_name}") as tx:
            tx.rename_table(name, new_name)
        return self._published(new_name)

    def mend(self, name: str, *, discard: bool = False) -> Table:
        """Repair a table that diverged after an out-of-band write (see ForkedTableError): rebase that write onto the
        lake.

        If the two changes are incompatible, IncompatibleConflict says why; `discard=True` then continues from the
        lake's version. The other version stays readable by path under its number. A table that has not diverged is
        unchanged.
        """
        self._refuse_pinned()
        with about(name):
            mend(self._catalog, object_id(name), discard=discard)
        return self._published(name)

    def doctor(self, *, fix: bool = False, deep: bool = False, progress: Progress | None = None) -> Diagnosis:
        """Check the integrity of the lake and report findings; `fix` repairs what is safe.

        Nothing is deleted, and nothing changes without `fix`. `deep` also reads all rows of all versions. `progress` is
        called with the number of things looked at so far.

        >>> import conroi
        >>> conroi.connect("memory://doctor-example").doctor().is_healthy
        True
        """
        from conroi.doctor import examine_lake

        self._refuse_pinned()
        main = self._catalog.main
        return examine_lake(main, main.manifest, fix=fix, deep=deep, progress=progress)

    # ------------------------------------------------------------------------ transactions

    def begin(
        self,
        message: str | None = None,
        *,
        author: str | None = None,
        isolation: Isolation = "snapshot",
        expect: Mapping[str, int] | None = None,
        idempotency_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        branch: str | None = None,
        keep: Duration | None = None,
    ) -> Transaction:
        """Begin a transaction: `with lake.begin("nightly") as tx:`. It is committed atomically, or rolled back.

        It reads one snapshot of all tables. `expect` gives versions that tables must have at commit. With an
        `idempotency_key` that was committed before, it is a no-op. `retries` is the number of retries after conflicts
        on the same tables (5), and `timeout` their time limit in seconds (30); with a timeout alone, only that counts.
        `branch` begins it on another branch of the lake. `keep="1h"` protects its snapshot from garbage collection for
        this time, or until it ends; `tx.lease.renew()` extends that.
        """
        if branch is not None:
            return self.branch(branch).begin(
                message,
                author=author,
                isolation=isolation,
                expect=expect,
                idempotency_key=idempotency_key,
                properties=properties,
                retries=retries,
                timeout=timeout,
                keep=keep,
            )
        self._refuse_pinned()
        notes = CommitMetadata(message, author, idempotency_key, checked_texts(properties or {}))
        checked_texts(notes.to_properties())
        transaction = Transaction(
            self._catalog, notes=notes, isolation=isolation, expect=expect, retries=retries, timeout=timeout
        )
        transaction.hold(self._leased(transaction.base_version, keep))
        return transaction

    def run(
        self,
        work: Callable[[Transaction], T],
        *,
        retries: int | None = None,
        timeout: float | None = None,
        message: str | None = None,
        author: str | None = None,
        isolation: Isolation = "snapshot",
        idempotency_key: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> T:
        """Call `work(tx)` in a transaction and commit; after a retryable conflict, run both again in a new transaction.

        It raises the last conflict after `retries` lost races (10) or `timeout` seconds; with a timeout alone, only
        that counts.
        """
        environment = self._catalog.environment
        budget = Budget(environment, retries, timeout)
        while True:
            started = environment.monotonic()
            try:
                with self.begin(
                    message,
                    author=author,
                    isolation=isolation,
                    idempotency_key=idempotency_key,
                    properties=properties,
                    retries=budget.left,
                    timeout=budget.timeout_s,
                ) as tx:
                    done = work(tx)
            except ConflictError as conflict:
                if not budget.spend(conflict):
                    if budget.attempts > 1:
                        conflict.message += f" lake.run() ran the work {budget.attempts} times."
                    raise
                _log.info("lake.run: attempt %d lost, running the work again: %s", budget.attempts, conflict)
                environment.sleep(pause_s(environment, budget.attempts, environment.monotonic() - started))
            else:
                return done

    def query(self, text: str, params: QueryParams | None = None) -> QueryResult:
        """Run one SELECT in DuckDB's SQL over a snapshot of all tables; `params` fill in `?` or `$name`.

        Only the tables can be read, and nothing can be written. Needs the extra `conroi[duckdb]`.

        >>> import conroi
        >>> lake = conroi.connect("memory://query-example")
        >>> orders = lake.create_table("orders", [{"id": 1, "amount": 5.0}, {"id": 2, "amount": 7.5}])
        >>> lake.query("SELECT max(amount) AS most FROM orders WHERE id < $id", {"id": 2}).to_pylist()
        [{'most': 5.0}]
        """
        return query(self.current(), text, params)

    def sql(self, spark: SparkSession, query: str) -> DataFrame | Statement:
        """Run one statement of Spark SQL: a query over a snapshot of all tables, or a change of one table.

        SELECT returns a DataFrame; INSERT, UPDATE, DELETE and MERGE INTO are one transaction each, and return a
        summary.
        """
        return in_spark("sql").lake_sql(self, spark, query)

    # ------------------------------------------------------------------------ the past

    def at(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
        keep: Duration | None = None,
    ) -> Lake:
        """The lake as of a version, a tag, or a time (time travel). Read-only.

        `keep="1h"` protects the version and all its table versions from garbage collection for this time: `past.lease`
        can be renewed, released, and used as a `with` block.
        """
        past = self._at(version, tag, as_of)
        past.lease = past._leased(past.version, keep)  # noqa: SLF001 (a Lake like ourselves)
        return past

    def _at(self, version: int | None, tag: str | None, as_of: datetime | str | None) -> Lake:
        given = [value for value in (version, tag, as_of) if value is not None]
        if len(given) != 1:
            raise InvalidInputError("Say which version of the lake.", hint="Give one of version, tag and as_of.")
        if tag is not None:
            return self._at_tag(tag)
        if as_of is not None:
            state = self._catalog.as_of(as_of)
        else:
            wanted = version
            assert wanted is not None
            state = self._catalog.at(wanted)
        return Lake(self._catalog, self._manifest, pinned=state)

    def current(self) -> Lake:
        """A read-only snapshot of the lake, with all tables at their newest versions."""
        if self._pinned is not None:
            return self
        return Lake(self._catalog, self._manifest, pinned=self._catalog.current())

    def history(self, limit: int | None = None) -> list[LakeCommit]:
        """The commits of the lake, newest first."""
        published = self._catalog.heads.history(self._state().version, limit)
        return Listing(map(lake_commit, published), lake_history_page)

    # ------------------------------------------------------------------------ looking at it

    def _refuse_pinned(self) -> None:
        if self._pinned is not None:
            raise InvalidInputError(
                f"This is the lake as it was at version {self._pinned.version}; it can only be read.",
                hint="Use the lake itself, as conroi.connect() gave it.",
            )
        if isinstance(self._catalog.heads, ReplicaStore):
            raise self._catalog.heads.read_only()

    def __reduce__(self) -> Reduced:
        """Pickle as an address; the other process opens the lake again, with credentials from its environment."""
        return reduced_lake(self)

    def __repr__(self) -> str:
        state = self._state()
        on = "" if self._catalog.identity.is_main else f" on branch {self.branch_name!r}"
        return f"Lake({self.uri!r}{on}, version={state.version}, {len(state.tables())} tables)"

    def _repr_html_(self) -> str:
        return to_html(lake_page(self))


@checked_call
def connect(
    uri: str | os.PathLike[str],
    *,
    store: str | None = None,
    locks: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durable: bool = False,
    branch: str | None = None,
    allow_bases: Sequence[str | os.PathLike[str]] | None = None,
    create: bool = True,
    environment: Environment = SYSTEM,
) -> Lake:
    """Open the lake at a path or URI, or a branch of it; an empty location becomes a new lake.

    With `create=False` a location without a lake is NotFoundError. No lake is created inside a table or another lake.
    `durable=True` syncs to local disk before a commit returns. `locks` is the address of the database for insert locks,
    `postgresql://…`. Files outside the lake that a table references are not read, unless they are below one of
    `allow_bases`.
    """
    checked_address(locks)
    catalog, manifest = open_catalog(
        uri,
        store=store,
        storage_options=storage_options,
        durable=durable,
        allow_bases=allow_bases,
        create=create and branch in (None, MAIN),  # a new lake has no other branch
        environment=environment,
    )
    locks_of(catalog, locks)
    lake = Lake(catalog, manifest)
    return lake if branch is None else lake.branch(branch)


__all__ = ["Lake", "LakeCommit", "Transaction", "TransactionResult", "connect"]
