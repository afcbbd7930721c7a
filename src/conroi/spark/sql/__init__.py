"""SQL over the tables of a lake: Spark runs queries, the tables' own verbs run changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from conroi.errors import InvalidInputError, UnsupportedError
from conroi.lake import Lake
from conroi.lake_snapshot import LakeSnapshot
from conroi.reader import Reader
from conroi.spark.connector import driver
from conroi.spark.sql.changes import SparkRefuses, Statement, can_execute, delete, executed, insert, update
from conroi.spark.sql.merge_into import merge
from conroi.spark.sql.references import Tables, frame, parsed
from conroi.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Statement", "lake_sql", "transaction_sql"]

LONGEST_MESSAGE = 200


def lake_sql(lake: Lake, spark: SparkSession, query: str) -> DataFrame | Statement:
    """A query on the lake as it is now, or a change in a transaction of its own."""
    tree = _checked(query)
    if isinstance(tree, exp.Query):
        return frame(spark, query, _LakeTables(lake.current()))
    text = " ".join(query.split())
    message = text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"
    return lake.run(lambda tx: _changed(tx, spark, query, tree), message=message)


def transaction_sql(tx: Transaction, spark: SparkSession, query: str) -> DataFrame | Statement:
    """A query on what the transaction sees, or a change that becomes part of it."""
    tree = _checked(query)
    if isinstance(tree, exp.Query):
        return frame(spark, query, _TransactionTables(tx))
    return _changed(tx, spark, query, tree)


def _checked(query: object) -> exp.Expr:
    if not isinstance(query, str):
        raise InvalidInputError(f"{query!r} is not SQL.", hint="Give the statement as text.")
    return parsed(query)


def _changed(tx: Transaction, spark: SparkSession, query: str, tree: exp.Expr) -> Statement:
    """By the tables' own verbs; what these cannot do, Spark does, if its session has the connector."""
    tables = _TransactionTables(tx)
    try:
        return _by_verbs(spark, tree, tables)
    except UnsupportedError as refused:
        if not can_execute(tree, tables) or not driver.has_connector(spark):
            raise
        try:
            return executed(tx, spark, query, tree, tables)
        except SparkRefuses:  # neither of them can do it
            raise refused from None


def _by_verbs(spark: SparkSession, tree: exp.Expr, tables: Tables) -> Statement:
    if isinstance(tree, exp.Insert):
        return insert(spark, tree, tables)
    if isinstance(tree, exp.Update):
        return update(spark, tree, tables)
    if isinstance(tree, exp.Delete):
        return delete(spark, tree, tables)
    if isinstance(tree, exp.Merge):
        return merge(spark, tree, tables)
    raise UnsupportedError(
        f"{tree.sql('spark').split(' ')[0].upper()} is not among the statements that a lake understands.",
        hint="SELECT, INSERT, UPDATE, DELETE and MERGE INTO are; tables are created by lake.create_table().",
    )


class _LakeTables:
    """The tables of a lake at one version."""

    def __init__(self, lake: LakeSnapshot) -> None:
        self._lake = lake

    def names(self) -> Sequence[str]:
        return self._lake.tables()

    def __contains__(self, name: str) -> bool:
        return name in self._lake

    def open(self, name: str, version: int | None = None, tag: str | None = None, as_of: str | None = None) -> Reader:
        return self._lake.table(name, version, tag=tag, as_of=as_of)


class _TransactionTables:
    """The tables as a transaction sees them."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def names(self) -> Sequence[str]:
        return self._tx.tables()

    def __contains__(self, name: str) -> bool:
        return name in self._tx

    def open(self, name: str, version: int | None = None, tag: str | None = None, as_of: str | None = None) -> Reader:
        table = self._tx[name]
        return table if version is tag is as_of is None else table.at(version, tag=tag, as_of=as_of)
