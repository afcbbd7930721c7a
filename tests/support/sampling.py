"""A sample of a large product of parameters: some cases in `make test`, all of them in `make soak`.

The sample is deterministic for a seed, and the seed is the day, so that every case has its turn. The header of a run
prints it; `CONROI_SAMPLE_SEED` repeats a run of another day. Each value of each dimension is in the sample.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

SEED = "CONROI_SAMPLE_SEED"


def seed() -> str:
    """The seed of this run; the processes that it starts inherit it, also if a new day begins."""
    return os.environ.setdefault(SEED, datetime.now(UTC).date().isoformat())


def sampled(name: str, *dimensions: Sequence[Any], least: int = 0) -> list[Any]:
    """The product of the dimensions as parameters. Those outside of the sample are marked `soak`.

    `name` tells the samples of several tests apart; `least` is the smallest number of cases in the sample.
    """
    chance = random.Random(f"{seed()} {name}")
    cases = list(product(*(range(len(values)) for values in dimensions)))
    chosen = set(_covering([len(values) for values in dimensions], chance))
    others = [case for case in cases if case not in chosen]
    chosen.update(chance.sample(others, min(len(others), max(0, least - len(chosen)))))
    return [_case(dimensions, case, is_sampled=case in chosen) for case in cases]


def _covering(sizes: Sequence[int], chance: random.Random) -> list[tuple[int, ...]]:
    """As many cases as the longest dimension has values, in which each value of each dimension occurs."""
    columns: list[list[int]] = []
    for size in sizes:
        values = [index % size for index in range(max(sizes))]
        chance.shuffle(values)
        columns.append(values)
    return list(zip(*columns, strict=True))


def _case(dimensions: Sequence[Sequence[Any]], case: tuple[int, ...], *, is_sampled: bool) -> Any:
    values = [dimension[index] for dimension, index in zip(dimensions, case, strict=True)]
    return pytest.param(*values, marks=() if is_sampled else pytest.mark.soak)
