"""Simulation: the same seed gives the same run in any process, and no run of the day has an anomaly."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from conroi.testing.simulation import WORKLOADS, run, run_many, shrunk, story
from tests.support.sampling import seeds_of_the_day

pytestmark = pytest.mark.contract("H5", "H6")

BATCHES, SEEDS = 10, 20
TRACES = "import sys; from conroi.testing.simulation import run\nfor seed in range(7, 14): print(run(seed).trace)"


def test_the_same_seed_gives_the_same_run_in_two_processes() -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-c", TRACES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert len(set(traces[0])) == 7


def test_the_same_seed_gives_the_same_run_again() -> None:
    assert run(5).trace == run(5).trace != run(6).trace


@pytest.mark.parametrize("batch", range(BATCHES))
def test_seeds_of_the_day(batch: int) -> None:
    seeds = seeds_of_the_day("simulation", 1_000_000, BATCHES * SEEDS)[batch * SEEDS : (batch + 1) * SEEDS]
    summary = run_many(seeds)
    assert summary.runs == SEEDS
    assert summary.committed > SEEDS
    assert not summary.failed, story(shrunk(summary.failed[0], tries=10))


def test_every_workload_has_its_turn() -> None:
    assert {run(seed).workload for seed in range(len(WORKLOADS))} == set(WORKLOADS)
