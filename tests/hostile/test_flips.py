"""A flipped byte in a file that conroi wrote gives the same data or a typed error, and no process dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.flips import run

pytestmark = pytest.mark.contract("I3", "T14")


def test_a_flipped_byte_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    outcomes, bad = run(tmp_path, 150, seed=17)
    assert bad == []
    assert sum(outcomes.values()) == 150
    assert outcomes["refused"] > 20, "nothing is noticed"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_thousands_of_flipped_bytes_are_refused_or_change_nothing(tmp_path: Path, seed: int) -> None:
    outcomes, bad = run(tmp_path, 1000, seed)
    assert bad == []
    assert sum(outcomes.values()) == 1000
