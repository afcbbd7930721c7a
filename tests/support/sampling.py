"""A sample of many parameters: some cases in `make test`, all of them in `make soak`.

The sample is deterministic for a seed, and the seed is the day, so that every case has its turn. The header of a run
prints it; `CONROI_SAMPLE_SEED` repeats the sample of another day. A sample covers each value of each parameter.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

SEED = "CONROI_SAMPLE_SEED"
SAMPLE, ALL = "CONROI_SAMPLE", "all"
"""A variable and its value with which no case is left out."""


def seed() -> str:
    """The seed of this run; the processes that it starts inherit it, also if a new day begins."""
    return os.environ.setdefault(SEED, datetime.now(UTC).date().isoformat())


def sampled(
    name: str,
    cases: Sequence[tuple[Any, ...]],
    *,
    least: int = 0,
    covers: bool = True,
    label: Callable[[Any], str] = str,
) -> list[Any]:
    """The cases as parameters of a test. Those outside of the sample are marked `soak`.

    `name` tells the samples of several tests apart; `least` is the smallest number of cases in a sample, and the number
    if it need not cover all values; `label` gives each value its part of the test's id, which must tell values apart.
    """
    labels = [tuple(label(value) for value in case) for case in cases]
    if os.environ.get(SAMPLE) == ALL:
        least = len(cases)
    chosen = _covering(labels if covers else [()] * len(cases), random.Random(f"{seed()} {name}"), least)
    return [
        pytest.param(*case, id="-".join(labels[number]), marks=() if number in chosen else pytest.mark.soak)
        for number, case in enumerate(cases)
    ]


def seeds_of_the_day(name: str, first: int, count: int) -> range:
    """So many seeds of random histories, others each day; the soak runs many more."""
    block = random.Random(f"{seed()} {name}").randrange(1000)
    return range(first + block * count, first + (block + 1) * count)


def _covering(labels: Sequence[tuple[str, ...]], chance: random.Random, least: int) -> set[int]:
    """Cases in random order, of which each has a value that the ones before it lack; then others up to `least`."""
    order = list(range(len(labels)))
    chance.shuffle(order)
    seen, chosen = set[tuple[int, str]](), list[int]()
    for number in order:
        values = set(enumerate(labels[number]))
        if not values <= seen:
            seen |= values
            chosen.append(number)
    others = [number for number in order if number not in set(chosen)]
    return {*chosen, *others[: max(0, least - len(chosen))]}
