"""Writer: the verbs that change a table, legal on a table of its own and inside a transaction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, Unpack
from uuid import UUID

from conroi import verbs
from conroi.arguments import checked_calls
from conroi.commit.change import IfMoved, Plan, checked_texts
from conroi.commit.execution import WriteOptions
from conroi.data.columns import Columns as NewValues
from conroi.data.incoming import Data, Once, in_spark
from conroi.data.predicates import Predicate, find_rows
from conroi.data.sql import Params, bound, bound_values
from conroi.data.table_version import TableVersion
from conroi.data.writer import Progress
from conroi.errors import InvalidInputError
from conroi.merge.builder import MergeBuilder, source_rows
from conroi.merge.request import checked_on
from conroi.reader import Reader
from conroi.verbs.columns import ColumnChange, NewColumns, compute_here
from conroi.verbs.compact import CompactOptions, rewrite_here
from conroi.verbs.settings import Values
from conroi.verbs.update import Mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@checked_calls
class Writer(Reader):
    """Writing verbs of one Lance table; a subclass commits each of them, or stages them for a transaction."""

    @abstractmethod
    def _planned(self, verb: Callable[[TableVersion], Plan | None], how: WriteOptions) -> tuple[Self, Plan | None]:
        """Execute a verb: the table after it, and its plan, None if it was a no-op."""

    @abstractmethod
    def _reindexed(self, plan: Plan, message: str | None) -> Self:
        """The table with the indices brought up to date that lost rows in a compaction."""

    def _do(self, verb: Callable[[TableVersion], Plan | None], how: WriteOptions) -> Self:
        return self._planned(verb, how)[0]

    # ------------------------------------------------------------------------- rows

    def append(
        self,
        data: Data,
        *,
        evolve_schema: bool = False,
        base: str | None = None,
        progress: Progress | None = None,
        **how: Unpack[WriteOptions],
    ) -> Self:
        """Append rows. With `evolve_schema` new columns are added, and types widened, in the same version.

        `base` names another root for their files: see add_base(). Files there are never garbage-collected.
        """
        return self._do(verbs.Appending(data, evolve_schema=evolve_schema, base=base, progress=progress), how)

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
    ) -> Self:
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
    ) -> Self:
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
    ) -> Self:
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
    ) -> Self:
        """Add columns: by SQL `{"total": "price * n"}`, by a function over batches, or as pyarrow fields, all null.

        With `spark`, executors compute them: the function goes there.
        """
        compute = compute_here if spark is None else in_spark("fragment_jobs").AddOnExecutors(spark)
        return self._do(
            lambda at: verbs.add_columns(at, columns, read_columns=read_columns, progress=progress, compute=compute),
            how,
        )

    def drop_columns(self, columns: Sequence[str], **how: Unpack[WriteOptions]) -> Self:
        """Drop columns."""
        return self._do(lambda at: verbs.drop_columns(at, columns), how)

    def rename_columns(self, names: Mapping[str, str], **how: Unpack[WriteOptions]) -> Self:
        """Rename columns: `{"old": "new"}`."""
        return self._do(lambda at: verbs.rename_columns(at, names), how)

    def alter_columns(self, changes: Mapping[str, ColumnChange], **how: Unpack[WriteOptions]) -> Self:
        """Change columns: `{"v": {"type": pa.float64()}, "w": {"nullable": False}}`."""
        return self._do(lambda at: verbs.alter_columns(at, changes), how)

    def replace_column_data(
        self,
        columns: NewValues,
        *,
        fragments: Sequence[int] | None = None,
        progress: Progress | None = None,
        **how: Unpack[WriteOptions],
    ) -> Self:
        """Recompute whole columns, by SQL `{"v": "v * 2"}` or by a function over batches; optionally of some
        fragments.
        """
        return self._do(lambda at: verbs.replace_column_data(at, columns, fragments=fragments, progress=progress), how)

    def declare_key(self, key: str | Sequence[str], **how: Unpack[WriteOptions]) -> Self:
        """Declare a primary key on existing columns, after checking that their values are unique."""
        return self._do(lambda at: verbs.declare_key(at, key), how)

    # ------------------------------------------------------------------------- settings

    def set_config(self, values: Values, *, replace: bool = False, **how: Unpack[WriteOptions]) -> Self:
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
    ) -> Self:
        """Change metadata of the table, its schema, or single columns; None deletes an entry."""
        return self._do(
            lambda at: verbs.set_metadata(at, table=table, schema=schema, fields=fields, replace=replace), how
        )

    def add_base(
        self, path: str, *, name: str | None = None, is_table_root: bool = False, **how: Unpack[WriteOptions]
    ) -> Self:
        """Add another storage location in which files of this table may be."""
        return self._do(lambda at: verbs.add_base(at, path, name=name, is_table_root=is_table_root), how)

    def update_mem_wal_state(self, compacted: Mapping[str | UUID, int], **how: Unpack[WriteOptions]) -> Self:
        """Record the progress of a write-ahead log: by the UUID of each shard, its newest generation."""
        return self._do(lambda at: verbs.update_mem_wal_state(at, compacted), how)

    def reserve_fragments(self, count: int, **how: Unpack[WriteOptions]) -> Self:
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
    ) -> Self:
        """Create an index on a column: scalar (BTREE, BITMAP, …), full text (INVERTED) or vector (IVF_PQ, …).

        `options` are pylance's own, such as `{"num_partitions": 16, "metric": "cosine"}`.
        """
        return self._do(
            lambda at: verbs.create_index(at, column, kind, name=name, replace=replace, **dict(options or {})), how
        )

    def drop_index(self, name: str, **how: Unpack[WriteOptions]) -> Self:
        """Drop an index."""
        return self._do(lambda at: verbs.drop_index(at, name), how)

    def optimize_indices(self, names: Sequence[str] | None = None, **how: Unpack[WriteOptions]) -> Self:
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
    ) -> Self:
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
            last = reserved._pinned.manifest.head.max_fragment_id  # noqa: SLF001 (a table like ourselves)
            return range(last - count + 1, last + 1)

        def verb(at: TableVersion) -> Plan | None:
            if sort_by is None:
                return verbs.compact(at, options, reserve_ids, progress=progress, rewrite=rewrite)
            columns = [sort_by] if isinstance(sort_by, str) else list(sort_by)
            return verbs.sort(at, columns, reserve_ids, progress=progress)

        table, plan = self._planned(verb, how)
        if plan is None or not optimize_indices or how.get("detached", False):
            return table
        return table._reindexed(plan, how.get("message"))  # noqa: SLF001 (a table like ourselves)

    def restore(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        as_of: datetime | str | None = None,
        if_moved: IfMoved = "fail",
        **how: Unpack[WriteOptions],
    ) -> Self:
        """Make a past version the newest again; the versions in between stay in the history."""
        target = self._find(version, tag, as_of)
        return self._do(lambda at: verbs.restore(at, target, if_moved=if_moved), how)
