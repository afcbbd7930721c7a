"""python -m benchmarks [--only NAME …]: measure, print, keep, and fail if a bar is missed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from benchmarks.harness import Workspace
from benchmarks.report import Report

PROJECT = Path(__file__).parents[1]
BENCHMARKS = (
    "append",
    "contention",
    "rows",
    "merging",
    "compaction",
    "lake",
    "stores",
    "threads",
    "locks",
    "spark",
    "connector",
)


def main() -> int:
    """The command; the exit code says whether every bar was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure conroi beside its peers.")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, help="which of them")
    parser.add_argument("--turns", type=int, help="how often the contenders take turns (5, quick: 2)")
    parser.add_argument("--seconds", type=float, help="the length of a window (5, quick: 2)")
    parser.add_argument("--folder", type=Path, help="where to measure: a disk on which little was deleted just before")
    parser.add_argument("--quick", action="store_true", help="few short turns: a first look, no evidence")
    parser.add_argument("--evidence", action="store_true", help="also keep the result in docs/evidence")
    options = parser.parse_args()
    options.turns = options.turns or (2 if options.quick else 5)
    options.seconds = options.seconds or (2.0 if options.quick else 5.0)
    os.environ.setdefault("LANCE_LOG", "error")  # for the processes we start: what pylance warns of there, we count
    is_met = True
    with Workspace(options.folder) as workspace:  # one for all: nothing is deleted before the last is done
        for name in options.only:
            report = _measure(name, workspace.part(name), options)
            print(report.markdown(), flush=True)
            report.save(PROJECT / "bench-out")
            if options.evidence:
                report.save(PROJECT / "docs" / "evidence")
            is_met &= all(bar.is_met for bar in report.bars)
    return 0 if is_met else 1


def _measure(name: str, workspace: Workspace, options: argparse.Namespace) -> Report:
    """Imported only now: worker processes import this module too, and should start fast."""
    return importlib.import_module(f"benchmarks.{name}").measure(workspace, options)


if __name__ == "__main__":
    sys.exit(main())
