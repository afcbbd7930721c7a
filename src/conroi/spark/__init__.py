"""Spark 4 integration: conroi tables through PySpark, without a jar.

`session()` creates a local Spark session, also on a machine without Java; `register(spark)` makes `format("conroi")`
known to any session; `ship(spark)` sends conroi to executors that lack it; `each_batch(lake, work)` makes each
micro-batch of a stream one transaction. Everything else is on the tables themselves: `table.to_spark(spark)`, and verbs
that take DataFrames.

These names are loaded when they are asked for: a process in which Spark plans a read imports this package, and needs
none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conroi.spark.scan import Statistics, statistics
    from conroi.spark.sessions import session, ship
    from conroi.spark.source import register
    from conroi.spark.streaming_sink import each_batch
    from conroi.spark.transactions import SparkTransaction, transaction

__all__ = [
    "SparkTransaction",
    "Statistics",
    "each_batch",
    "register",
    "session",
    "ship",
    "statistics",
    "transaction",
]

_HOMES = {
    "SparkTransaction": "transactions",
    "Statistics": "scan",
    "each_batch": "streaming_sink",
    "register": "source",
    "session": "sessions",
    "ship": "sessions",
    "statistics": "scan",
    "transaction": "transactions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'conroi.spark' has no attribute {name!r}")
    module = import_module(f"conroi.spark.{_HOMES[name]}")
    found = globals()[name] = getattr(module, name)
    return found
