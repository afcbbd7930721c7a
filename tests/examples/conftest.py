"""The example's own modules, and one run of the real program at a tiny size."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.source import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
PROGRAM = EXAMPLES / "orders_pipeline.py"

sys.path.append(str(EXAMPLES))  # as it is for the program itself


@dataclass(frozen=True)
class Run:
    """What a run of the program left behind."""

    code: int
    printed: str
    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "report.json").read_text("utf-8"))


def run_program(folder: Path, *arguments: str) -> Run:
    """The real program, in a process of its own."""
    command = [sys.executable, str(PROGRAM), "--out", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    return Run(done.returncode, done.stdout + done.stderr, folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two workers, 240 orders, and one worker killed in the middle of a load."""
    sizes = {"orders": 240, "days": 2, "regions": 2, "customers": 40, "seed": 11, "workers": 2, "kills": 1}
    arguments = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    return run_program(tmp_path_factory.mktemp("pipeline") / "out", *arguments)
