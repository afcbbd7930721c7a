"""Random histories of branches and merges against the model: a dozen each day, ten thousand in the soak."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from tests.branches.histories.crew import Crew
from tests.branches.histories.running import Outcome, random_history

pytestmark = pytest.mark.contract("B3")

TODAY = datetime.datetime.now(datetime.UTC).date().toordinal()
"""Other histories each day; a failure names the seed."""
HISTORIES, STEPS = 12, 30


class Drawn:
    """Chance by Hypothesis, so that a history that differs is made simpler."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def below(self, bound: int) -> int:
        return self._data.draw(st.integers(0, bound - 1))


def told(outcome: Outcome) -> str:
    return f"seed {outcome.seed}: {outcome.problem}\n" + "\n".join(outcome.code) + f"\nsteps: {outcome.steps!r}"


@pytest.mark.parametrize("part", range(4))
def test_histories_of_the_day(part: int) -> None:
    counts, first = Counter[str](), TODAY * 1000 + part * HISTORIES // 4
    for number in range(first, first + HISTORIES // 4):
        outcome = random_history(number, STEPS, deep=number % 4 == 0)
        assert outcome.problem is None, told(outcome)
        counts += outcome.counts
    print(f"seeds from {first}: {dict(counts)}")
    assert counts["merges"] > HISTORIES // 8


@seed(TODAY)
@settings(
    max_examples=6,
    deadline=None,
    database=None,
    suppress_health_check=cast("list[HealthCheck]", [*HealthCheck]),
    phases=(Phase.generate, Phase.shrink),
)
@given(data=st.data(), steps=st.integers(8, 25))
def test_histories_drawn_by_hypothesis(data: st.DataObject, steps: int) -> None:
    outcome = random_history(0, steps, deep=False, picks=Drawn(data))
    note(told(outcome))
    assert outcome.problem is None, outcome.problem


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_ten_thousand_histories() -> None:
    counts, problems = Counter[str](), list[str]()
    for outcome in Crew(range(1, 10_001), 40, jobs=2, deep_every=4).run():
        counts += outcome.counts
        problems += [told(outcome)] if outcome.problem else []
    print(dict(counts))
    assert not problems, f"{len(problems)} differ; the first: {problems[0]}"
