"""The Python blocks of docs/spark.md, and the Spark quickstart of README, run as they stand in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_doc_blocks import REPOSITORY, blocks
from tests.spark.support import SINCE_4_2

PAGE = "docs/spark.md"


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, in this folder."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )


@SINCE_4_2  # streams from a table
@pytest.mark.contract("E12")
@pytest.mark.timeout(600)
def test_the_blocks_of_the_page_run_as_they_stand(tmp_path: Path):
    """C11; and C10: nothing is said of pandas."""
    assert len(blocks(PAGE)) >= 5
    ran = run("\n".join(blocks(PAGE)), tmp_path)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "pandas" not in ran.stderr


@pytest.mark.contract("E12")
@pytest.mark.timeout(600)
def test_the_spark_quickstart_of_the_readme_runs_as_it_stands(tmp_path: Path):
    """It is fenced as `py`, so that the test of the other blocks, which has no Java, leaves it out."""
    [quickstart] = re.findall(r"^```py\n(.*?)^```$", (REPOSITORY / "README.md").read_text("utf-8"), re.M | re.S)
    ran = run(quickstart, tmp_path)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert re.search(r"\|\s*2\|\s*7\.5\|", ran.stdout), "the filtered rows are shown"
