"""The whole sweep of bad calls: every public call, every argument, every kind of bad value.

::

    python -m tests.calls --jobs 2 [--calls 10000] [--seed 1] [--minutes 60]
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys

from tests.calls.test_bad_arguments import SEED, evidence, sweep_share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, help="so many, drawn with the seed; all by default")
    parser.add_argument("--seed", default=SEED)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="stop after so long, and say how many were made")
    given = parser.parse_args()
    until_s = None if given.minutes is None else given.minutes * 60
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        shares = [(number, given.jobs, given.calls, given.seed, until_s) for number in range(given.jobs)]
        found = pool.starmap(sweep_share, shares, chunksize=1)
    print(evidence(given.seed, found))
    for each in found:
        for case in (*each.untyped, *(f"changed by {case}" for case in each.changed)):
            print(f"  {case}")
    sys.exit(any(each.untyped or each.changed for each in found))


if __name__ == "__main__":
    main()
