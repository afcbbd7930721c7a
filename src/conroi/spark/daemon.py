"""The process from which Spark forks its Python workers, with conroi's modules there before the first fork.

Spark forks a worker for planning each scan and for its tasks, and reading pylance's modules takes longer than planning.
Nothing of them is used before the fork: the threads of pylance and of Arrow start when they first work.
"""

from __future__ import annotations

import warnings
from importlib import import_module

from pyspark.daemon import manager

MODULES = ("saving", "scanning", "source", "tasks")


def main() -> None:
    """Read the modules, then do what Spark's own program does."""
    for name in MODULES:
        import_module(f"conroi.spark.{name}")
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    manager()


if __name__ == "__main__":
    main()
