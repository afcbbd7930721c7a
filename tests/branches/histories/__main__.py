"""Random histories of branches: `python -m tests.branches.histories --histories 1000 --steps 40 --seed 1 --jobs 2`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.branches.histories.crew import Crew
from tests.branches.histories.running import Outcome, replay, shrunk


def _report(outcome: Outcome) -> None:
    print(f"\nseed {outcome.seed}: {outcome.problem}")
    print("  " + "\n  ".join(outcome.code))
    print(f"  steps: {outcome.steps!r}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.branches.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--deep-every", type=int, default=4, help="doctor(deep=True) at the end of every n-th history")
    parser.add_argument("--without", default="", help="kinds of steps to leave out: swap,recreate,…")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--replay", type=str, help="a list of steps, as a report has it")
    arguments = parser.parse_args()
    if arguments.replay:
        outcome = replay(eval(arguments.replay, {"nan": float("nan")}))
        _report(outcome)
        return 1 if outcome.problem else 0
    seeds = range(arguments.seed, arguments.seed + arguments.histories)
    without = tuple(arguments.without.split(","))
    counts, kinds = Counter[str](), Counter[str]()
    began = time.monotonic()
    done = 0
    for outcome in Crew(
        seeds, arguments.steps, jobs=arguments.jobs, deep_every=arguments.deep_every, without=without
    ).run():
        done += 1
        counts += outcome.counts
        if done % 500 == 0:
            print(f"{done} histories, {sum(kinds.values())} differences, {time.monotonic() - began:.0f} s", flush=True)
        if outcome.problem is None:
            continue
        kinds[outcome.signature] += 1
        if kinds[outcome.signature] == 1:
            is_dead = outcome.problem == "the process died"
            _report(outcome if arguments.no_shrink or is_dead else shrunk(outcome))
        else:
            print(f"seed {outcome.seed}: again {outcome.signature}", flush=True)
    took = time.monotonic() - began
    print(
        f"\n{done} histories of {arguments.steps} steps, seeds from {arguments.seed}: "
        f"{took:.0f} s, {done / took:.2f} a second"
    )
    for name, number in sorted(counts.items()):
        print(f"  {name:45} {number:9,}")
    print(f"  differences: {sum(kinds.values())}")
    for name, number in kinds.most_common():
        print(f"    {number:5}  {name}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
