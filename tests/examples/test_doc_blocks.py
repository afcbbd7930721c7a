"""The Python blocks of README and docs run as they stand, in order, in an empty folder, and again in the same one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    "docs/branches.md",
    "docs/doctor.md",
    "docs/export.md",
    "docs/lake.md",
    "docs/locks.md",
    "docs/maintenance.md",
    "docs/namespace.md",
    "docs/reading.md",
    "docs/stores.md",
]
"""Not spark.md, whose blocks need a Java machine."""
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return _BLOCK.findall((REPOSITORY / page).read_text("utf-8"))


def run_blocks(page: str, folder: Path, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    program = "\n".join(blocks(page))
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.contract("E12")
@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_the_blocks_of_a_page_run_as_they_stand(page: str, tmp_path: Path):
    assert blocks(page)
    for run in ("first", "second"):
        ran = run_blocks(page, tmp_path)
        assert ran.returncode == 0, f"{run} run: {ran.stderr}"


@pytest.mark.contract("E12")
def test_a_block_that_fails_is_noticed(tmp_path: Path):
    assert _BLOCK.findall("```python\nx = 1\n```\n\n```\nno\n```\n\n```python\ny\n```\n") == ["x = 1\n", "y\n"]
