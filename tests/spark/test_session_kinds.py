"""The same in a classic session, as a client of Connect, and on a cluster whose executors have nothing of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.clusters import check_python_without_us, cluster, inherited, python_without_us
from tests.spark.session_kinds import check
from tests.support.source import REPOSITORY

PROGRAM = REPOSITORY / "tests" / "spark" / "session_kinds.py"


def run(master: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), master, str(folder)],
        env=inherited() | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    check_python_without_us(bare)
    with cluster(tmp_path) as master:
        said = run(master, tmp_path, PYSPARK_PYTHON=str(bare), PYSPARK_DRIVER_PYTHON=sys.executable)
        assert "all is well" in said
