"""Registration of `format("conroi")` in a Spark session."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING
from weakref import WeakSet

from conroi.spark.redaction import redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_registered: WeakSet[SparkSession] = WeakSet()

REFUSED = "DATA_SOURCE_ALREADY_EXISTS"
"""Older Sparks refuse to replace a source that they found."""


def register(spark: SparkSession) -> None:
    """Register `format("conroi")` in this session, classic or Connect.

    Where conroi is installed for the Python of Spark, Spark finds it by itself; this also adds to what the session
    redacts in plans and logs.
    """
    if spark in _registered:
        return
    silence_pandas_warning()
    from pyspark.errors import AnalysisException

    from conroi.spark.source import ConroiDataSource

    redact(spark)
    try:
        spark.dataSource.register(ConroiDataSource)
    except AnalysisException as error:
        if error.getCondition() != REFUSED:
            raise
    _registered.add(spark)


def silence_pandas_warning() -> None:
    """PySpark 4.3 warns about pandas 3 whenever it hands over rows, also those that go as Arrow, as all of ours do."""
    text = r"PySpark does not yet fully support pandas >= 3\.0\.0"
    warnings.filterwarnings("ignore", message=text, category=FutureWarning)
