"""Builder of a merge: `table.merge(source, on="id").when_matched_update_all()….execute()`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import pyarrow as pa

from conroi.arguments import checked_calls
from conroi.commit.change import Plan
from conroi.commit.execution import WriteOptions
from conroi.data.dict_rows import hints
from conroi.data.incoming import RemoteRows, from_elsewhere, in_spark, to_reader
from conroi.data.sql import Params, bound_values, enclosed, expression
from conroi.data.table_version import TableVersion
from conroi.errors import InvalidInputError
from conroi.merge.plan_choice import MergePlan, SourceSize, Way, choose
from conroi.merge.request import Action, Clause, Request, RowKind
from conroi.merge.verb import Merging
from conroi.storage.parallel import stays_in_process
from conroi.verbs.append import evolve_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conroi.table import Table


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Result of a merge. `table` is the table after it."""

    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    table: Table

    @property
    def version(self) -> int:
        """The new version, or the newest one if it was a no-op."""
        return self.table.version


Run = Callable[[Callable[[TableVersion], Plan | None], WriteOptions], tuple[Any, Plan | None]]
"""Executes a verb; returns the table after it (a Table, or the staged table of a transaction) and its plan."""


@checked_calls
@dataclass(frozen=True)
@stays_in_process("A merge that is being built", "Hand over the table and the source, and build it there.")
class MergeBuilder:
    """Builder of a merge; each `when_…` returns a new one.

    Conditions and values are SQL expressions over `source.column` and `target.column`; `params` are the values of
    `:name` in one clause. Clauses for the same rows are
    tried in the order given: the first whose condition holds wins; rows for which none holds are left alone.

    >>> import conroi
    >>> table = conroi.create_table("memory://merge-example", [{"id": 1, "n": 10}], key="id")
    >>> result = (
    ...     table.merge([{"id": 1, "n": 5}, {"id": 2, "n": 7}], on="id")
    ...     .when_matched_update({"n": "target.n + source.n"})
    ...     .when_not_matched_insert_all()
    ...     .execute()
    ... )
    >>> result.rows_updated, result.rows_inserted, result.table.to_arrow()["n"].to_pylist()
    (1, 1, [15, 7])
    """

    uri: str
    source: pa.Table | RemoteRows
    on: tuple[str, ...]
    run: Run
    pinned: Callable[[], TableVersion]
    clauses: tuple[Clause, ...] = ()
    evolve_schema: bool = False

    def __repr__(self) -> str:
        clauses = ", ".join(f"{clause.rows.name.lower()}: {clause.action.name.lower()}" for clause in self.clauses)
        return f"MergeBuilder({self.uri!r}, on={list(self.on)}, {clauses or 'no clause'}; not executed yet: .execute())"

    def _name_for_errors(self, table: str | None) -> str:
        return self.uri if table is None or "/" in table else table  # a merge is about one table

    def _with(
        self,
        rows: RowKind,
        action: Action,
        values: Mapping[str, object] | None = None,
        condition: str | None = None,
        params: Params | None = None,
    ) -> MergeBuilder:
        values, condition = bound_values(values, condition, params, self.uri)
        texts = None if values is None else {name: expression(value, self.uri) for name, value in values.items()}
        if values is not None and not values:
            raise InvalidInputError("No column was given.", table=self.uri, hint='Give {"column": "expression"}.')
        return replace(self, clauses=(*self.clauses, Clause(rows, action, texts, self._checked(condition))))

    def _checked(self, condition: object) -> str | None:
        if condition is None:
            return None
        if not isinstance(condition, str):
            raise InvalidInputError(
                f"{condition!r} is not a condition.", table=self.uri, hint='Write SQL: "source.n > target.n".'
            )
        if not condition.strip():
            raise InvalidInputError("A condition cannot be blank.", table=self.uri, hint="Leave it out.")
        return enclosed(condition, self.uri)

    def when_matched_update_all(self, condition: str | None = None, *, params: Params | None = None) -> MergeBuilder:
        """Matched rows get all values of the source (columns it lacks stay)."""
        return self._with(RowKind.MATCHED, Action.UPDATE, condition=condition, params=params)

    def when_matched_update(
        self, values: Mapping[str, object], condition: str | None = None, *, params: Params | None = None
    ) -> MergeBuilder:
        """Matched rows get these values: `{"n": "target.n + source.n"}`."""
        return self._with(RowKind.MATCHED, Action.UPDATE, values, condition, params)

    def when_matched_delete(self, condition: str | None = None, *, params: Params | None = None) -> MergeBuilder:
        """Matched rows are deleted."""
        return self._with(RowKind.MATCHED, Action.DELETE, condition=condition, params=params)

    def when_not_matched_insert_all(
        self, condition: str | None = None, *, params: Params | None = None
    ) -> MergeBuilder:
        """Unmatched rows of the source are inserted."""
        return self._with(RowKind.SOURCE_ONLY, Action.INSERT, condition=condition, params=params)

    def when_not_matched_insert(
        self, values: Mapping[str, object], condition: str | None = None, *, params: Params | None = None
    ) -> MergeBuilder:
        """For unmatched rows of the source, rows with these values are inserted; other columns are null."""
        return self._with(RowKind.SOURCE_ONLY, Action.INSERT, values, condition, params)

    def when_not_matched_by_source_update(
        self, values: Mapping[str, object], condition: str | None = None, *, params: Params | None = None
    ) -> MergeBuilder:
        """Rows of the table without a match in the source get these values."""
        return self._with(RowKind.TARGET_ONLY, Action.UPDATE, values, condition, params)

    def when_not_matched_by_source_delete(
        self, condition: str | None = None, *, params: Params | None = None
    ) -> MergeBuilder:
        """Rows of the table without a match in the source are deleted."""
        return self._with(RowKind.TARGET_ONLY, Action.DELETE, condition=condition, params=params)

    def execute(
        self, *, plan: Way | None = None, spark: SparkSession | None = None, **how: Unpack[WriteOptions]
    ) -> MergeResult:
        """Execute the merge; it is rebased over concurrent commits, or executed again on the newer version.

        With a Spark DataFrame as the source, or with `spark`, the plan is chosen by the sizes: see `explain()`. `plan`
        chooses another: "process", "probe" or "join".
        """
        with self._verb(plan, spark) as verb:
            if self.evolve_schema:
                how = self._evolved(how)
            table, done = self.run(verb, how)
        counts = {} if done is None else done.counts
        return MergeResult(
            rows_inserted=counts.get("rows_inserted", 0),
            rows_updated=counts.get("rows_updated", 0),
            rows_deleted=counts.get("rows_deleted", 0),
            table=table,
        )

    def _evolved(self, how: WriteOptions) -> WriteOptions:
        """Evolve the table's columns for the source, in a version of their own: Lance has no operation for both."""
        if how.get("detached"):
            raise InvalidInputError(
                "A merge that changes columns cannot be detached.", table=self.uri, hint="Leave out evolve_schema."
            )
        source = self.source.schema
        table, done = self.run(lambda at: evolve_columns(at, source), how)
        return {**how, "expect": table.version} if done is not None and "expect" in how else how

    def explain(self, *, plan: Way | None = None, spark: SparkSession | None = None) -> MergePlan:
        """The plan that `execute()` would choose now, and why. A Spark DataFrame is computed to know its size."""
        with self._verb(plan, spark) as verb:
            return verb.plan(self.pinned())

    def _verb(self, way: Way | None, spark: SparkSession | None) -> AbstractContextManager[PlannedMerge]:
        if not self.clauses:
            raise InvalidInputError(
                "The merge says nothing to do.", table=self.uri, hint="Add when_matched_…() or when_not_matched_…()."
            )
        request = Request(self.on, self.clauses)
        if isinstance(self.source, pa.Table) and spark is None:
            return nullcontext(InProcess(self.source, request, way))
        return in_spark("merge").SparkMerging(self.source, request, way, spark)


