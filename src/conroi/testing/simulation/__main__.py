"""Command line of the simulator: `python -m conroi.testing.simulation --seeds 1000` runs seeds and reports."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

from conroi.environment import SYSTEM
from conroi.format.json import parse_object
from conroi.testing.simulation.runs import Result, Summary, run, run_many, shrunk, story
from conroi.testing.simulation.workloads import WORKLOADS

CHUNK = 25
"""Seeds that a process runs before it reports."""
MOST_SHOWN = 5
NOTES = "chunks.jsonl"
"""File with one line of JSON for each chunk of seeds that is done."""
COUNTS = ("runs", "transactions", "committed", "requests", "cpu_s")
TABLES = ("offered", "activated", "activations", "workloads")

Runs = Callable[[range], Summary]


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Run seeds; 1 if one of them has an anomaly."""
    parser = argparse.ArgumentParser(prog="python -m conroi.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="only this one")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="note each chunk of seeds there, and skip those that are there"
    )
    parser.add_argument("--data-files", choices=("stand-in", "pylance"), default="stand-in", help="who writes them")
    parser.add_argument("--folder", help="with --data-files pylance: where (the RAM disk)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="tell the story of one seed")
    parser.add_argument("--shrink", action="store_true", help="with --replay: in its smallest form that fails")
    options = parser.parse_args(arguments)
    lane = {"data_files": options.data_files, "folder": options.folder}
    if options.replay is not None:
        result = run(options.replay, options.workload, keeps_story=True, **lane)
        print(story(shrunk(result) if options.shrink and result.problems else result), file=out)
        return int(bool(result.problems))
    began = SYSTEM.monotonic()
    runs = partial(run_many, workload=options.workload, **lane)
    summary = _all(options.first, options.seeds, runs, options.jobs, options.out)
    took_s = SYSTEM.monotonic() - began
    last = options.first + options.seeds - 1
    print(f"seeds {options.first} to {last}: {summary.runs} runs, {summary.transactions} transactions,", file=out)
    print(f"{summary.committed} of them acknowledged, {summary.requests} requests, in {took_s:.0f} s;", file=out)
    rate = summary.transactions / max(summary.cpu_s, 1e-9)
    print(f"{summary.cpu_s:.0f} s of processor time: {rate:.0f} transactions a second of one core", file=out)
    print(f"\n{summary.table()}\n\n{len(summary.failed)} runs with an anomaly", file=out)
    for result in summary.failed[:MOST_SHOWN]:
        print(f"  {result}\n  again: python -m conroi.testing.simulation {_again(result)}", file=out)
    return int(bool(summary.failed))


def _again(result: Result) -> str:
    lane = "" if result.data_files == "stand-in" else f" --data-files {result.data_files}"
    return f"--replay {result.seed} --workload {result.workload}{lane} --shrink"


def _all(first: int, count: int, runs: Runs, jobs: int, folder: Path | None) -> Summary:
    chunks = [range(start, min(start + CHUNK, first + count)) for start in range(first, first + count, CHUNK)]
    total = Summary()
    if folder is not None:
        done = dict(noted(folder))
        for chunk in chunks:
            total.merge(done.get(chunk, Summary()))
        chunks = [chunk for chunk in chunks if chunk not in done]
    for chunk, found in _run(chunks, runs, jobs):
        total.merge(found)
        if folder is not None:
            _note(folder, chunk, found)
    return total


def _run(chunks: Sequence[range], runs: Runs, jobs: int) -> Iterator[tuple[range, Summary]]:
    """The chunks with what they came to."""
    if jobs < 2:
        yield from zip(chunks, map(runs, chunks), strict=True)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from zip(chunks, pool.imap(runs, chunks), strict=True)


# ---------------------------------------------------------------------------- notes


def _note(folder: Path, seeds: range, summary: Summary) -> None:
    """A chunk is done."""
    folder.mkdir(parents=True, exist_ok=True)
    line: dict[str, Any] = {"first": seeds.start, "last": seeds.stop - 1}
    line |= {name: getattr(summary, name) for name in (*COUNTS, *TABLES)}
    line["failed"] = [
        {
            "seed": each.seed,
            "workload": each.workload,
            "data_files": each.data_files,
            "problems": list(each.problems),
        }
        for each in summary.failed
    ]
    with (folder / NOTES).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def noted(folder: Path) -> Iterator[tuple[range, Summary]]:
    """The chunks that are done."""
    path = folder / NOTES
    for number, text in enumerate(path.read_text("utf-8").splitlines() if path.exists() else (), 1):
        line = parse_object(text, f"{path}:{number}")
        summary = Summary(**{name: line[name] for name in COUNTS})
        for name in TABLES:
            getattr(summary, name).update(line[name])
        for each in line["failed"]:
            found = Result(
                each["seed"],
                each["workload"],
                each["problems"],
                "",
                0,
                0,
                0,
                frozenset(),
                data_files=each["data_files"],
            )
            summary.failed.append(found)
        yield range(line["first"], line["last"] + 1), summary


if __name__ == "__main__":
    sys.exit(main())
