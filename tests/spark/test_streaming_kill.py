"""Streams whose processes are killed at random moments, all at once, and then go on: every row is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.streaming_program import STARTED, STREAMS, check, check_together, prepare
from tests.spark.support import SINCE_4_2
from tests.support.source import REPOSITORY

PROGRAM = REPOSITORY / "tests" / "spark" / "streaming_program.py"
SEED = 20261116
MOST_STEPS = 6
LONGEST_DELAY_S = 1.0
LOOK_EVERY_S = 0.01
SPARK_WAS_TOO_SLOW = "Python worker failed to connect back"
"""On a busy machine Spark gives up waiting for a process that it started itself."""


def progress(folder: Path) -> int:
    """How many batches were begun, and how many were noted as done; a batch may have taken what two would have."""
    noted = (path for name in ("offsets", "commits") for path in (folder / "checkpoints").glob(f"*/{name}/*"))
    return sum(path.name.isdecimal() for path in noted)


def run(folder: Path, streams: Sequence[str], steps: int | None = None, delay_s: float = 0) -> bool:
    """Start streams and kill them a moment after so many steps; whether they were through before that."""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    with open(folder / "errors.txt", "w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), *streams],
            env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # so that one signal reaches Python and Java
        )
    assert process.stdout is not None
    try:
        before = progress(folder)
        assert any(STARTED in line for line in process.stdout), (folder / "errors.txt").read_text()
        while steps is not None and process.poll() is None and progress(folder) < before + steps:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_EVERY_S)
        process.wait(None if steps is None else delay_s)
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
    said = (folder / "errors.txt").read_text()
    if process.returncode and SPARK_WAS_TOO_SLOW in said:  # that is the machine's doing, and they go on anyway
        return run(folder, streams, steps, delay_s)
    assert process.returncode == 0, said
    return True


@SINCE_4_2  # streams from a table
@pytest.mark.contract("S5")
@pytest.mark.parametrize(
    ("rounds", "batches", "all_streams"),
    [
        pytest.param(1, 2, ("both", "copy", "mirror"), id="one round", marks=pytest.mark.timeout(900)),
        pytest.param(50, 8, STREAMS, id="fifty rounds", marks=[pytest.mark.soak, pytest.mark.timeout(4 * 3600)]),
    ],
)
def test_every_row_is_there_once_whenever_the_streams_are_killed(
    tmp_path: Path, rounds: int, batches: int, all_streams: Sequence[str]
):
    chance = random.Random(SEED)
    killed, stories, all_steps = 0, 0, 2 * len(all_streams) * batches
    while killed < rounds:
        folder = tmp_path / f"story-{stories}"
        prepare(folder, batches)
        left = set(all_streams)
        while killed < rounds and left:
            streams = chance.sample(sorted(left), min(2, len(left)))
            steps, delay_s = chance.randint(0, MOST_STEPS), chance.uniform(0, LONGEST_DELAY_S)
            is_through = run(folder, streams, steps, delay_s)
            killed += not is_through
            left -= set(streams) if is_through else set()
            check_together(folder)
            outcome = "through" if is_through else f"killed {delay_s:.2f} s after {steps} steps"
            done = f"{progress(folder)} of {all_steps} steps"
            print(f"story {stories}, round {killed}: {' and '.join(streams)} {outcome}, {done}", flush=True)
        run(folder, all_streams)
        check(folder, batches, all_streams)
        stories += 1
    print(f"seed {SEED}: {killed} kills in {stories} stories, every row once")
