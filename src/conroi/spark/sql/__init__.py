"""SQL over the tables of a lake: Spark answers queries, and changes are done by the tables' own verbs."""

from conroi.spark.sql.statements import Statement, lake_sql, transaction_sql

__all__ = ["Statement", "lake_sql", "transaction_sql"]
