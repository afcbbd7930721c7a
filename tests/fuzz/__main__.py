"""Fuzzing of all readers of foreign bytes: mutated inputs, of which only typed errors may come.

::

    python -m tests.fuzz --inputs 10000000 --seed 1 --jobs 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time

from tests.fuzz.mutation import fuzz
from tests.fuzz.targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    share = -(-given.inputs // given.jobs)
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        found = pool.starmap(fuzz, [(share, given.seed * 1000 + job) for job in range(given.jobs)])
    took = time.monotonic() - began
    failures = [failure for each in found for failure in each]
    print(
        f"seed {given.seed}: {share * given.jobs:,} inputs to {len(TARGETS)} readers in {took:,.0f} s "
        f"({share * given.jobs / took:,.0f}/s), {len(failures)} untyped errors"
    )
    for failure in failures:
        print(f"  {failure.target}: {failure.error}\n    {failure.data[:200].hex()}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
