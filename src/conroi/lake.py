"""Lake: a catalog of Lance tables with atomic multi-table transactions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from conroi import registration
from conroi.arguments import checked_calls
from conroi.branches.lake_ref import LakeRef
from conroi.branches.merge import merge
from conroi.branches.results import LakeMerge, Prefer
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import known_id, object_id, shown
from conroi.catalog.replica_store import ReplicaStore
from conroi.catalog.state import CommitMetadata
from conroi.commit.change import checked_texts
from conroi.data.incoming import Data
from conroi.data.writer import Progress
from conroi.doctor import Diagnosis, examine_lake
from conroi.errors import AlreadyExistsError, ConflictError, NotFoundError, about
from conroi.insertion import Insert, Remains, insert, write
from conroi.inserts import InsertLock, Mode, locks_of
from conroi.jobs import Job
from conroi.lake_snapshot import LakeReader
from conroi.maintenance.collection import MIN_AGE
from conroi.maintenance.expiry import KEEP, OLDER_THAN
from conroi.maintenance.lake_collection import collect_lake
from conroi.maintenance.lake_expiry import expire_lake
from conroi.maintenance.repair import repair
from conroi.maintenance.reports import Collected, Duration, Expired
from conroi.retry_policy import Budget, pause_s
from conroi.snapshots.snapshot import TableStorage
from conroi.table import Table, table_of
from conroi.transaction import Isolation, Transaction
from conroi.verbs.create import DEFAULT_DATA_FORMAT, check_same_table

_log = logging.getLogger(__name__)

T = TypeVar("T")


@checked_calls
class Lake(LakeReader):
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

    def __init__(self, catalog: Catalog, manifest: TableStorage | None = None) -> None:
        super().__init__(LakeRef(catalog, manifest), _lake)

    def __getitem__(self, name: str) -> Table:
        """The table of this name, pinned at its newest version."""
        sought = known_id(name, self._catalog.known_state().rows)
        with about(shown(sought)):
            row, snapshot = self._catalog.newest(lambda state: self._catalog.row(sought, state))
            return Table(self._ref.storage(row), snapshot)

    def _check_writable(self) -> None:
        if isinstance(self._catalog.heads, ReplicaStore):
            raise self._catalog.heads.read_only()

    # ------------------------------------------------------------------------ tables

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
        return table_of(self._catalog, name)

    def drop_table(self, name: str, *, message: str | None = None) -> None:
        """Drop a table; older versions of the lake (`lake.at(older)`) still have it."""
        with self.begin(message or f"drop {name}") as tx:
            tx.drop_table(name)

    def rename_table(self, name: str, new_name: str, *, message: str | None = None) -> Table:
        """Rename a table."""
        self._check_writable()
        _ = self[name]  # loaded before the commit
        with self.begin(message or f"rename {name} to {new_name}") as tx:
            tx.rename_table(name, new_name)
        return table_of(self._catalog, new_name)

    def mend(self, name: str, *, discard: bool = False) -> Table:
        """Repair a table that diverged after an out-of-band write (see ForkedTableError): rebase that write onto the
        lake.

        If the two changes are incompatible, IncompatibleConflict says why; `discard=True` then continues from the
        lake's version. The other version stays readable by path under its number. A table that has not diverged is
        unchanged.
        """
        self._check_writable()
        with about(name):
            repair(self._catalog, object_id(name), discard=discard)
        return table_of(self._catalog, name)

    def doctor(self, *, fix: bool = False, deep: bool = False, progress: Progress | None = None) -> Diagnosis:
        """Check the integrity of the lake and report findings; `fix` repairs what is safe.

        Nothing is deleted, and nothing changes without `fix`. `deep` also reads all rows of all versions. `progress` is
        called with the number of things looked at so far.

        >>> import conroi
        >>> conroi.connect("memory://doctor-example").doctor().is_healthy
        True
        """
        self._check_writable()
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
        self._check_writable()
        notes = CommitMetadata(message, author, idempotency_key, checked_texts(properties or {}))
        checked_texts(notes.to_properties())
        transaction = Transaction(
            self._catalog, notes=notes, isolation=isolation, expect=expect, retries=retries, timeout=timeout
        )
        if keep is not None:
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

    # ------------------------------------------------------------------------ inserts

    def insert(
        self,
        name: str,
        data: Data,
        *,
        chunk_rows: int | None = None,
        wait_s: float | None = None,
        message: str | None = None,
        remains: Remains = "remove",
    ) -> Table:
        """Insert rows with consecutive row ids, in one commit or, with `chunk_rows`, in pieces of at most this many
        rows.

        The rows of a Spark DataFrame are written by executors, in one job.

        `wait_s` is the timeout of the insert lock in seconds, where the lake has locks. The partial insert of a crashed
        worker is removed first; `remains="keep"` keeps it.
        """
        return self.concat(name, [data], chunk_rows=chunk_rows, wait_s=wait_s, message=message, remains=remains)

    def concat(
        self,
        name: str,
        sources: Sequence[Data],
        *,
        chunk_rows: int | None = None,
        wait_s: float | None = None,
        message: str | None = None,
        remains: Remains = "remove",
    ) -> Table:
        """Insert the rows of several sources, in this order, with consecutive row ids."""
        self._check_writable()
        insert(self._catalog, object_id(name), Insert(list(sources), chunk_rows, wait_s, message, remains))
        return table_of(self._catalog, name)

    def write(
        self,
        name: str,
        data: Data,
        *,
        key: str | Sequence[str] | None = None,
        chunk_rows: int | None = None,
        wait_s: float | None = None,
        message: str | None = None,
        remains: Remains = "remove",
    ) -> Table:
        """Insert into the table of this name; one that does not exist is created with these rows, with stable row ids.

        A new table and its rows are one commit. With `chunk_rows` the table is created first; it stays, empty, if the
        rows then turn out to be unreadable.
        """
        self._check_writable()
        what = Insert([], chunk_rows, wait_s, message, remains)  # refused before the table is created
        write(self._catalog, name, data, key, what)
        return table_of(self._catalog, name)

    def insert_lock(self, name: str, *, wait_s: float | None = None) -> InsertLock:
        """The insert lock of a table: `with lake.insert_lock("orders"):`, or `async with`."""
        self._check_writable()
        return InsertLock(locks_of(self._catalog), object_id(name), wait_s)

    def set_locks(self, mode: Mode) -> None:
        """Set the kind of insert locks of the lake: "postgresql", "file" (one machine) or "none"."""
        self._check_writable()
        registration.set_locks(self._catalog, self._manifest, mode)

    # ------------------------------------------------------------------------ temporary tables, jobs, copies

    @contextlib.contextmanager
    def temp_table(self, schema_or_data: pa.Schema | Data, *, stable_row_ids: bool = True) -> Generator[str]:
        """A temporary table of this worker, not locked, dropped at the end of the `with` block; yields its name."""
        name = f"tmp_{self._catalog.environment.new_uuid().hex}"
        self.create_table(name, schema_or_data, stable_row_ids=stable_row_ids)
        try:
            yield name
        finally:
            with contextlib.suppress(NotFoundError):
                self.drop_table(name)

    def job(self, job_id: str) -> Job:
        """The tables of a job: `with lake.job("nightly-7") as job: job.write("parts", data)`."""
        return Job(self, job_id)

    def copy(self, name: str, new_name: str) -> Table:
        """A new table with the rows of another. Not locked: two concurrent copies to one name are the pipeline's
        mistake.
        """
        source = self[name]
        rows = pa.RecordBatchReader.from_batches(source.schema, source.to_batches())
        key = list(source.key) or None
        return self.create_table(new_name, rows, key=key, stable_row_ids=source.has_stable_row_ids)

    # ------------------------------------------------------------------------ catalog entries

    def create_namespace(self, name: str, *, message: str | None = None) -> None:
        """Create a namespace; `lake.create_table("sales.orders", …)` creates `sales` by itself."""
        self._check_writable()
        registration.create_namespace(self._catalog, name, message)

    def drop_namespace(self, name: str, *, message: str | None = None) -> None:
        """Drop an empty namespace."""
        self._check_writable()
        registration.drop_namespace(self._catalog, name, message)

    def register(self, name: str, location: str, *, message: str | None = None) -> Table:
        """Register an existing Lance table in a folder of this lake, at its newest version."""
        self._check_writable()
        registration.register(self._catalog, name, location, message)
        return table_of(self._catalog, name)

    def deregister(self, name: str, *, message: str | None = None) -> str:
        """Remove a table from the catalog and keep its folder; returns the folder's location.

        Everything that the lake has of it is finalized in the folder first, so ExpectedVersionMismatch after a
        concurrent commit. From then on expire() and gc() ignore the folder, also where older versions of the lake still
        list the table; those can read it for as long as the owner of the folder keeps its versions.
        """
        self._check_writable()
        return registration.deregister(self._catalog, name, message)

    def adopt(self, message: str | None = None) -> list[str]:
        """Register every unregistered Lance table in the lake's folder; returns their names."""
        self._check_writable()
        return registration.adopt_folders(self._catalog, message)

    # ------------------------------------------------------------------------ branches

    def merge(
        self,
        source: LakeReader | str,
        into: str | None = None,
        *,
        dry_run: bool = False,
        prefer: Prefer = None,
        message: str | None = None,
        author: str | None = None,
    ) -> LakeMerge:
        """Three-way merge of a branch into another (by default this one): all tables in one commit, or none.

        Where both changed the same thing, MergeConflict lists it by table and key, unless `prefer` decides: "source",
        "target", or a function that gets each conflict and returns one of the two.
        """
        target = self if into is None else self.branch(into)
        taken = self.resolve(source)._ref  # noqa: SLF001 (a lake like ourselves)
        ref = target._ref  # noqa: SLF001
        return merge(taken, ref, target.begin, dry_run=dry_run, prefer=prefer, message=message, author=author)

    # ------------------------------------------------------------------------ upkeep

    def expire(
        self,
        older_than: Duration = OLDER_THAN,
        *,
        keep: int = KEEP,
        dry_run: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Expired:
        """Expire versions of the lake that were superseded this long ago, and table versions that only they pin.

        The newest `keep`, tagged ones and what branches need stay. By default it is a dry run. `progress` is called
        with the number of tables processed. See docs/maintenance.md.
        """
        self._check_writable()
        return expire_lake(self._catalog, older_than=older_than, keep=keep, dry_run=dry_run, progress=progress)

    def gc(
        self,
        *,
        min_age: Duration = MIN_AGE,
        dry_run: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Collected:
        """Garbage collection: delete unreferenced files that are older than this.

        Files staged by running writers are safe while they are younger; a writer that takes longer detects the deletion
        before it commits, and repeats its work. `progress` is called with the number of folders processed.
        """
        self._check_writable()
        return collect_lake(self._catalog, min_age=min_age, dry_run=dry_run, progress=progress)


def _lake(ref: LakeRef) -> Lake:
    """A lake that can be written."""
    return Lake(ref.catalog, ref.manifest)
