"""Planted bugs: each mutation of the protocol is noticed, at the seed that docs/proof.md names.

`python -m tests.simulation.test_planted` looks for the seeds again and writes the table; with names, for these only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import pytest

from conroi.testing.simulation import run
from tests.simulation.planted import HARMLESS, PLANTED
from tests.support.sampling import sampled
from tests.support.source import REPOSITORY

pytestmark = pytest.mark.contract("H6")

PAGE = REPOSITORY / "docs/proof.md"
MOST_SEEDS = 1000
_ROW = re.compile(r"^\| `(?P<bug>\w+)` \| (?P<workload>\w+) \| (?P<seed>\d+|—) \|", re.MULTILINE)
_GUARDED = re.compile(r"^\| `(?P<mutation>\w+)` \| [^|]+ \| `(?P<both>\w+)` \|", re.MULTILINE)


def caught() -> dict[str, tuple[str, int]]:
    """By bug, the workload and the seed in the table of docs/proof.md."""
    return {row["bug"]: (row["workload"], int(row["seed"])) for row in _ROW.finditer(PAGE.read_text("utf-8"))}


def test_the_table_has_every_planted_bug() -> None:
    assert {bug: workload for bug, (workload, _) in caught().items()} == {
        bug: workload for bug, (_, workload) in PLANTED.items()
    }


def test_at_least_25_are_planted_and_all_are_caught_within_1000_seeds() -> None:
    seeds = [seed for _, seed in caught().values()]
    assert len(seeds) >= 25
    assert max(seeds) < MOST_SEEDS


@pytest.mark.parametrize("bug", sampled("planted", [(bug,) for bug in PLANTED], least=10, covers=False))
def test_it_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, _ = PLANTED[bug]
    workload, seed = caught()[bug]
    assert run(seed, workload).problems == (), "without the bug the run is clean"
    plant(monkeypatch)
    assert run(seed, workload).problems


def test_the_page_has_every_mutation_that_does_no_harm() -> None:
    listed = {row["mutation"]: row["both"] for row in _GUARDED.finditer(PAGE.read_text("utf-8"))}
    assert listed == {mutation: both for mutation, (_, both) in HARMLESS.items()}


@pytest.mark.parametrize("mutation", sorted(HARMLESS))
def test_a_second_guard_makes_up_for_it(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, both = HARMLESS[mutation]
    workload, seed = caught()[both]
    plant(monkeypatch)
    assert run(seed, workload).problems == ()


# ---------------------------------------------------------------------------- the table


def first_seed(bug: str) -> int | None:
    """The first at which the bug is caught."""
    plant, workload = PLANTED[bug]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return next((seed for seed in range(MOST_SEEDS) if run(seed, workload).problems), None)


def main(bugs: Sequence[str]) -> int:
    """Look for the seeds, and write them into the table."""
    missed: list[str] = []
    for bug in bugs or list(PLANTED):
        seed, (_, workload) = first_seed(bug), PLANTED[bug]
        print(f"{bug}: {workload} {seed}")
        if seed is None:
            missed.append(bug)
            continue
        text = PAGE.read_text("utf-8")
        row = re.compile(rf"^\| `{bug}` \| \w+ \| (\d+|—) \|", re.MULTILINE)
        PAGE.write_text(row.sub(f"| `{bug}` | {workload} | {seed} |", text), "utf-8")
    return len(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
