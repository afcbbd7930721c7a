"""The command line as a user has it: words in, text and an exit code out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import conroi
from conroi.cli import main

ENTRY_POINT = Path(sys.executable).with_name("conroi")
SETTINGS = ("CONROI_LAKE", "CONROI_STORE", "CONROI_LOCKS", "CONROI_STORAGE_OPTIONS", "CONROI_AUTHOR", "COLUMNS")


@dataclass(frozen=True)
class Ran:
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one document."""
        assert self.code in (0, 1, 3), self.err
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        """Its JSON lines."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        """What it said in JSON about its failure."""
        return json.loads(self.err)["error"]


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, in a folder of its own, by the function that the entry point calls."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


@pytest.fixture
def process(tmp_path: Path) -> Run:
    """Runs a command as a process, by the entry point that pip installed."""

    def run(*words: object, **environment: str) -> Ran:
        done = subprocess.run(
            [str(ENTRY_POINT), *(str(word) for word in words)],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=500,  # Spark on a busy machine
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    """`lake` in the folder: orders (10 rows, then 9 in version 3), and sales.customers (version 4)."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", [{"id": n, "amount": n / 2} for n in range(10)], key="id")
    with lake.begin("no free orders", author="ada") as tx:
        tx["orders"].delete("amount = 0")
    lake.create_table("sales.customers", [{"name": "Ada", "n": 1}, {"name": "Grace", "n": None}])
    return lake
