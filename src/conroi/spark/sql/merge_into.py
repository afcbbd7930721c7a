"""MERGE INTO of SQL, executed by the merge of the table.

What depends on the source alone is computed by Spark, as columns of the source. What depends on the table
is computed where its rows are, so it must be simple.

Keys are compared as Spark compares them. Where both sides have one type, the table's merge does that. Otherwise Spark
joins the source with the table's keys first, and each row of the source carries the table's own key that it equals; a
row that equals none carries a null key, which matches nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as st
from sqlglot import exp

from conroi.errors import InvalidInputError, UnsupportedError
from conroi.merge.builder import MergeBuilder
from conroi.spark.expressions import NotSimple, same_name, simple, simple_condition
from conroi.spark.sql.changes import Statement, Target
from conroi.spark.sql.references import DIALECT, Tables, part_frame
from conroi.spark.types import arrow_schema, is_exact_in_spark, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Put = Callable[[MergeBuilder], MergeBuilder]


@dataclass
class Source:
    """The rows that come in, and what is worked out of them."""

    alias: str
    written: str
    """As it stands after FROM."""
    schema: st.StructType
    computed: dict[str, str] = field(default_factory=dict[str, str])
    """By the text of an expression, the column that holds it."""

    def holds(self, expression: str) -> str:
        """The name of the column that holds this."""
        return self.computed.setdefault(expression, f"v{len(self.computed)}_")

    def query(self, on: Keys) -> str:
        """The query for all that is needed of it."""
        columns = [f"{expression} AS `{name}`" for name, expression in on.columns.items()]
        columns += [f"{expression} AS {name}" for expression, name in self.computed.items()]
        return f"SELECT {', '.join(columns)} FROM {self.written}{on.joined}"  # noqa: S608 (pieces of the user's own SQL)


@dataclass(frozen=True)
class Keys:
    """The columns that are matched on."""

    columns: dict[str, str]
    """By column of the table, the expression over the source (and what is joined to it) that it must equal."""
    joined: str = ""
    """The join that brings in the table's own keys, as it stands behind the source."""


def merge(spark: SparkSession, tree: exp.Merge, tables: Tables) -> Statement:
    """MERGE INTO t USING s ON t.id = s.id WHEN …"""
    if tree.args.get("with_") or tree.args.get("with") or tree.args.get("returning") or tree.args.get("using_cond"):
        raise UnsupportedError("MERGE takes neither WITH nor RETURNING.", hint="Put the query behind USING (…) AS s.")
    target = Target.of(tree.this, tables)
    source = _source(spark, tree.args["using"], tables)
    merging = _Merge(target, source)
    on = merging.on(tree.args["on"], lambda query: part_frame(spark, query, tables).schema)
    _refuse_unreachable(tree.args["whens"].expressions, target)
    whens = [merging.clause(each) for each in tree.args["whens"].expressions]
    rows: DataFrame = part_frame(spark, source.query(on), tables)
    builder = target.table.merge(rows, on=list(on.columns))
    for when in whens:
        builder = when(builder)
    done = builder.execute()
    return Statement("MERGE", target.name, done.rows_inserted, done.rows_updated, done.rows_deleted)


def _source(spark: SparkSession, using: exp.Expr, tables: Tables) -> Source:
    written = using.sql(DIALECT)
    alias = using.alias_or_name
    if not alias:
        raise InvalidInputError("The source of MERGE has no name.", hint="Write USING (SELECT …) AS s.")
    return Source(alias, written, part_frame(spark, f"SELECT * FROM {written}", tables).schema)  # noqa: S608


def _kind(when: exp.When) -> str:
    if when.args.get("matched"):
        return "WHEN MATCHED"
    return "WHEN NOT MATCHED BY SOURCE" if when.args.get("source") else "WHEN NOT MATCHED"


def _refuse_unreachable(whens: Sequence[exp.When], target: Target) -> None:
    """Of the clauses of one kind only the last may have no condition: no row would ever reach the others."""
    for number, when in enumerate(whens):
        kind = _kind(when)
        if when.args.get("condition") is None and any(_kind(later) == kind for later in whens[number + 1 :]):
            raise InvalidInputError(
                f"{kind} without a condition takes all rows, so the {kind} behind it is never reached.",
                table=target.name,
                hint="Only the last clause of a kind may leave out its condition.",
            )


