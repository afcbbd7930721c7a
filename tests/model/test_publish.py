"""The model of the publish protocol: no order of steps breaks an invariant, and each planted bug is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from docs.model.publish_cases import BUGS, FULL, SEARCHED, SMALL
from docs.model.search import Search

pytestmark = pytest.mark.contract("P1", "P3", "P10", "M3", "T17", "H8")


@pytest.mark.parametrize("name", SMALL)
def test_no_order_of_steps_breaks_an_invariant(name: str) -> None:
    found = Search(SMALL[name]).run()
    assert (found.wrong, found.is_complete) == ("", True), "\n".join(found.story)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    case, _ = BUGS[bug]
    found = Search(replace(SEARCHED[case], bug=bug)).run(is_live=False)
    assert found.wrong, f"{found.states} states without a fault"
    assert 1 <= len(found.story) <= 25


@pytest.mark.soak
@pytest.mark.parametrize("name", FULL)
def test_nor_with_three_writers_two_tables_and_a_crash(name: str) -> None:
    found = Search(FULL[name], most=20_000_000).run()
    assert (found.wrong, found.is_complete) == ("", True), "\n".join(found.story)
