"""SQL over the tables of a lake: Spark runs queries, the tables' own verbs run changes."""

from conroi.spark.sql.statements import Statement, lake_sql, transaction_sql

__all__ = ["Statement", "lake_sql", "transaction_sql"]
