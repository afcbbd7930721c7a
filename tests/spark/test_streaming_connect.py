"""Streams as a client of Spark Connect."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

import conroi
from tests.support.source import REPOSITORY

PROGRAM = REPOSITORY / "tests" / "spark" / "streaming_connect.py"


@pytest.mark.soak
@pytest.mark.timeout(1300)
@pytest.mark.contract("S5", "S6")
def test_a_client_of_connect_streams_in_and_out(tmp_path: Path):
    names = ("PATH", "HOME", "JAVA_HOME")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "local[2]", str(tmp_path)],
        env=inherited | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all is well" in done.stdout


@pytest.mark.contract("S6")
def test_a_function_that_names_the_package_travels_to_another_process():
    def opening() -> object:
        return conroi.connect

    assert pickle.loads(cloudpickle.dumps(opening))() is conroi.connect
