"""Simulation: the same seed gives the same run in any process, and no run of the day has an anomaly."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conroi.testing.simulation import WORKLOADS, carriers, run, run_many, shrunk, story
from conroi.testing.simulation.__main__ import main, noted
from conroi.testing.simulation.world import World
from tests.support.sampling import seeds_of_the_day

pytestmark = pytest.mark.contract("H5", "H6")

BATCHES, SEEDS = 10, 20
TRACES = "import sys; from conroi.testing.simulation import run\nfor seed in range(7, 11): print(run(seed).trace)"


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
    assert len(set(traces[0])) == 4


def test_the_same_seed_gives_the_same_run_again() -> None:
    assert run(5).trace == run(5).trace != run(6).trace


def test_greenlets_and_threads_give_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert carriers.greenlet is not None, "the development environment has it"
    seeds = seeds_of_the_day("greenlets and threads", 40, 8)
    with_greenlets = [run(seed) for seed in seeds]
    monkeypatch.setattr(carriers, "greenlet", None)
    assert [run(seed).trace for seed in seeds] == [each.trace for each in with_greenlets]


def test_a_run_leaves_nothing_in_memory() -> None:
    for seed in range(len(WORKLOADS)):
        run(seed)
    gc.collect()
    assert [each.seed for each in gc.get_objects() if isinstance(each, World)] == []


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    def lines(*arguments: str) -> list[str]:
        out = io.StringIO()
        assert main(["--first", "300", "--out", str(tmp_path), *arguments], out) == 0
        return out.getvalue().splitlines()

    lines("--seeds", "25")
    (first,) = noted(tmp_path)
    whole = lines("--seeds", "75", "--jobs", "2")
    assert [seeds for seeds, _ in noted(tmp_path)] == [range(start, start + 25) for start in (300, 325, 350)]
    assert next(noted(tmp_path))[1] == first[1], "what was there is not done again"
    assert whole[0].startswith("seeds 300 to 374: 75 runs")


@pytest.mark.parametrize("batch", range(BATCHES))
def test_seeds_of_the_day(batch: int) -> None:
    seeds = seeds_of_the_day("simulation", 1_000_000, BATCHES * SEEDS)[batch * SEEDS : (batch + 1) * SEEDS]
    summary = run_many(seeds)
    assert summary.runs == SEEDS
    assert summary.committed > SEEDS
    assert not summary.failed, story(shrunk(summary.failed[0], tries=10))


def test_every_workload_has_its_turn() -> None:
    assert {run(seed).workload for seed in range(len(WORKLOADS))} == set(WORKLOADS)


def test_two_clients_compute_one_property_at_a_time_without_a_lock() -> None:
    """In Python 3.11 the second one waited for the first for ever: its lock is not the scheduler's."""
    assert run(233, "old_branches").problems == ()
