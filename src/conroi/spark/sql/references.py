"""Tables that a SQL query refers to, and the query with each of them replaced by a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import sqlglot
from pyspark.errors import AnalysisException
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import Token

from conroi.data.sql import quoted
from conroi.errors import InvalidInputError, NotFoundError, UnsupportedError
from conroi.reader import Reader
from conroi.spark.expressions import NotSimple, same_name, simple_condition
from conroi.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


DIALECT = "spark"


class Tables(Protocol):
    """Where names of tables are looked up: a lake at one version, or a transaction."""

    def names(self) -> Sequence[str]:
        """The names of all tables."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def open(self, name: str, version: int | None = None, tag: str | None = None, as_of: str | None = None) -> Reader:
        """The table; with one of the others, as it was."""
        ...


@dataclass
class Reference:
    """One place of a query where a table is named."""

    node: exp.Table
    name: str
    """The table's name in the lake."""
    alias: str
    """By which the query calls it."""
    is_aliased: bool
    table: Reader
    columns: list[str] | None = None
    """What the query needs of it; None: all. Empty: only how many rows there are."""
    filter: str | None = None
    """What holds for all rows that the query needs."""


def references(tree: exp.Expr, tables: Tables) -> list[Reference]:
    """Every place where the query names a table of ours, in the order of the text; other names are left to Spark."""
    found: list[Reference] = []
    for node in named_tables(tree):
        name = lake_name(node, tables)
        if name is not None:
            aliased = bool(node.alias)
            found.append(Reference(node, name, node.alias or node.name, aliased, _opened(tables, name, node)))
    return found


def named_tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Names of tables, but not of the query's own WITH parts."""
    seen: set[int] = set()
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and id(source) not in seen:
                seen.add(id(source))
                yield source


def lake_name(node: exp.Table, tables: Tables) -> str | None:
    """The table that is meant, written exactly or in other letters, as in Spark; None if it is none of the lake's."""
    asked = ".".join(part.name for part in node.parts)
    with suppress(InvalidInputError):  # something of Spark's, which no table of ours can be called
        return asked if asked in tables else same_name(asked, tables.names())
    return None


def _opened(tables: Tables, name: str, node: exp.Table) -> Reader:
    version: exp.Version | None = node.args.get("version")
    if version is None:
        return tables.open(name)
    moment = version.expression
    if version.args.get("kind") != "AS OF" or not isinstance(moment, exp.Literal):
        raise InvalidInputError(
            f"{version.sql(DIALECT)} cannot be understood.",
            table=name,
            hint="Write VERSION AS OF 7, VERSION AS OF 'a tag', or TIMESTAMP AS OF '2026-01-31 12:00:00+00:00'.",
        )
    if str(version.this).upper() == "TIMESTAMP":
        return tables.open(name, as_of=moment.this)
    return tables.open(name, tag=moment.this) if moment.is_string else tables.open(name, version=int(moment.this))


# ------------------------------------------------------------------------------ what is needed of each


def narrow(tree: exp.Expr, found: Sequence[Reference]) -> None:
    """Find which columns and rows of each table the query needs. Where that is not clear: all."""
    copy, asked = tree.copy(), list(named_tables(tree))
    twins = dict(zip(map(id, asked), named_tables(copy), strict=True))
    schema: dict[str, object] = {}
    for number, each in enumerate(found):
        twin = twins[id(each.node)]
        if not each.is_aliased:
            twin.set("alias", exp.TableAlias(this=exp.to_identifier(each.alias)))
        for part in ("db", "catalog", "version"):
            twin.set(part, None)
        twin.set("this", exp.to_identifier(f"t{number}_"))
        schema[f"t{number}_"] = {field.name: _type_name(field.type) for field in each.table.schema}
    if len(found) < len(asked):
        return  # columns of tables that we do not know may be any
    try:
        whole = qualify(copy, schema=schema, dialect=DIALECT, validate_qualify_columns=True, quote_identifiers=False)
    except (SqlglotError, ValueError, KeyError, AttributeError):  # what it does not understand
        return
    _narrow_columns(whole, found)
    _narrow_rows(whole, found)


