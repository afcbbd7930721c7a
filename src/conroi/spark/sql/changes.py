"""INSERT, UPDATE and DELETE, executed by the tables' own verbs; what these cannot do, Spark does by the connector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions
from sqlglot import exp

from conroi.errors import InvalidInputError, NotFoundError, UnsupportedError
from conroi.format.fields import key_columns
from conroi.spark.connector.driver import joined
from conroi.spark.expressions import Kind, NotSimple, Resolve, column_kind, same_name, simple, simple_condition
from conroi.spark.sql.references import DIALECT, Tables, found_column, lake_name, part_frame, span, told
from conroi.spark.transactions import typed_errors
from conroi.spark.types import is_exact_in_spark, spark_schema
from conroi.transaction import Transaction
from conroi.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Statement:
    """What a statement did."""

    kind: str
    """INSERT, UPDATE, DELETE or MERGE."""
    table: str
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0


@dataclass(frozen=True)
class Target:
    """The table that a statement changes, and how the statement calls it."""

    name: str
    alias: str
    table: Writer
    written: str
    """The table with its alias, as it stands after FROM."""
    bare: str
    """The table without its alias."""

    @staticmethod
    def of(node: exp.Expr, tables: Tables) -> Target:
        """The table that is named."""
        if not isinstance(node, exp.Table) or node.args.get("version") is not None:
            raise InvalidInputError(
                f"{node.sql(DIALECT)} cannot be changed.", hint="Name a table of the lake, at its newest version."
            )
        name = lake_name(node, tables)
        if name is None:
            raise NotFoundError(
                f"The lake has no table {node.sql(DIALECT)}.", hint=f"It has {', '.join(tables.names()) or 'none'}."
            )
        bare = node.copy()
        bare.set("alias", None)
        table = tables.open(name)
        assert isinstance(table, Writer), "a change is a statement of a transaction"
        return Target(name, node.alias or node.name, table, node.sql(DIALECT), bare.sql(DIALECT))

    def resolve(self, column: exp.Column) -> tuple[str, Any] | None:
        """A column of the table, with or without its alias."""
        if column.table:
            return found_column(column, self.table.schema, self.alias)
        bare = column.copy()
        bare.set("table", exp.to_identifier(self.alias))
        return found_column(bare, self.table.schema, self.alias)

    def column(self, node: exp.Expr) -> str:
        """The column that is assigned to, as the table writes it."""
        is_mine = isinstance(node, exp.Column) and node.table.casefold() in ("", self.alias.casefold())
        name = same_name(node.name, self.table.schema.names) if is_mine else None
        if name is None:
            raise InvalidInputError(
                f"{self.name} has no column {node.sql(DIALECT)}.", hint=f"It has {', '.join(self.table.schema.names)}."
            )
        return name

    def key(self, why: NotSimple) -> list[str]:
        """Its key, by which Spark can say which rows are meant."""
        key = key_columns(list(self.table.pinned.manifest.fields))
        if not key:
            raise UnsupportedError(
                f"{why} is for Spark to work out, and {self.name} has no key by which to find its rows again.",
                hint="Declare one: table.declare_key(…); or compare columns with values only.",
            )
        for column in key:
            type_ = self.table.schema.field(column).type if column in self.table.schema.names else None
            if type_ is None or not is_exact_in_spark(type_):
                raise UnsupportedError(
                    f"{why} is for Spark to work out, which cannot hold the key column {column!r} ({type_}) exactly.",
                    table=self.name,
                    hint="Compare columns with values only, or use the table's own verbs.",
                )
        return list(key)


# ------------------------------------------------------------------------------------- INSERT


def insert(spark: SparkSession, tree: exp.Insert, tables: Tables) -> Statement:
    """INSERT INTO t …, INSERT OVERWRITE t …, INSERT INTO t REPLACE WHERE …"""
    _refuse(tree, "partition", "conflict", "returning", "exists", "settings", "default", "alternative")
    named = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else None
    if isinstance(named, exp.Table) and named.args.get("partition") is not None:
        raise UnsupportedError(
            "Tables have no partitions.", hint="Write INSERT INTO t REPLACE WHERE condition SELECT …."
        )
    target = Target.of(named, tables)
    rows = part_frame(spark, _query_of(tree), tables)
    fitted = _fitted(
        rows, target, [each.name for each in columns] if columns else None, by_name=bool(tree.args.get("by_name"))
    )
    before = target.table.count_rows()
    where = tree.args.get("where")
    if where is not None:
        condition = _only_simple(where, target)
        deleted = target.table.count_rows(condition)
        target.table.overwrite(fitted, condition)
    elif tree.args.get("overwrite"):
        deleted = before
        target.table.overwrite(fitted)
    else:
        deleted = 0
        target.table.append(fitted)
    after = target.table.count_rows()
    return Statement("INSERT", target.name, rows_inserted=after - before + deleted, rows_deleted=deleted)


def _query_of(tree: exp.Insert) -> str:
    query = tree.expression
    if query is None:
        raise InvalidInputError("The INSERT names no rows.", hint="Add VALUES (…) or a SELECT.")
    shared = tree.args.get("with_") or tree.args.get("with")
    text = query.sql(DIALECT)
    return text if shared is None else f"{shared.sql(DIALECT)} {text}"


def _fitted(rows: DataFrame, target: Target, columns: Sequence[str] | None, *, by_name: bool) -> DataFrame:
    """The rows with the columns of the table: by their order, as in SQL, or by name."""
    schema = spark_schema(target.table.schema, table=target.name)
    names = schema.names if columns is None else [_named(name, target) for name in columns]
    if by_name:
        names = [_named(name, target) for name in rows.columns]
    if len(set(names)) != len(names) or len(rows.columns) != len(names):
        raise InvalidInputError(
            f"The rows have {len(rows.columns)} columns, where {len(names)} are to be filled: {', '.join(names)}.",
            table=target.name,
            hint="Name the columns: INSERT INTO t (a, b) …, or match them by name: INSERT INTO t BY NAME ….",
        )
    numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))
    types = {field.name: field.dataType for field in schema.fields}
    return numbered.select(
        [functions.col(f"c{number}").cast(types[name]).alias(name) for number, name in enumerate(names)]
    )


def _named(name: str, target: Target) -> str:
    return target.column(exp.column(exp.to_identifier(name, quoted=True)))


# ---------------------------------------------------------------------------- UPDATE and DELETE


def update(spark: SparkSession, tree: exp.Update, tables: Tables) -> Statement:
    """UPDATE t SET a = …, b = … WHERE …"""
    _refuse(tree, "from_", "from", "with_", "with", "returning", "order", "limit")
    target = Target.of(tree.this, tables)
    values = {target.column(each.this): each.expression for each in tree.expressions if isinstance(each, exp.EQ)}
    if len(values) != len(tree.expressions):
        raise InvalidInputError("SET names a column twice, or says nothing.", hint="Write SET a = …, b = ….")
    where = None if tree.args.get("where") is None else tree.args["where"].this
    try:
        condition = None if where is None else simple_condition(where, target.resolve)
        written = {column: _assigned(value, column, target) for column, value in values.items()}
    except NotSimple as why:
        return _update_by_key(spark, target, values, where, tables, why)
    count = target.table.count_rows(condition)
    if count:
        target.table.update(written, condition)
    return Statement("UPDATE", target.name, rows_updated=count)


def _assigned(value: exp.Expr, column: str, target: Target) -> str:
    written = simple(value, target.resolve)
    kind = column_kind(target.table.schema.field(column).type)
    if written.kind not in (kind, Kind.NULL) or kind is Kind.OTHER:
        raise NotSimple(value.sql(DIALECT))
    return written.text


def _update_by_key(
    spark: SparkSession,
    target: Target,
    values: dict[str, exp.Expr],
    where: exp.Expr | None,
    tables: Tables,
    why: NotSimple,
) -> Statement:
    """Let Spark find the rows and work out their values, and bring these in by key."""
    key = target.key(why)
    if set(key) & set(values):
        raise UnsupportedError(
            f"{why} is for Spark to work out, but the key is changed, by which the rows would be found again.",
            table=target.name,
            hint="Change key columns in a statement with simple conditions and values.",
        )
    types = {field.name: field.dataType for field in spark_schema(target.table.schema, table=target.name).fields}
    asked = [f"`{target.alias}`.`{name}` AS `{name}`" for name in key]
    asked += [
        f"CAST({value.sql(DIALECT)} AS {types[name].simpleString()}) AS `new_{name}`" for name, value in values.items()
    ]
    rows = part_frame(spark, _select(asked, target, where), tables)
    assigned = {name: f"source.`new_{name}`" for name in values}
    done = target.table.merge(rows, on=key).when_matched_update(assigned).execute()
    return Statement("UPDATE", target.name, rows_updated=done.rows_updated)


def delete(spark: SparkSession, tree: exp.Delete, tables: Tables) -> Statement:
    """DELETE FROM t WHERE …"""
    _refuse(tree, "using", "with_", "with", "returning", "order", "limit", "tables")
    target = Target.of(tree.this, tables)
    where = tree.args["where"].this if tree.args.get("where") is not None else exp.true()
    before = target.table.count_rows()
    try:
        target.table.delete(simple_condition(where, target.resolve))
    except NotSimple as why:
        key = target.key(why)
        rows = part_frame(
            spark, _select([f"`{target.alias}`.`{name}` AS `{name}`" for name in key], target, where), tables
        )
        target.table.merge(rows, on=key).when_matched_delete().execute()
    return Statement("DELETE", target.name, rows_deleted=before - target.table.count_rows())


def _select(columns: Sequence[str], target: Target, where: exp.Expr | None) -> str:
    condition = "" if where is None else f" WHERE {where.sql(DIALECT)}"
    return f"SELECT {', '.join(columns)} FROM {target.written}{condition}"  # noqa: S608 (a piece of the user's own SQL)


def _only_simple(where: exp.Expr, target: Target) -> str:
    resolve: Resolve = target.resolve
    try:
        return simple_condition(where, resolve)
    except NotSimple as why:
        raise UnsupportedError(
            f"REPLACE WHERE cannot use {why}.", table=target.name, hint="Compare columns with values."
        ) from None


def _refuse(tree: exp.Expr, *parts: str) -> None:
    for part in parts:
        given = tree.args.get(part)
        if given:
            text = given.sql(DIALECT) if isinstance(given, exp.Expr) else part.strip("_").upper()
            raise UnsupportedError(f"{text} is not understood in this statement.", hint="docs/spark.md says what is.")


# ---------------------------------------------------------------------------- what Spark executes itself

_BY_SPARK = (exp.Update, exp.Delete, exp.Merge)
"""Of an INSERT the tables' verbs can do what Spark can."""


