"""Spark's Python daemon, with everything heavy imported before it forks a worker.

Spark forks a worker for each step of planning, writing and committing, and each imports conroi, pylance and pyarrow: a
second of processor time. Only the shared session of the tests uses this; programs run with Spark's own daemon.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

for _module in ("lance.file", "pandas", "pyarrow.compute", "conroi.spark", "conroi.spark.source"):
    importlib.import_module(_module)

if __name__ == "__main__":
    manager()
