"""Lance table: an immutable snapshot with verbs. A verb starts at the newest version and returns the new Table."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from conroi import verbs
from conroi.arguments import checked_calls
from conroi.commit.execution import WriteOptions, checked_texts, run
from conroi.commit.fairness import Turns
from conroi.data.columns import Columns as NewValues
from conroi.data.incoming import Data, Once
from conroi.data.predicates import Predicate, find_rows
from conroi.data.remote_rows import in_spark
from conroi.data.sql import Params, bound, bound_values
from conroi.data.table_version import TableVersion
from conroi.data.writer import Progress
from conroi.errors import ConroiError, InvalidInputError, about
from conroi.maintenance.auto_compaction import compact_after
from conroi.maintenance.collection import MIN_AGE
from conroi.maintenance.expiry import KEEP, OLDER_THAN, live_leases
from conroi.maintenance.naming_migration import migrate_manifest_names
from conroi.maintenance.reports import Collected, Duration, Expired
from conroi.merge.builder import MergeBuilder, source_rows
from conroi.merge.request import checked_on
from conroi.pickles import Reduced, reduced_table
from conroi.reader import ReadableTable
from conroi.snapshots.snapshot import Snapshot
from conroi.verbs.columns import ColumnChange, NewColumns, compute_here
from conroi.verbs.compact import CompactOptions, lost_by, rewrite_here
from conroi.verbs.plan import IfMoved, Plan, Preparing
from conroi.verbs.settings import Values
from conroi.verbs.update import Mode
from conroi.versions.leases import LeaseInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conroi.branches.diff import TableDiff
    from conroi.doctor import Diagnosis
    from conroi.opening import Store
    from conroi.table_transaction import TableTransaction
    from conroi.versions.conditional_put import CommitLock, Put


_log = logging.getLogger(__name__)


@checked_calls
class Table(ReadableTable):
    """One Lance table, pinned at one version.

    Every verb takes `message`, `properties`, `retries`, `strict` and `expect` besides its own arguments. It starts at
    the newest version, commits, and returns the Table at its new version (or at the newest one, if it was a no-op).

    >>> import conroi
    >>> orders = conroi.create_table("memory://orders", [{"id": 1, "amount": 5.0}], key="id")
    >>> orders = orders.append([{"id": 2, "amount": -1.0}], message="second")
    >>> orders = orders.delete("amount < 0")
    >>> orders.version, orders.to_arrow().to_pylist()
    (3, [{'id': 1, 'amount': 5.0}])
    """

    def _do(self, verb: Callable[[TableVersion], Plan | None], how: WriteOptions) -> Table:
        return self._planned(verb, how)[0]

    def _planned(self, verb: Callable[[TableVersion], Plan | None], how: WriteOptions) -> tuple[Table, Plan | None]:
        def prepare(head: Snapshot) -> None:
            if isinstance(verb, Preparing):
                verb.prepare(self._at_head(head))

        with about(self.uri):
            done = run(self._files, self._pinned.snapshot, lambda head: verb(self._at_head(head)), how, prepare)
            if done.result is not None:
                compact_after(self._files, done.result)
        return Table(self._files, done.snapshot, self._pinned), done.work

    def _at_head(self, head: Snapshot) -> TableVersion:
        """This handle, with its open resources, if it is pinned at the newest version."""
        is_contended = not self._files.is_managed and self._files.kept(Turns).is_contended()
        if head is self._pinned.snapshot and not is_contended:
            return self._pinned
        return TableVersion(self._files, head, self._pinned, is_contended=is_contended)

    def __reduce__(self) -> Reduced:
        """Pickle as an address and a version; the other process opens the table again, with credentials from its
        environment.
        """
        return reduced_table(self)

    # ------------------------------------------------------------------------- which version

    def latest(self) -> Table:
        """The table at its newest version."""
        return Table(self._files.current(), self._files.newest(self._pinned.snapshot))

    def at(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
        keep: Duration | None = None,
    ) -> Table:
        """The table as of a version, a tag, or a time (time travel).

        `keep="1h"` protects the version from garbage collection for this time: `table.lease` can be renewed and
        released.
        """
        past = Table(self._files, self._find(version, tag, as_of))
        past.lease = past._taken(keep)
        return past

    def diff(self, a: Table | int | str, b: Table | int | str | None = None, *, keys: bool = True) -> TableDiff:
        """The differences between version `a` and version `b` of the table (by default this one).

        Each is a version, a tag, or the table at a version. Columns and row counts are compared and, for a table with a
        key, which keys were inserted, updated and deleted; `keys=False` only counts. Only files that differ are read.

        >>> import conroi
        >>> orders = conroi.create_table("memory://diff-example", [{"id": 1, "v": "a"}], key="id")
        >>> newer = orders.append([{"id": 2, "v": "b"}]).update({"v": "'c'"}, where="id = 1")
        >>> print(newer.diff(1).keys)
        1 inserted, 1 updated
        """
        from conroi.branches.diff import table_diff

        before, after = self._version_of(a), self if b is None else self._version_of(b)
        with about(self.uri):
            return table_diff(before.pinned, after.pinned, self.name, keys=keys)

    def _version_of(self, of: Table | int | str) -> Table:
        if isinstance(of, Table):
            if of.uri != self.uri:
                raise InvalidInputError(
                    f"{of.name} is another table, or this one on another branch.",
                    table=self.uri,
                    hint="Give a version or a tag of this table; lake.diff(a, b) compares branches.",
                )
            return of
        return self.at(tag=of) if isinstance(of, str) else self.at(version=of)

    # ------------------------------------------------------------------------- transactions

    def begin(
        self,
        message: str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        retries: int | None = None,
        strict: bool = False,
        idempotency_key: str | None = None,
        keep: Duration | None = None,
    ) -> TableTransaction:
        """Begin a transaction on this table alone: `with table.begin("load") as tx: tx.append(…); tx.delete(…)`.

        It starts at the newest version and creates one new version. `strict` refuses after any concurrent commit. With
        an `idempotency_key` that was committed before, it is a no-op. `keep="1h"` protects its base version from
        garbage collection for this time, or until the transaction ends.
        """
        from conroi.table_transaction import TableTransaction

        self._files.refuse_past()
        with about(self.uri):
            base = self._files.newest(self._pinned.snapshot)
        transaction = TableTransaction(
            self._files.holding(base),
            base,
            message=message,
            properties=properties,
            retries=retries,
            strict=strict,
            idempotency_key=idempotency_key,
        )
        transaction.hold(Table(self._files, base)._taken(keep))  # noqa: SLF001 (a Table like ourselves)
        return transaction

    # ------------------------------------------------------------------------- rows

    def append(
        self,
        data: Data,
        *,
        evolve_schema: bool = False,
        base: str | None = None,
        progress: Progress | None = None,
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Append rows. With `evolve_schema` new columns are added, and types widened, in the same version.

        `base` names another root for their files: see add_base(). Files there are never garbage-collected.
        """
        return self._do(verbs.Appending(data, evolve_schema=evolve_schema, base=base, progress=progress), how)

    def insert(
        self,
        data: Data,
        *,
        chunk_rows: int | None = None,
        wait_s: float | None = None,
        message: str | None = None,
    ) -> Table:
        """Insert rows with consecutive row ids, under the table's insert lock: see lake.insert(). For tables of a
        lake.
        """
        from conroi.insertion import insert_into

        done = insert_into(self._files, data, chunk_rows=chunk_rows, wait_s=wait_s, message=message)
        return Table(self._files, done, self._pinned)

    def overwrite(
        self,
        data: Data,
        where: Predicate | None = None,
        *,
        params: Params | None = None,
        config: Mapping[str, str] | None = None,
        if_moved: IfMoved = "fail",
        progress: Progress | None = None,
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Replace all rows, or those that match `where`; `config` changes the configuration in the same version.

        A concurrent commit is an ExpectedVersionMismatch, since its rows would be lost; `if_moved="win"` overwrites
        regardless. Without `where`, the schema metadata of Arrow data is stored too.
        """

        rows, settings = Once(data), checked_texts(config or {})
        where = bound(where, params, self.name)
        if settings and where is not None:
            raise InvalidInputError(
                "Settings change only when all rows are replaced.",
                table=self.uri,
                hint="Leave out where, or call set_config() in the same transaction.",
            )

        def verb(at: TableVersion) -> Plan | None:
            if where is None:
                return verbs.overwrite(at, rows, config=settings, if_moved=if_moved, progress=progress)
            return verbs.overwrite_where(at, rows, where, if_moved=if_moved, progress=progress)

        return self._do(verb, how)

    def delete(
        self,
        where: Predicate,
        *,
        params: Params | None = None,
        spark: SparkSession | None = None,
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Delete the rows that match the condition; with `spark`, executors search for them.

        `params` are the values of `:name` in the condition: `delete("id = :id", params={"id": 3})`.
        """
        where = bound(where, params, self.name)
        find = find_rows if spark is None else in_spark("fragment_jobs").OnExecutors(spark).find
        return self._do(lambda at: verbs.delete(at, where, find=find), how)

    def update(
        self,
        values: Mapping[str, object],
        where: Predicate | None = None,
        *,
        params: Params | None = None,
        mode: Mode = "auto",
        spark: SparkSession | None = None,
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Set columns by SQL expression, `{"v": "v + 1"}`, in the rows that match the condition.

        Numbers, dates, bytes and other Python values stand for themselves; a text value is `conroi.literal("new")`,
        or a parameter: `update({"s": ":new"}, "id = :id", params={"new": "it's", "id": 3})`.

        `mode` is "rows" (rewrite the rows), "columns" (rewrite only the changed columns, of all rows in the affected
        fragments) or "auto", the cheaper one. With `spark`, executors do the work.
        """
        values, where = bound_values(values, where, params, self.name)
        work = None if spark is None else in_spark("fragment_jobs").OnExecutors(spark)
        return self._do(lambda at: verbs.update(at, values, where, mode=mode, rewriting=work), how)

    def merge(self, source: Data, on: str | Sequence[str], *, evolve_schema: bool = False) -> MergeBuilder:
        """Merge (upsert) rows by key: add `when_…` clauses, then `execute()`. Null keys match nothing.

        With `evolve_schema=True` missing columns are added to the table first, and types widened, in a version of their
        own; inside a transaction that is one version with the rows.
        """
        rows = source_rows(source, self.schema, evolve=evolve_schema)
        found = checked_on(on, self.name)
        return MergeBuilder(self.name, rows, found, self._planned, lambda: self._pinned, evolve_schema=evolve_schema)

    # ------------------------------------------------------------------------- columns

    def add_columns(
        self,
        columns: NewColumns,
        *,
        read_columns: Sequence[str] | None = None,
        progress: Progress | None = None,
        spark: SparkSession | None = None,
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Add columns: by SQL `{"total": "price * n"}`, by a function over batches, or as pyarrow fields, all null.

        With `spark`, executors compute them: the function goes there.
        """
        compute = compute_here if spark is None else in_spark("fragment_jobs").AddOnExecutors(spark)
        return self._do(
            lambda at: verbs.add_columns(at, columns, read_columns=read_columns, progress=progress, compute=compute),
            how,
        )

    def drop_columns(self, columns: Sequence[str], **how: Unpack[WriteOptions]) -> Table:
        """Drop columns."""
        return self._do(lambda at: verbs.drop_columns(at, columns), how)

    def rename_columns(self, names: Mapping[str, str], **how: Unpack[WriteOptions]) -> Table:
        """Rename columns: `{"old": "new"}`."""
        return self._do(lambda at: verbs.rename_columns(at, names), how)

    def alter_columns(self, changes: Mapping[str, ColumnChange], **how: Unpack[WriteOptions]) -> Table:
        """Change columns: `{"v": {"type": pa.float64()}, "w": {"nullable": False}}`."""
        return self._do(lambda at: verbs.alter_columns(at, changes), how)

    def replace_column_data(
        self,
        columns: NewValues,
        *,
        fragments: Sequence[int] | None = None,
        progress: Progress | None = None,
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Recompute whole columns, by SQL `{"v": "v * 2"}` or by a function over batches; optionally of some
        fragments.
        """
        return self._do(lambda at: verbs.replace_column_data(at, columns, fragments=fragments, progress=progress), how)

    def declare_key(self, key: str | Sequence[str], **how: Unpack[WriteOptions]) -> Table:
        """Declare a primary key on existing columns, after checking that their values are unique."""
        return self._do(lambda at: verbs.declare_key(at, key), how)

    # ------------------------------------------------------------------------- settings

    def set_config(self, values: Values, *, replace: bool = False, **how: Unpack[WriteOptions]) -> Table:
        """Change the configuration; None deletes an entry, `replace` drops those not given."""
        return self._do(lambda at: verbs.set_config(at, values, replace=replace), how)

    def set_metadata(
        self,
        table: Values | None = None,
        *,
        schema: Values | None = None,
        fields: Mapping[str, Values] | None = None,
        replace: bool = False,
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Change metadata of the table, its schema, or single columns; None deletes an entry."""
        return self._do(
            lambda at: verbs.set_metadata(at, table=table, schema=schema, fields=fields, replace=replace), how
        )

    def add_base(
        self, path: str, *, name: str | None = None, is_table_root: bool = False, **how: Unpack[WriteOptions]
    ) -> Table:
        """Add another storage location in which files of this table may be."""
        return self._do(lambda at: verbs.add_base(at, path, name=name, is_table_root=is_table_root), how)

    def update_mem_wal_state(self, compacted: Mapping[str | UUID, int], **how: Unpack[WriteOptions]) -> Table:
        """Record the progress of a write-ahead log: by the UUID of each shard, its newest generation."""
        return self._do(lambda at: verbs.update_mem_wal_state(at, compacted), how)

    def reserve_fragments(self, count: int, **how: Unpack[WriteOptions]) -> Table:
        """Reserve fragment ids, for software that must know them before it commits."""
        return self._do(lambda at: verbs.reserve_fragments(at, count), how)

    # ------------------------------------------------------------------------- indices

    def create_index(
        self,
        column: str,
        kind: str = "BTREE",
        *,
        name: str | None = None,
        replace: bool = False,
        options: Mapping[str, Any] | None = None,
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Create an index on a column: scalar (BTREE, BITMAP, …), full text (INVERTED) or vector (IVF_PQ, …).

        `options` are pylance's own, such as `{"num_partitions": 16, "metric": "cosine"}`.
        """
        return self._do(
            lambda at: verbs.create_index(at, column, kind, name=name, replace=replace, **dict(options or {})), how
        )

    def drop_index(self, name: str, **how: Unpack[WriteOptions]) -> Table:
        """Drop an index."""
        return self._do(lambda at: verbs.drop_index(at, name), how)

    def optimize_indices(self, names: Sequence[str] | None = None, **how: Unpack[WriteOptions]) -> Table:
        """Extend indices to the rows that they do not cover yet (see `unindexed`): all, or those named.

        Scalar and text indices are rebuilt; vector indices get a segment for the missing rows.
        """
        return self._do(lambda at: verbs.optimize_indices(at, names), how)

    # ------------------------------------------------------------------------- whole table

    def compact(
        self,
        sort_by: str | Sequence[str] | None = None,
        *,
        rows_per_fragment: int | None = None,
        optimize_indices: bool = True,
        progress: Progress | None = None,
        spark: SparkSession | None = None,
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Rewrite small fragments and fragments with deleted rows into full ones; with `sort_by`, all rows in that
        order.

        Most kinds of indices cannot follow rows to other fragments: indices that lose rows are brought up to date in a
        version of their own right after, unless `optimize_indices=False`. With `spark`, executors rewrite the fragments
        (but they do not sort).
        """
        if spark is not None and sort_by is not None:
            raise InvalidInputError(
                "Sorting is done in this process.", table=self.uri, hint="Leave out spark=…, or sort_by."
            )
        rewrite = rewrite_here if spark is None else in_spark("fragment_jobs").CompactOnExecutors(spark)
        options = CompactOptions() if rows_per_fragment is None else CompactOptions(rows_per_fragment)

        def reserve_ids(count: int) -> range:
            reserved = self.reserve_fragments(count)
            last = reserved._pinned.manifest.head.max_fragment_id  # noqa: SLF001 (a Table like ourselves)
            return range(last - count + 1, last + 1)

        def verb(at: TableVersion) -> Plan | None:
            if sort_by is None:
                return verbs.compact(at, options, reserve_ids, progress=progress, rewrite=rewrite)
            columns = [sort_by] if isinstance(sort_by, str) else list(sort_by)
            return verbs.sort(at, columns, reserve_ids, progress=progress)

        table, plan = self._planned(verb, how)
        # Inside a transaction nothing is committed yet: the table there stays itself.
        is_committed = table is not self and not how.get("detached", False)
        if plan is None or not is_committed:
            return table
        lost = lost_by(plan, table.pinned.manifest)
        return _indexed(table, lost, how.get("message")) if optimize_indices and lost else table

    def restore(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
        if_moved: IfMoved = "fail",
        **how: Unpack[WriteOptions],
    ) -> Table:
        """Make a past version the newest again; the versions in between stay in the history."""
        target = self._find(version, tag, as_of)
        return self._do(lambda at: verbs.restore(at, target, if_moved=if_moved), how)

    def migrate_manifest_names(self) -> Table:
        """Rename the manifests of an old table (V1, `7.manifest`) to naming scheme V2.

        There must be no concurrent writers. An interrupted migration is completed by calling this again.
        """
        migrate_manifest_names(self._files)
        return self.latest()

    def doctor(self, *, fix: bool = False, deep: bool = False, progress: Progress | None = None) -> Diagnosis:
        """Check the integrity of the table and report findings; `fix` repairs what is safe.

        For a table in a lake, only what concerns this table. `deep` also reads all rows of all versions.
        """
        from conroi.doctor import examine_table

        with about(self.uri):
            return examine_table(self._files, fix=fix, deep=deep, progress=progress)

    def expire(self, older_than: Duration = OLDER_THAN, *, keep: int = KEEP, dry_run: bool = True) -> Expired:
        """Expire versions that were superseded this long ago; the newest `keep` and tagged ones stay.

        By default it is a dry run. For a standalone table; a lake has lake.expire().
        """
        from conroi.maintenance.expiry import expire_table

        with about(self.uri):
            return expire_table(self._files, older_than=older_than, keep=keep, dry_run=dry_run)

    def leases(self) -> list[LeaseInfo]:
        """The active leases on versions of this table, by the storage's own clock."""
        return live_leases(self._files.objects, self._files.environment)

    def gc(
        self, *, min_age: Duration = MIN_AGE, dry_run: bool = True, progress: Callable[[int], None] | None = None
    ) -> Collected:
        """Garbage collection: delete unreferenced files that are older than this; by default a dry run.

        For a standalone table; a lake has lake.gc().
        """
        from conroi.maintenance.collection import collect_table

        with about(self.uri):
            return collect_table(self._files, min_age=min_age, dry_run=dry_run, progress=progress)

    def clone(
        self,
        uri: str | os.PathLike[str],
        *,
        deep: bool = False,
        storage_options: Mapping[str, str] | None = None,
        store: Store | None = None,
        durable: bool = False,
        commit_lock: CommitLock | None = None,
        put: Put = "conditional",
    ) -> Table:
        """A new table with the rows of this version: shallow, sharing its files, or (`deep`) with copies of its own.

        Any table can be cloned deeply: clones, tables on branches, tables with files under other roots. In the folder
        of a lake a deep clone becomes a table of the lake; a shallow one is refused there.
        """
        from conroi.opening import clone_target

        with about(self.uri):
            target, lake = clone_target(
                uri,
                deep=deep,
                store=store,
                storage_options=storage_options,
                durable=durable,
                commit_lock=commit_lock,
                put=put,
                environment=self._files.environment,
            )
            made = verbs.clone(self._pinned, target, deep=deep)
            return Table(target, made) if lake is None else lake[0].register(*lake[1])


def _indexed(table: Table, names: Sequence[str], message: str | None) -> Table:
    """The table with these indices brought up to date; never raises, since the compaction is already committed."""
    try:
        return table.optimize_indices(names, message=message or "indices after a compaction")
    except ConroiError as error:
        _log.warning("%s: rows are missing in %s; run optimize_indices(): %s", table.uri, ", ".join(names), error)
        return table