def _type_name(type_: pa.DataType) -> str:
    found = spark_type(type_)
    return "string" if found is None else found.simpleString()


def _narrow_columns(tree: exp.Expr, found: Sequence[Reference]) -> None:
    used: dict[str, set[str]] = {}
    for column in tree.find_all(exp.Column):
        used.setdefault(column.table.casefold(), set()).add(column.name.casefold())
    if "" in used or any(isinstance(star.parent, exp.Select | exp.Column) for star in tree.find_all(exp.Star)):
        return
    for each in found:
        wanted = used.get(each.alias.casefold(), set())
        names = each.table.schema.names
        each.columns = [name for name in names if name.casefold() in wanted]


def _narrow_rows(tree: exp.Expr, found: Sequence[Reference]) -> None:
    """Hand simple conditions on one table to its scan; Spark filters again."""
    by_number = {f"t{number}_": each for number, each in enumerate(found)}
    for scope in traverse_scope(tree):
        where = scope.expression.args.get("where")
        if where is None:
            continue
        for alias, source in scope.sources.items():
            each = by_number.get(source.name) if isinstance(source, exp.Table) else None
            if each is None or not _sees_all_rows(scope.expression, alias):
                continue
            texts = (
                [text for part in where.this.flatten() if (text := _condition(part, alias, each)) is not None]
                if isinstance(where.this, exp.And)
                else [_condition(where.this, alias, each)]
            )
            given = [text for text in texts if text is not None]
            each.filter = " AND ".join(given) or None


def _sees_all_rows(select: exp.Expr, alias: str) -> bool:
    """Whether a row of this table that the condition refuses can have no part in the result."""
    joins: list[exp.Join] = select.args.get("joins") or []
    sides = [(str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()) for join in joins]
    if select.args.get("laterals"):
        return False
    if all(side == "" and kind in ("", "INNER", "CROSS") for side, kind in sides):
        return True
    first = select.args.get("from_") or select.args.get("from")
    is_first = first is not None and first.this.alias_or_name == alias
    return is_first and all(side in ("", "LEFT") for side, _ in sides)


def _condition(node: exp.Expr, alias: str, of: Reference) -> str | None:
    if not any(True for _ in node.find_all(exp.Column)):
        return None
    try:
        return simple_condition(node, lambda column: found_column(column, of.table.schema, alias))
    except NotSimple:
        return None


def found_column(column: exp.Column, schema: pa.Schema, alias: str) -> tuple[str, pa.DataType] | None:
    """A top-level column of the table of this alias, as Lance writes it."""
    if column.table.casefold() != alias.casefold() or column.args.get("db") is not None:
        return None
    name = same_name(column.name, schema.names)
    return None if name is None else (quoted(name), schema.field(name).type)


def parsed(query: str) -> exp.Expr:
    """The one statement of a text."""
    try:
        found = [each for each in sqlglot.parse(query, dialect=DIALECT) if each is not None]
    except SqlglotError as error:
        details = getattr(error, "errors", None)
        what = details[0]["description"] if details else str(error)
        where = f" (line {details[0]['line']}, column {details[0]['col']})" if details else ""
        raise InvalidInputError(
            f"The SQL cannot be read{where}: {what.rstrip('.')}.", hint="It is read as Spark SQL."
        ) from None
    if len(found) != 1:
        raise InvalidInputError(
            f"Give one statement of SQL, not {len(found)}.",
            hint="Several make one transaction with: with lake.begin() as tx: tx.sql(…); tx.sql(…).",
        )
    return found[0]


