"""Spark's daemon of Python workers for tasks, with everything heavy imported before it forks a worker.

Without this module each worker imports conroi, pylance and pyarrow: a second of processor time. Sessions on this
machine use it (`spark.python.daemon.module`); the executors of a cluster run Spark's own daemon, because they may get
conroi only after their daemon has started.

The workers in which Spark plans a read, prepares a write and commits it do not come from here: Spark 4.3 starts
`pyspark.daemon` for them, one for each step, whatever the setting says, and ends a worker that had nothing to do for a
minute. So what they import is kept small: see `tests/spark/test_planning.py`.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

for _module in (
    "lance.file",
    "pandas",
    "pyarrow.compute",
    "conroi.spark.source",
    "conroi.spark.streaming_sink",
    "conroi.spark.transactions",
    "conroi.spark.writer",
):
    importlib.import_module(_module)

if __name__ == "__main__":
    manager()