class SparkRefuses(Exception):
    """Spark does not understand the statement."""


def can_execute(tree: exp.Expr, tables: Tables) -> bool:
    """Whether Spark may execute a statement. It compares what it can hold, tables with nanoseconds are left out."""
    name = lake_name(tree.this, tables) if isinstance(tree, _BY_SPARK) else None
    return name is not None and all(is_exact_in_spark(field.type) for field in tables.open(name).schema)


def executed(tx: Transaction, spark: SparkSession, query: str, tree: exp.Expr, tables: Tables) -> Statement:
    """Let Spark execute a change; its rows are staged in the transaction."""
    with joined(tx, spark) as (catalog, counts), typed_errors():
        try:
            spark.sql(_qualified(query, tree, tables, catalog))
        except ParseException as error:
            raise SparkRefuses from error
        except AnalysisException as error:
            raise told(error, tables) from error
    target = lake_name(tree.this, tables)
    assert target is not None, "the verbs of the table refused the statement"
    return Statement(tree.key.upper(), target, counts.inserted, counts.updated, counts.deleted)


def _qualified(query: str, tree: exp.Expr, tables: Tables, catalog: str) -> str:
    """The text as it was written, with the names of the lake's tables as names of the catalog."""
    pieces: list[str] = []
    done = 0
    for start, end, name in sorted(_table_spans(tree, tables)):
        parts = ".".join(f"`{part}`" for part in (catalog, *name.split(".")))
        pieces += [query[done:start], parts]
        done = end
    return "".join([*pieces, query[done:]])


def _table_spans(tree: exp.Expr, tables: Tables) -> Iterator[tuple[int, int, str]]:
    """Where the text names tables of the lake; names of WITH parts and in hints are none."""
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier) or node.find_ancestor(exp.Hint) or _is_part(node, tree):
            continue
        name = lake_name(node, tables)
        if name is not None:
            yield *span(node), name


def _is_part(node: exp.Table, tree: exp.Expr) -> bool:
    """Whether the name is that of a WITH part: one around the query that it stands in, but not the part itself."""
    if len(node.parts) > 1 or node is tree.this:
        return False
    inside: exp.Expr | None = node
    while inside is not None:
        inside = inside.parent
        shared: exp.With | None = None if inside is None else inside.args.get("with_") or inside.args.get("with")
        if shared is not None and any(_names(part, node, shared) for part in shared.expressions):
            return True
    return False


def _names(part: exp.CTE, node: exp.Table, shared: exp.With) -> bool:
    is_itself = node.find_ancestor(exp.CTE) is part and not shared.args.get("recursive")
    return part.alias.casefold() == node.name.casefold() and not is_itself