def part_frame(spark: SparkSession, query: str, tables: Tables) -> DataFrame:
    """The answer to a query that was made of parts of a statement."""
    try:
        parsed(query)
    except InvalidInputError as error:  # the user's statement was read, so this is a limit of ours
        raise UnsupportedError(f"A part of the statement is not understood: {query}", hint=error.hint) from error
    return frame(spark, query, tables)


def frame(spark: SparkSession, query: str, tables: Tables) -> DataFrame:
    """The answer to a query, in which every table of the lake is at the version it has in `tables`."""
    tree = parsed(query)
    found = references(tree, tables)
    counted = _counted(tree, found)
    if counted is not None:
        return spark.sql(f"SELECT CAST({found[0].table.count_rows()} AS BIGINT) AS `{counted}`")
    narrow(tree, found)
    frames: dict[str, Any] = {f"t{number}": _rows_of(spark, each) for number, each in enumerate(found)}
    text = _with_frames(query, found)
    try:
        return spark.sql(text, **frames) if frames else spark.sql(query)
    except AnalysisException as error:
        raise told(error, tables) from error


def _counted(tree: exp.Expr, found: Sequence[Reference]) -> str | None:
    """For `SELECT count(*) FROM t` and no more: what the column is called. The metadata answer it, without a job."""
    if not isinstance(tree, exp.Select) or len(found) != 1 or len(tree.expressions) != 1:
        return None
    node = found[0].node
    if _parts(tree) != {"expressions", "from_"} or not _parts(node) <= {"this", "db", "catalog", "alias", "version"}:
        return None
    asked = tree.expressions[0]
    is_count = asked.unalias().sql(DIALECT) in ("COUNT(*)", "COUNT(1)")
    is_plain = isinstance(node.parent, exp.From) and node.parent.parent is tree
    return (asked.alias or "count(1)").replace("`", "``") if is_count and is_plain else None


def _parts(node: exp.Expr) -> set[str]:
    return {part for part, value in node.args.items() if value}


def _rows_of(spark: SparkSession, each: Reference) -> DataFrame:
    """What the query needs of a table; where it only counts rows, their number is in the metadata."""
    if each.columns == [] and each.filter is None:
        return spark.range(each.table.count_rows())
    return each.table.to_spark(spark, each.columns or None, each.filter)


def told(error: AnalysisException, tables: Tables) -> Exception:
    """What Spark refuses, as an error of conroi."""
    condition = error.getCondition() or ""
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        name = (error.getMessageParameters() or {}).get("relationName", "")
        return NotFoundError(
            f"Neither the lake nor Spark has a table {name}.",
            hint=f"The lake has {', '.join(tables.names()) or 'none'}.",
        )
    return InvalidInputError(f"Spark refuses the query: {error}", hint="It is written in Spark SQL.")


def _with_frames(query: str, found: Sequence[Reference]) -> str:
    """The text as it was written, with a place for a DataFrame where a table was named."""
    tokens = Spark().tokenize(query)
    starts = {token.start: position for position, token in enumerate(tokens)}
    pieces: list[str] = []
    done = 0
    spans = sorted((*_span(each.node, tokens, starts), number) for number, each in enumerate(found))
    for start, end, number in spans:
        each = found[number]
        pieces += [_escaped(query[done:start]), f"{{t{number}}}"]
        pieces += [] if each.is_aliased else [f" AS `{_escaped(each.alias)}`"]
        done = end
    return "".join([*pieces, _escaped(query[done:])])


def _span(node: exp.Table, tokens: Sequence[Token], starts: dict[int, int]) -> tuple[int, int]:
    """Where the name stands in the text, with its VERSION AS OF if it has one."""
    start, end = span(node)
    if node.args.get("version") is not None:
        position = starts[node.parts[-1].meta["start"]]
        while tokens[position].text.upper() != "OF":
            position += 1
        end = tokens[position + 1].end + 1
    return start, end


def span(node: exp.Table) -> tuple[int, int]:
    """Where the name of a table stands in the text."""
    parts = node.parts
    return parts[0].meta["start"], parts[-1].meta["end"] + 1


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
