"""Temporary folders of killed processes are removed by the next one; those of live processes never are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract("U11")

MAKE = """
import sys
from conroi.storage.memory import process_folder
{use}
print("made", flush=True)
sys.stdin.read()
"""
USES = {
    "any": "process_folder('conroi-any-')",
    "a lake": "from conroi.catalog.manifest_rows import _scratch; _scratch()",
    "sent to Spark": "from conroi.spark.sessions import _archive; _archive()",
}


def start(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    command = [sys.executable, "-c", MAKE.format(use="\n".join(USES.values())), str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    return process


def test_the_next_process_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    """D10: scratch folders stayed after kill -9."""
    places = tmp_path / "tmp"
    places.mkdir()
    foreign = places / "conroi-any-foreign"
    foreign.mkdir()
    living = start(tmp_path)
    mine = set(os.listdir(places))
    killed = start(tmp_path)
    left = set(os.listdir(places)) - mine
    assert len(left) == len(USES), "a folder of each use"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert left <= set(os.listdir(places)), "a killed process cannot clean up"
    after = start(tmp_path)
    assert not left & set(os.listdir(places)), "removed by the next"
    assert mine <= set(os.listdir(places)), "that of a live process, and what has no lock, stay"
    for process in (living, after):
        process.communicate("", timeout=60)
    assert os.listdir(places) == [foreign.name], "and each removes its own when it ends"
