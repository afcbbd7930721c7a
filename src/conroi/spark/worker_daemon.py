"""Spark's daemon of Python workers, with everything heavy imported before it forks a worker.

Spark forks a worker for each step of planning, writing and committing. Without this module each of them imports conroi,
pylance and pyarrow: a second of processor time. Sessions on this machine use it (`spark.python.daemon.module`); the
executors of a cluster run Spark's own daemon, because they may get conroi only after their daemon has started.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

for _module in ("lance.file", "pandas", "pyarrow.compute", "conroi.spark", "conroi.spark.source"):
    importlib.import_module(_module)

if __name__ == "__main__":
    manager()
