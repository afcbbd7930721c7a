"""Making `format("conroi")` known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_registered: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> None:
    """Let this session, classic or Connect, read and write `format("conroi")`."""
    if spark in _registered:
        return
    from conroi.spark.source import ConroiDataSource

    spark.dataSource.register(ConroiDataSource)
    _registered.add(spark)