class _Merge:
    def __init__(self, target: Target, source: Source) -> None:
        self._target = target
        self._source = source
        fields = spark_schema(target.table.schema, table=target.name).fields
        self._types = {each.name: each.dataType for each in fields}

    # ------------------------------------------------------------------------ whose column

    def _is_sources(self, column: exp.Column) -> bool:
        first = column.parts[0].name
        if len(column.parts) > 1 and first.casefold() in (self._source.alias.casefold(), self._target.alias.casefold()):
            return first.casefold() == self._source.alias.casefold()
        in_source = same_name(first, self._source.schema.names) is not None
        in_target = same_name(first, self._target.table.schema.names) is not None
        if in_source == in_target:
            mine, other = self._target.alias, self._source.alias
            raise InvalidInputError(
                f"{column.sql(DIALECT)} may be a column of {mine} or of {other}."
                if in_source
                else f"{column.sql(DIALECT)} is a column of neither {mine} nor {other}.",
                hint=f"Write {mine}.column or {other}.column.",
            )
        return in_source

    def _is_sources_alone(self, node: exp.Expr) -> bool:
        return not node.find(exp.Query) and all(self._is_sources(column) for column in node.find_all(exp.Column))

    # ------------------------------------------------------------------------ ON

    def on(self, node: exp.Expr, schema_of: Callable[[str], st.StructType]) -> Keys:
        """The keys, compared as Spark compares them."""
        pairs = self._equalities(node)
        asked = [f"{other} AS k{number}" for number, (_, other) in enumerate(pairs)]
        types = schema_of(f"SELECT {', '.join(asked)} FROM {self._source.written}").fields  # noqa: S608
        columns: dict[str, str] = {}
        for (name, other), field_ in zip(pairs, types, strict=True):
            same = self._in_type_of(name, other, field_.dataType)
            if same is None or name in columns:
                return self._joined_keys(node, list(dict.fromkeys(name for name, _ in pairs)))
            columns[name] = same
        return Keys(columns)

    def _in_type_of(self, name: str, other: str, type_: st.DataType) -> str | None:
        """The source's side in the type of the column, where equal means the same then; None if that is not sure."""
        integers = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
        mine, stored = self._types[name], self._target.table.schema.field(name).type
        if isinstance(mine, integers) and isinstance(type_, integers) and pa.types.is_signed_integer(stored):
            return f"TRY_CAST({other} AS {mine.simpleString()})"  # one that is too big equals none
        is_plain = pa.types.is_timestamp(stored) and stored.unit in ("us", "ns")
        is_plain = is_plain or stored.equals(arrow_schema(st.StructType([st.StructField("k", mine)])).field(0).type)
        return other if type_ == mine and (is_plain or pa.types.is_large_string(stored)) else None

    def _joined_keys(self, node: exp.Expr, names: Sequence[str]) -> Keys:
        """The table's own keys, which Spark joins to the rows of the source that equal them."""
        for name in names:
            type_ = self._target.table.schema.field(name).type
            if not is_exact_in_spark(type_):
                raise UnsupportedError(
                    f"ON {node.sql(DIALECT)} is for Spark to compare, which cannot hold {name} ({type_}) exactly.",
                    table=self._target.name,
                    hint="Give the source's side the type of the column.",
                )
        mine = self._target.alias
        keys = f"(SELECT DISTINCT {', '.join(f'`{name}`' for name in names)} FROM {self._target.bare}) AS `{mine}`"  # noqa: S608
        return Keys({name: f"`{mine}`.`{name}`" for name in names}, f" LEFT JOIN {keys} ON {node.sql(DIALECT)}")

    def _equalities(self, node: exp.Expr) -> list[tuple[str, str]]:
        """Columns of the table, and what of the source each must equal."""
        found: list[tuple[str, str]] = []
        parts = list(node.flatten()) if isinstance(node, exp.And) else [node]
        for part in parts:
            pair = part.unnest()
            sides = [pair.this, pair.expression] if isinstance(pair, exp.EQ) else []
            mine = [side for side in sides if isinstance(side, exp.Column) and not self._is_sources(side)]
            other = [side for side in sides if side not in mine and self._is_sources_alone(side)]
            if len(mine) != 1 or len(other) != 1:
                raise UnsupportedError(
                    f"ON {part.sql(DIALECT)} does not say which column equals which.",
                    table=self._target.name,
                    hint="Write ON t.a = s.a AND t.b = s.b; other conditions belong behind WHEN … AND.",
                )
            found.append((self._target.column(mine[0]), other[0].sql(DIALECT)))
        return found

    # ------------------------------------------------------------------------ WHEN

    def clause(self, when: exp.When) -> Put:
        """One clause, to be put on the merge when the source is known."""
        then, condition = when.args["then"], when.args.get("condition")
        by_source = bool(when.args.get("source")) and not when.args.get("matched")
        if by_source:
            return self._clause_without_source(then, condition)
        text = None if condition is None else self._condition(condition)
        if isinstance(then, exp.Update):
            return partial(MergeBuilder.when_matched_update, values=self._assigned(then), condition=text)
        if isinstance(then, exp.Insert):
            return partial(MergeBuilder.when_not_matched_insert, values=self._inserted(then), condition=text)
        return partial(MergeBuilder.when_matched_delete, condition=text)

    def _clause_without_source(self, then: exp.Expr, condition: exp.Expr | None) -> Put:
        """A clause for rows of the table alone."""
        text = None if condition is None else self._simple(condition, is_condition=True)
        if not isinstance(then, exp.Update):
            return partial(MergeBuilder.when_not_matched_by_source_delete, condition=text)
        self._refuse_twice([self._target.column(each.this) for each in then.expressions])
        values = {self._target.column(each.this): self._simple(each.expression) for each in then.expressions}
        return partial(MergeBuilder.when_not_matched_by_source_update, values=values, condition=text)

    def _refuse_twice(self, columns: Sequence[str]) -> None:
        again = [column for column, count in Counter(columns).items() if count > 1]
        if again:
            raise InvalidInputError(
                f"A clause gives column {again[0]!r} more than one value.",
                table=self._target.name,
                hint="Name each column once.",
            )

    def _condition(self, node: exp.Expr) -> str:
        if self._is_sources_alone(node):
            return f"source.{self._source.holds(f'CAST({node.sql(DIALECT)} AS BOOLEAN)')}"
        return self._simple(node, is_condition=True)

    def _assigned(self, then: exp.Update) -> dict[str, str]:
        if any(isinstance(each, exp.Star) for each in then.expressions):
            if len(then.expressions) > 1:
                raise InvalidInputError(
                    "UPDATE SET * assigns all columns.", table=self._target.name, hint="Write * or name the columns."
                )
            return self._all_columns("UPDATE SET *")
        self._refuse_twice([self._target.column(each.this) for each in then.expressions])
        values: dict[str, str] = {}
        for each in then.expressions:
            column = self._target.column(each.this)
            values[column] = self._value(each.expression, column)
        return values

    def _inserted(self, then: exp.Insert) -> dict[str, str]:
        if isinstance(then.this, exp.Star):
            return self._all_columns("INSERT *")
        columns = [self._target.column(each) for each in then.this.expressions]
        self._refuse_twice(columns)
        values = then.expression.expressions
        if len(columns) != len(values):
            raise InvalidInputError(
                f"INSERT names {len(columns)} columns and {len(values)} values.",
                table=self._target.name,
                hint="Give a value for each column.",
            )
        return {column: self._value(value, column) for column, value in zip(columns, values, strict=True)}

    def _all_columns(self, what: str) -> dict[str, str]:
        missing = [name for name in self._types if same_name(name, self._source.schema.names) is None]
        if missing:
            raise InvalidInputError(
                f"{what} needs all columns of {self._target.name}, and the source has no {', '.join(missing)}.",
                hint="Name the columns that it has.",
            )
        return {
            name: self._value(exp.column(exp.to_identifier(name, quoted=True), self._source.alias), name)
            for name in self._types
        }

    def _value(self, node: exp.Expr, column: str) -> str:
        if self._is_sources_alone(node):
            return f"source.{self._source.holds(f'CAST({node.sql(DIALECT)} AS {self._types[column].simpleString()})')}"
        return self._simple(node)

    def _simple(self, node: exp.Expr, *, is_condition: bool = False) -> str:
        """An expression over both sides."""
        try:
            if is_condition:
                return simple_condition(node, self._resolve)
            return simple(node, self._resolve).text
        except NotSimple as why:
            raise UnsupportedError(
                f"{why} depends on the rows of {self._target.name}, which Spark does not see in a MERGE.",
                hint="Work it out in the source: USING (SELECT … FROM s JOIN t …) AS s.",
            ) from None

    def _resolve(self, column: exp.Column) -> tuple[str, Any] | None:
        if not self._is_sources(column):
            found = self._target.resolve(column)
            return None if found is None else (f"target.{found[0]}", found[1])
        written = same_name(column.name, self._source.schema.names)
        if written is None or len(column.parts) > 2:
            return None
        type_ = arrow_schema(st.StructType([self._source.schema[written]])).field(0).type
        return f"source.{self._source.holds(column.sql(DIALECT))}", type_
