"""Table references of a query: the tables that it names, and the columns and filters it needs of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from conroi.data.quoting import quoted
from conroi.errors import InvalidInputError
from conroi.spark.sql.expressions import NotSimple, simple_condition
from conroi.spark.types import spark_type
from conroi.table import Table

DIALECT = "spark"


class Tables(Protocol):
    """Where names of tables are looked up: a lake at one version, or a transaction."""

    def names(self) -> Sequence[str]:
        """The names of all tables."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def open(self, name: str, version: int | None = None, tag: str | None = None, as_of: str | None = None) -> Table:
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
    table: Table
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


def _opened(tables: Tables, name: str, node: exp.Table) -> Table:
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


def same_name(name: str, names: Sequence[str]) -> str | None:
    """The name as it is written in the table, found as Spark finds it: in any letters."""
    if name in names:
        return name
    alike = [each for each in names if each.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


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
