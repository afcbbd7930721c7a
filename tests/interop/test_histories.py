"""Random histories of verbs of both writers: after every step both readers see what a plain model says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.histories import run_history
from tests.interop.readers import rows_of

pytestmark = pytest.mark.contract("T5", "T10")

STEPS = 15
FIRST_SEED = int(os.environ.get("CONROI_HISTORY_SEED", "20260"))
"""Set it to the seed that a failure names, to see that failure again."""
HISTORIES = 48
LONG_HISTORIES = int(os.environ.get("CONROI_HISTORIES", "1500"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + HISTORIES))
def test_both_readers_follow_the_model_through_a_random_history(tmp_path: Path, seed: int) -> None:
    history = run_history(tmp_path / "table", seed, STEPS)
    for version, past in history.past.items():
        assert rows_of(history.table.at(version).to_arrow()) == past.model.sorted_rows(), (seed, version)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(LONG_HISTORIES // 50))
def test_both_readers_follow_the_model_through_many_longer_histories(tmp_path: Path, block: int) -> None:
    first = FIRST_SEED + 1000 + 50 * block
    for seed in range(first, first + 50):
        run_history(tmp_path / f"table{seed}", seed, 2 * STEPS)


def test_a_history_is_made_from_its_seed_alone(tmp_path: Path) -> None:
    again = [run_history(tmp_path / f"table{number}", FIRST_SEED, 8) for number in range(2)]
    assert again[0].done == again[1].done
    assert again[0].model.rows == again[1].model.rows
