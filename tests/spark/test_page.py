"""The Python blocks of docs/spark.md, and the Spark quickstart of README, run as they stand in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.examples.test_doc_blocks import REPOSITORY, blocks
from tests.spark.support import SINCE_4_2

PAGE = "docs/spark.md"
MARK = "what follows is the quickstart"

pytestmark = [SINCE_4_2, pytest.mark.contract("E12"), pytest.mark.timeout(600)]  # the page streams from a table


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One program of both, since a Java machine takes longer to start than they take: the page ends its session."""
    folder = tmp_path_factory.mktemp("page")
    (quickstart,) = re.findall(r"^```py\n(.*?)^```$", (REPOSITORY / "README.md").read_text("utf-8"), re.M | re.S)
    between = f"import os\nos.makedirs({str(folder / 'quickstart')!r})\nos.chdir({str(folder / 'quickstart')!r})\n"
    program = "\n".join([*blocks(PAGE), f"print({MARK!r}, flush=True)", between, quickstart])
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=580, check=False
    )


def test_the_blocks_of_the_page_run_as_they_stand(ran: subprocess.CompletedProcess[str]):
    """C11; and C10: nothing is said of pandas."""
    assert len(blocks(PAGE)) >= 5
    assert MARK in ran.stdout, ran.stderr[-4000:]
    assert "pandas" not in ran.stderr


def test_the_spark_quickstart_of_the_readme_runs_as_it_stands(ran: subprocess.CompletedProcess[str]):
    """It is fenced as `py`, so that the test of the other blocks, which has no Java, leaves it out."""
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert re.search(r"\|\s*2\|\s*7\.5\|", ran.stdout.partition(MARK)[2]), "the filtered rows are shown"
