"""The Python blocks of docs/spark.md run as they stand, in order, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.test_doc_blocks import blocks, run_blocks

PAGE = "docs/spark.md"


@pytest.mark.contract("E12")
@pytest.mark.timeout(600)
def test_the_blocks_of_the_page_run_as_they_stand(tmp_path: Path):
    """C11; and C10: nothing is said of pandas."""
    assert len(blocks(PAGE)) >= 5
    ran = run_blocks(PAGE, tmp_path, timeout=580)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "pandas" not in ran.stderr
