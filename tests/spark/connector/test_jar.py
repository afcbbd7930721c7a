"""The jar: the same bytes from the same sources, compiled once, and not used if the sources changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest

from conroi.errors import InvalidInputError
from conroi.spark.connector import jar
from conroi.spark.connector.configuration import connector_jar
from conroi.spark.connector.helper import check_sources
from conroi.spark.sessions import java_home
from tests.spark.support import SPARK

pytestmark = pytest.mark.contract("S16")

PYSPARK = Path(pyspark.__file__).parent


def java() -> str:
    found = jar.java_on_path(java_home())
    assert found is not None
    return found


def test_equal_classes_give_an_equal_jar(tmp_path: Path):
    """Whatever the order and the time in which the compiler wrote them."""
    with zipfile.ZipFile(used()) as archive:
        names = [name for name in archive.namelist() if name.endswith(".class")]
        for name in reversed(names):
            archive.extract(name, tmp_path / "classes")
            os.utime(tmp_path / "classes" / name, (1, len(name)))
    jar._pack(tmp_path / "classes", tmp_path / "again.jar")  # pyright: ignore[reportPrivateUsage]
    assert (tmp_path / "again.jar").read_bytes() == Path(used()).read_bytes()


@pytest.mark.soak  # compiles all sources: `make setup` has done so once
def test_a_build_is_reproducible(tmp_path: Path):
    jar.build(java(), PYSPARK, tmp_path / "again.jar")
    digests = {hashlib.sha256(Path(each).read_bytes()).hexdigest() for each in (tmp_path / "again.jar", used())}
    assert len(digests) == 1


def used() -> str:
    return connector_jar(java_home())


def test_the_jar_has_the_catalogs_and_nothing_of_others():
    with zipfile.ZipFile(used()) as archive:
        names = set(archive.namelist())
    catalogs = {"LakeCatalog", "TransactionalLakeCatalog"} if SPARK >= (4, 2) else {"LakeCatalog"}
    assert {f"conroi/spark/{name}.class" for name in catalogs} <= names
    assert all(name.startswith(("conroi/spark/", "META-INF/conroi")) for name in names)


def test_the_cache_is_filled_once_and_by_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    built: list[Path] = []

    def build(_java: str, _pyspark: Path, made: Path) -> None:
        built.append(made)
        made.parent.mkdir(parents=True, exist_ok=True)
        temporary = made.with_suffix(f".{threading.get_ident()}")
        shutil.copy(used(), temporary)
        temporary.replace(made)

    original = used()
    monkeypatch.setattr(jar, "build", build)
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: jar.cached("java", PYSPARK, "4.3.0", tmp_path), range(8)))
    assert len(found) == 1
    assert next(iter(found)).read_bytes() == Path(original).read_bytes()
    before = len(built)
    assert jar.cached("java", PYSPARK, "4.3.0", tmp_path) in found
    assert len(built) == before
    assert jar.cached("java", PYSPARK, "4.2.0", tmp_path) not in found, "another PySpark has another jar"


def test_a_jar_of_other_sources_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(jar.FOLDER / "scala", tmp_path / "scala")
    shutil.copy(used(), tmp_path / jar.NAME)
    monkeypatch.setattr(jar, "FOLDER", tmp_path)
    assert jar.packaged() == tmp_path / jar.NAME
    with (tmp_path / "scala" / "Python.scala").open("a") as source:
        source.write("// changed\n")
    assert jar.packaged() is None


def test_a_helper_refuses_a_jar_of_other_sources():
    """Otherwise a request that has changed could be taken for another one, and rows be lost."""
    with zipfile.ZipFile(used()) as archive:
        check_sources(archive.read("META-INF/conroi-sources").decode())
    with pytest.raises(InvalidInputError, match="another version"):
        check_sources("0" * 64)


def test_without_jars_of_spark_the_error_says_so(tmp_path: Path):
    with pytest.raises(jar.CompilationError, match="without them"):
        jar.build(java(), tmp_path, tmp_path / "never.jar")
