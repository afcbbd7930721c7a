"""Merges racing with writers in other processes: nothing acknowledged is lost, and conflicts are typed."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.branches.histories.planted import planted
from tests.branches.histories.processes import Team

pytestmark = pytest.mark.contract("B3")

TODAY = datetime.datetime.now(datetime.UTC).date().toordinal()


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    with Team() as team:
        yield team


def run(team: Team, seeds: range) -> Counter[str]:
    counts = Counter[str]()
    for seed in seeds:
        done, problems = team.history(seed)
        assert not problems, f"seed {seed}: {problems}"
        counts += done
    print(f"seeds from {seeds.start}: {dict(counts)}")
    return counts


def test_merges_beside_writers_of_other_processes(team: Team) -> None:
    counts = run(team, range(TODAY * 100, TODAY * 100 + 3))
    assert counts["merge"] > 5
    assert counts["past states"] > 20


@pytest.mark.parametrize("bug", ["a row is lost", "a row is there twice", "the names of two tables are swapped"])
def test_a_planted_bug_is_found(team: Team, bug: str) -> None:
    """The merges of the audit itself have the bug."""
    with planted(bug):
        assert team.history(2)[1]


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_two_thousand_histories_in_processes(team: Team) -> None:
    counts = run(team, range(1, 2001))
    assert counts["merge: refused"] > 0
