"""The same in a classic session, as a client of Connect, and on a cluster whose executors have nothing of ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.spark.session_kinds import check
from tests.support.source import REPOSITORY

EXECUTORS = {"IS_EXECUTOR": "1"}
PROGRAM = REPOSITORY / "tests" / "spark" / "everywhere.py"


def run(master: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), master, str(folder)],
        env=_inherited() | {"PYSPARK_PYTHON": sys.executable} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _inherited() -> dict[str, str]:
    names = ("PATH", "HOME", "JAVA_HOME", "PYTHONPATH")
    return {name: os.environ[name] for name in names if name in os.environ}


@pytest.mark.contract("S6")
def test_a_classic_session(spark: SparkSession, tmp_path: Path):
    check(spark, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(700)
@pytest.mark.contract("S6")
def test_a_client_of_connect(tmp_path: Path):
    assert "all is well" in run("connect local[2]", tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(700)
@pytest.mark.contract("S6")
def test_a_cluster_whose_executors_have_only_what_is_shipped(tmp_path: Path):
    bare = python_without_us(tmp_path)
    probe = subprocess.run(
        [str(bare), "-c", "import lance, pyarrow; import conroi"],
        env=_inherited() | EXECUTORS,
        capture_output=True,
        check=False,
    )
    assert b"No module named 'conroi'" in probe.stderr  # the control: they do not have it
    with cluster(tmp_path) as master:
        said = run(master, tmp_path, PYSPARK_PYTHON=str(bare), PYSPARK_DRIVER_PYTHON=sys.executable)
        assert "all is well" in said


def python_without_us(folder: Path) -> Path:
    """This Python; on executors without the packages that are installed by reference, as we are."""
    script = folder / "python-without-us"
    packages = sysconfig.get_path("purelib")
    script.write_text(
        "#!/bin/bash\n"
        f'[ -z "$IS_EXECUTOR" ] && exec {sys.executable} "$@"\n'
        f'PYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    script.chmod(0o755)
    return script


@contextmanager
def cluster(folder: Path) -> Generator[str]:
    """A master and two workers, each a process of its own."""
    port = free_port()
    home = str(Path(pyspark.__file__).parent)
    environment = _inherited() | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": home, "SPARK_WORKER_DIR": str(folder)}
    environment = environment | EXECUTORS
    environment.pop("PYTHONPATH", None)
    url = f"spark://127.0.0.1:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
    worker += ["--webui-port", "0", url]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate([master, worker, worker]):
            with open(folder / f"process-{number}.log", "wb") as log:
                launcher = [f"{home}/bin/spark-class", *command]
                started.append(subprocess.Popen(launcher, env=environment, stdout=log, stderr=log))
            if number == 0:
                wait_for(port)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=60)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def wait_for(port: int) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the master does not answer")
