"""python -m benchmarks [NAME …]: measure, print, keep, and fail if a bar is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import append
from benchmarks.report import Report

PROJECT = Path(__file__).parents[1]
BENCHMARKS: dict[str, Callable[[argparse.Namespace], Report]] = {"append": append.measure}


def main() -> int:
    """The command; the exit code says whether every bar was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure conroi beside its peers.")
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which (all, if none is named)")
    parser.add_argument("--turns", type=int, default=5, help="how often the contenders take turns")
    parser.add_argument("--seconds", type=float, default=5.0, help="the length of a window")
    parser.add_argument("--quick", action="store_true", help="two turns of one second: a first look, no evidence")
    parser.add_argument("--evidence", action="store_true", help="also keep the result in docs/evidence")
    options = parser.parse_args()
    if options.quick:
        options.turns, options.seconds = 2, 1.0
    is_met = True
    for name in options.names or BENCHMARKS:
        report = BENCHMARKS[name](options)
        print(report.markdown(), flush=True)
        report.save(PROJECT / "bench-out")
        if options.evidence:
            report.save(PROJECT / "docs" / "evidence")
        is_met &= all(bar.is_met for bar in report.bars)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
