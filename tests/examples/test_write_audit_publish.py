"""The small example, as its readers would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import conroi
from tests.examples.conftest import EXAMPLES
from tests.support.arrow import column_values


def test_the_bad_load_is_thrown_away_and_the_good_one_is_published(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "write_audit_publish.py"), str(tmp_path / "lake"), "--no-spark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert "monday: 1 orders of unknown customers" in done.stdout
    lake = conroi.connect(tmp_path / "lake")
    assert [commit.message for commit in lake.history()] == ["load of tuesday", "the start", None]
    assert sorted(column_values(lake["orders"].to_arrow()["customer"])) == ["Ada", "Grace"]
    assert [branch.name for branch in lake.branches] == ["main"]
