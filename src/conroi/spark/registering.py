"""Making `format("conroi")` known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_registered: WeakSet[SparkSession] = WeakSet()

REDACTION = "spark.sql.redaction.options.regex"
"""Spark shows the values of options whose names match this as redacted: in plans, event logs and its UI."""
OURS = "^(?i:store|storageOptions|conroi[.]pin)$"
"""Options of ours that may hold credentials."""


def register(spark: SparkSession) -> None:
    """Let this session, classic or Connect, read and write `format("conroi")`."""
    if spark in _registered:
        return
    from conroi.spark.source import ConroiDataSource

    _redact(spark)
    spark.dataSource.register(ConroiDataSource)
    _registered.add(spark)


def _redact(spark: SparkSession) -> None:
    """Let Spark redact our options too. What the session redacts already stays redacted."""
    known = spark.conf.get(REDACTION, None) or "(?i)url"
    if OURS not in known:
        spark.conf.set(REDACTION, f"(?:{known})|{OURS}")
