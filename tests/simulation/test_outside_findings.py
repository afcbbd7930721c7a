"""Findings of outside tests: each mistake that was put back is noticed at the seed that the page names.

`python -m tests.simulation.test_outside_findings` looks for the seeds again and writes them into the table.
"""

from __future__ import annotations

import re
import sys

import pytest

from conroi.testing.simulation import run
from tests.branches.histories.running import random_history
from tests.simulation.outside_findings import FINDINGS, HISTORIES
from tests.support.sampling import sampled
from tests.support.source import REPOSITORY

pytestmark = pytest.mark.contract("H6")

PAGE = REPOSITORY / "docs/evidence/2026-11-19-findings.md"
SECTIONS = {"A": 6, "F": 15, "G": 14, "I": 19, "J": 8}
"""How many findings each section has, numbered from 1."""
STEPS = 30
MOST_SEEDS = 1000
_MUTATION = re.compile(r"^\| `(?P<name>\w+)` \| (?P<ids>[\w, ]+) \| (?P<net>\w+) \| (?P<seed>\d+) \|$", re.MULTILINE)
_HELD = re.compile(r"^\| (?P<ids>[A-J]\d+(?:, [A-J]\d+)*) \| [^|]+ \| (?P<tests>`tests/[^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/.]+)(?:::(\w+))?`")


def mutations() -> dict[str, tuple[str, tuple[str, ...], int]]:
    """By name: the net, the findings and the seed in the table of the page."""
    found = _MUTATION.finditer(PAGE.read_text("utf-8"))
    return {row["name"]: (row["net"], tuple(row["ids"].split(", ")), int(row["seed"])) for row in found}


def problems(net: str, seed: int) -> bool:
    """Whether the net reports anything at this seed."""
    if net == HISTORIES:
        return random_history(seed, STEPS, deep=False).problem is not None
    return bool(run(seed, net).problems)


def test_the_page_has_every_mutation() -> None:
    assert {name: (net, ids) for name, (net, ids, _) in mutations().items()} == {
        name: (net, ids) for name, (_, net, ids) in FINDINGS.items()
    }


def test_the_page_has_every_finding_once() -> None:
    text = PAGE.read_text("utf-8")
    held = [each for row in _HELD.finditer(text) for each in row["ids"].split(", ")]
    shown = [each for _, ids, _ in mutations().values() for each in ids]
    known = [f"{section}{number + 1}" for section, count in SECTIONS.items() for number in range(count)]
    assert sorted(held + shown) == sorted(known)


def test_the_named_tests_exist() -> None:
    for path, name in _TEST.findall(PAGE.read_text("utf-8")):
        file = REPOSITORY / path
        assert file.exists(), path
        assert not name or f"def {name}(" in file.read_text("utf-8"), f"{path}::{name}"


@pytest.mark.parametrize("name", sampled("outside findings", [(name,) for name in FINDINGS], least=4, covers=False))
def test_it_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, net, _ = FINDINGS[name]
    seed = mutations()[name][2]
    assert not problems(net, seed), "without the mistake nothing is found"
    plant(monkeypatch)
    assert problems(net, seed)


# ---------------------------------------------------------------------------- the table


def first_seed(name: str) -> int | None:
    """The first at which the mistake is noticed."""
    plant, net, _ = FINDINGS[name]
    for seed in range(MOST_SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            found = problems(net, seed)
        if found:
            return seed
    return None


def main() -> int:
    """Look for the seeds that are not right any more."""
    missed = 0
    for name, (_, _, seed) in mutations().items():
        plant, net, _ = FINDINGS[name]
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            if problems(net, seed):
                continue
        now = first_seed(name)
        missed += int(now is None)
        print(f"{name}: {net} {seed} -> {now}")
        if now is not None:
            text = PAGE.read_text("utf-8")
            row = re.compile(rf"^(\| `{name}` \| [\w, ]+ \| \w+ \| )\d+ \|$", re.MULTILINE)
            PAGE.write_text(row.sub(rf"\g<1>{now} |", text), "utf-8")
    return missed


if __name__ == "__main__":
    sys.exit(main())