class PlannedMerge(Protocol):
    """A merge as a verb that can say how it will be done."""

    def __call__(self, pinned: TableVersion) -> Plan | None: ...

    def plan(self, pinned: TableVersion) -> MergePlan: ...


class InProcess(Merging):
    """A merge of rows that are here, without Spark."""

    def __init__(self, source: pa.Table, request: Request, way: Way | None) -> None:
        super().__init__(source, request)
        self._asked = request
        self._size = SourceSize(source.num_rows, source.nbytes)
        self._way: Way | None = way

    def plan(self, pinned: TableVersion) -> MergePlan:
        """How it will be done: there is only one way."""
        return choose(self._asked, pinned, self._size, has_spark=False, is_frame=False, way=self._way)

    def __call__(self, pinned: TableVersion) -> Plan | None:
        self.plan(pinned)  # refuses a way that this is not
        return super().__call__(pinned)


def source_rows(source: object, schema: pa.Schema, *, evolve: bool = False) -> pa.Table | RemoteRows:
    """The source, in its own types; a list without rows has the columns of the table.

    With `evolve` a list of dicts has the types of the table where its values fit them.
    """
    elsewhere = from_elsewhere(source)
    if elsewhere is not None:
        return elsewhere
    if isinstance(source, Sequence) and not isinstance(source, str | bytes) and not len(source):
        return pa.Table.from_batches([], schema)
    return to_reader(source, hints(source, schema) if evolve else None).read_all()
