"""What several tests of the connector need."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


def rows(session: SparkSession | ConnectSession, query: str) -> list[tuple[Any, ...]]:
    """The answer to a query, in its order."""
    return [tuple(row) for row in session.sql(query).collect()]


def plan(frame: DataFrame) -> str:
    """The physical plan, as EXPLAIN shows it."""
    return str(cast("Any", frame)._jdf.queryExecution().executedPlan().toString())
