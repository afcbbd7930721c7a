"""The connector's jar: compiled from the Scala sources by the compiler that PySpark ships, the same bytes every time.

The build hook of the package loads this file by its path, so it imports nothing of conroi.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

NAME = "conroi-spark.jar"
FOLDER = Path(__file__).parent
_MARK = "META-INF/conroi-sources"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SINCE_4_2 = "Transactions.scala"
_TRANSACTIONS = "org/apache/spark/sql/connector/catalog/TransactionalCatalogPlugin.class"
_JAVA_OPTIONS = ("-Xss8m", "-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class CompilationError(Exception):
    """The compiler refused the sources, or did not run."""


def sources() -> list[Path]:
    """The Scala files, in a fixed order."""
    return sorted((FOLDER / "scala").glob("*.scala"))


def fingerprint() -> str:
    """A hash of the sources."""
    found = hashlib.sha256()
    for source in sources():
        data = source.read_bytes()
        found.update(f"{source.name} {len(data)}\n".encode() + data)
    return found.hexdigest()


def packaged() -> Path | None:
    """The jar in the package, if it was compiled from these very sources."""
    jar = FOLDER / NAME
    try:
        with zipfile.ZipFile(jar) as archive:
            return jar if archive.read(_MARK).decode() == fingerprint() else None
    except (OSError, KeyError, zipfile.BadZipFile):
        return None


def cached(java: str, pyspark: Path, version: str, cache: Path) -> Path:
    """The jar in the user's cache; compiled once for these sources and this PySpark."""
    jar = cache / f"{fingerprint()[:16]}-{version}" / NAME
    if not jar.exists():
        build(java, pyspark, jar)
    return jar


def build(java: str, pyspark: Path, jar: Path) -> None:
    """Compile the sources against PySpark's jars. The jar appears complete, or not at all; it is never rewritten."""
    jars = sorted((pyspark / "jars").glob("*.jar"))
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=jar.parent) as temporary:
        classes, made = Path(temporary) / "classes", Path(temporary) / NAME
        classes.mkdir()
        _compile(java, jars, _fitting(jars), classes)
        _pack(classes, made)
        os.replace(made, jar)  # a process that has the old file open keeps it


def _fitting(jars: Sequence[Path]) -> list[Path]:
    """The sources that this Spark has interfaces for."""
    catalyst = next((jar for jar in jars if jar.name.startswith("spark-catalyst")), None)
    if catalyst is None:
        raise CompilationError("PySpark has no jars: it was installed without them.")
    with zipfile.ZipFile(catalyst) as archive:
        has_transactions = _TRANSACTIONS in archive.namelist()
    return [source for source in sources() if has_transactions or source.name != _SINCE_4_2]


def _compile(java: str, jars: Sequence[Path], chosen: Sequence[Path], classes: Path) -> None:
    compiler = os.pathsep.join(str(jar) for jar in jars if jar.name.startswith("scala-"))
    against = os.pathsep.join(map(str, jars))
    command = [java, *_JAVA_OPTIONS, "-cp", compiler, "scala.tools.nsc.Main", "-nowarn", "-cp", against]
    command += ["-d", str(classes), *map(str, chosen)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)  # noqa: S603
    except subprocess.CalledProcessError as error:
        raise CompilationError(f"The Scala sources do not compile: {error.stdout}{error.stderr}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilationError(f"The Scala compiler did not run: {error}") from error


def _pack(classes: Path, jar: Path) -> None:
    """Sorted names and a fixed date: equal sources give equal bytes."""
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(_MARK, _EPOCH), fingerprint())
        for file in sorted(classes.rglob("*.class")):
            name = zipfile.ZipInfo(file.relative_to(classes).as_posix(), _EPOCH)
            archive.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)


def java_on_path(home: str | None) -> str | None:
    """The `java` of a home, or the one on the path; None if there is none."""
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")
