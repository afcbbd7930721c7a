"""Planted bugs: each mutation of the protocol is noticed, at the seed that docs/proof.md names."""

from __future__ import annotations

import re

import pytest

from conroi.testing.simulation import run
from tests.simulation.planted import PLANTED
from tests.support.sampling import sampled
from tests.support.source import REPOSITORY

pytestmark = pytest.mark.contract("H6")

_ROW = re.compile(r"^\| `(?P<bug>\w+)` \| (?P<workload>\w+) \| (?P<seed>\d+|—) \|", re.MULTILINE)


def caught() -> dict[str, tuple[str, str]]:
    """By bug, the workload and the seed in the table of docs/proof.md."""
    text = (REPOSITORY / "docs/proof.md").read_text("utf-8")
    return {row["bug"]: (row["workload"], row["seed"]) for row in _ROW.finditer(text)}


def test_the_table_has_every_planted_bug() -> None:
    assert {bug: workload for bug, (workload, _) in caught().items()} == {
        bug: workload for bug, (_, workload) in PLANTED.items()
    }


def test_at_least_25_are_caught_within_1000_seeds() -> None:
    seeds = [int(seed) for _, seed in caught().values() if seed != "—"]
    assert len(seeds) >= 25
    assert max(seeds) < 1000


@pytest.mark.parametrize(
    "bug",
    sampled("planted", [(bug,) for bug, (_, seed) in caught().items() if seed != "—"], least=10, covers=False),
)
def test_it_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, workload = PLANTED[bug]
    seed = int(caught()[bug][1])
    assert run(seed, workload).problems == (), "without the bug the run is clean"
    plant(monkeypatch)
    assert run(seed, workload).problems
