"""Discovery by Spark, which imports packages named `pyspark_…`: so `format("conroi")` needs no import."""

import contextlib

with contextlib.suppress(ImportError):  # where a dependency is missing, Spark must still find the sources of others
    from conroi.spark.source import ConroiDataSource as DefaultSource

__all__ = ["DefaultSource"]
