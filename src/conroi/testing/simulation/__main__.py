"""Command line of the simulator: `python -m conroi.testing.simulation --seeds 1000` runs seeds and reports."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from typing import TextIO

from conroi.environment import SYSTEM
from conroi.testing.simulation.runs import Result, Summary, run, run_many, shrunk, story
from conroi.testing.simulation.workloads import WORKLOADS

CHUNK = 25
"""Seeds that a process runs before it reports."""
MOST_SHOWN = 5


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Run seeds; 1 if one of them has an anomaly."""
    parser = argparse.ArgumentParser(prog="python -m conroi.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="only this one")
    parser.add_argument("--replay", type=int, metavar="SEED", help="tell the story of one seed")
    parser.add_argument("--shrink", action="store_true", help="with --replay: in its smallest form that fails")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        result = run(options.replay, options.workload, keeps_story=True)
        print(story(shrunk(result) if options.shrink and result.problems else result), file=out)
        return int(bool(result.problems))
    began = SYSTEM.monotonic()
    summary = _all(options.first, options.seeds, options.workload, options.jobs)
    took_s = SYSTEM.monotonic() - began
    last = options.first + options.seeds - 1
    print(f"seeds {options.first} to {last}: {summary.runs} runs, {summary.transactions} transactions,", file=out)
    print(f"{summary.committed} of them acknowledged, {summary.requests} requests, in {took_s:.0f} s", file=out)
    print(f"({summary.transactions / max(took_s, 1e-9):.0f} transactions a second)", file=out)
    print(f"\n{summary.table()}\n\n{len(summary.failed)} runs with an anomaly", file=out)
    for result in summary.failed[:MOST_SHOWN]:
        print(f"  {result}\n  again: python -m conroi.testing.simulation {_again(result)}", file=out)
    return int(bool(summary.failed))


def _again(result: Result) -> str:
    return f"--replay {result.seed} --workload {result.workload} --shrink"


def _all(first: int, count: int, workload: str | None, jobs: int) -> Summary:
    chunks = [range(start, min(start + CHUNK, first + count)) for start in range(first, first + count, CHUNK)]
    total = Summary()
    if jobs < 2:
        for chunk in chunks:
            total.merge(run_many(chunk, workload))
        return total
    with get_context("spawn").Pool(jobs) as pool:
        for found in pool.imap_unordered(partial(run_many, workload=workload), chunks):
            total.merge(found)
    return total


if __name__ == "__main__":
    sys.exit(main())
