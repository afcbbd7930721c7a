"""Statements that Spark executes itself, by the connector, as part of a transaction of this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from sqlglot import exp

from conroi.spark.connector.driver import joined
from conroi.spark.sql.changes import Statement
from conroi.spark.sql.references import Tables, lake_name, span, told
from conroi.spark.transactions import typed_errors
from conroi.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_SPARK = (exp.Insert, exp.Update, exp.Delete, exp.Merge)


def executed(tx: Transaction, spark: SparkSession, query: str, tree: exp.Expr, tables: Tables) -> Statement:
    """Let Spark execute a change; its rows are staged in the transaction."""
    with joined(tx, spark) as (catalog, counts), typed_errors():
        try:
            spark.sql(_qualified(query, tree, tables, catalog))
        except AnalysisException as error:
            raise told(error, tables) from error
    kind = tree.key.upper()
    return Statement(kind, _target(tree, tables), counts.inserted, counts.updated, counts.deleted)


def _target(tree: exp.Expr, tables: Tables) -> str:
    named = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    return lake_name(named, tables) or named.sql("spark")


def _qualified(query: str, tree: exp.Expr, tables: Tables, catalog: str) -> str:
    """The text as it was written, with the names of the lake's tables as names of the catalog."""
    pieces: list[str] = []
    done = 0
    for start, end, name in sorted(_named(tree, tables)):
        parts = ".".join(f"`{part}`" for part in (catalog, *name.split(".")))
        pieces += [query[done:start], parts]
        done = end
    return "".join([*pieces, query[done:]])


def _named(tree: exp.Expr, tables: Tables) -> Iterator[tuple[int, int, str]]:
    """Where the text names tables of the lake; names of its own WITH parts are none."""
    own = {each.alias.casefold() for each in tree.find_all(exp.CTE)}
    for node in tree.find_all(exp.Table):
        is_own = len(node.parts) == 1 and node.name.casefold() in own
        name = None if is_own or not isinstance(node.this, exp.Identifier) else lake_name(node, tables)
        if name is not None:
            yield *span(node), name
