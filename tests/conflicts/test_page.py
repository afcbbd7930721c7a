"""The page on conflicts is what the matrix says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conroi.conflicts.matrix import OPERATIONS
from tools.conflicts_page import page

PAGE = Path(__file__).parents[2] / "docs" / "conflicts.md"


def test_the_page_in_docs_is_the_one_that_is_rendered() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m tools.conflicts_page > docs/conflicts.md"


def test_the_page_can_be_printed() -> None:
    command = [sys.executable, "-m", "tools.conflicts_page"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert printed.stdout.decode() == page()


def test_the_table_has_a_row_for_every_operation() -> None:
    lines = [line for line in page().split("\n") if line.startswith("| **")]
    assert [line.split("**")[1] for line in lines] == list(OPERATIONS)
    assert {line.count("|") for line in lines} == {len(OPERATIONS) + 3}


def test_a_question_that_comes_first_shows_in_the_table() -> None:
    """An append after added columns is mostly fine, but not always; a delete is not asked."""
    row = {line.split("**")[1]: line for line in page().split("\n") if line.startswith("| **")}
    column = OPERATIONS.index("Merge") + 2
    assert row["Append"].split("|")[column].strip() == "CR <sup>a</sup>"
    assert row["UpdateConfig"].split("|")[column].strip() == "CR <sup>b</sup>"
    assert row["ReserveFragments"].split("|")[column].strip() == "C"
