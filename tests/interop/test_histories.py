"""Random histories of verbs of both writers: after every step both readers see what a plain model says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.histories import History, run_history
from tests.interop.history_facts import Effect
from tests.interop.model import Where
from tests.interop.readers import rows_of
from tests.support.sampling import seeds_of_the_day

pytestmark = pytest.mark.contract("T5", "T10")

STEPS = 15
GIVEN_SEED = os.environ.get("CONROI_HISTORY_SEED")
"""Set it to the seed that a failure names, to see that failure again."""
FIRST_SEED = int(GIVEN_SEED or "20260")
HISTORIES = 8
SEEDS = range(FIRST_SEED, FIRST_SEED + HISTORIES) if GIVEN_SEED else seeds_of_the_day("interop", FIRST_SEED, HISTORIES)
LONG_HISTORIES = int(os.environ.get("CONROI_HISTORIES", "1500"))


@pytest.mark.parametrize("seed", SEEDS)
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


@pytest.mark.parametrize("by", ["conroi", "pylance"])
def test_a_row_that_goes_missing_comes_back_or_changes_unseen_is_noticed(tmp_path: Path, by: str) -> None:
    """The control: what is done behind the model's back, the next check finds, and says how to see it again."""

    def behind_its_back(sql: str, where: str | None) -> None:
        if by == "conroi":
            history.table.delete(sql) if where is None else history.table.update({"v": sql}, where)
        else:
            history.dataset.delete(sql) if where is None else history.dataset.update({"v": sql}, where)

    for number, (sql, where) in enumerate([("id = 1", None), ("v + 0", "id = 1"), ("v + 1", "id = 1")]):
        history = seeded(tmp_path / f"table{number}")
        behind_its_back(sql, where)
        with pytest.raises(AssertionError, match=f"seed={history.seed}"):
            history.check(Effect())
    history = seeded(tmp_path / "lost")
    version = history.table.version
    behind_its_back("id = 1", None)
    history.model.delete(Where("", lambda row: row["id"] == 1))
    history.check(Effect())
    history.table.restore(version)
    with pytest.raises(AssertionError, match=f"seed={history.seed}"):
        history.check(Effect())


def seeded(root: Path) -> History:
    """A table with stable row ids that has rows."""
    history = next(
        made for seed in range(100) if (made := History(root.with_name(f"{root.name}-{seed}"), seed)).has_row_ids
    )
    history.check(history.append(by_us=True))
    history.check(history.append(by_us=True))
    return history


def test_a_history_is_made_from_its_seed_alone(tmp_path: Path) -> None:
    again = [run_history(tmp_path / f"table{number}", FIRST_SEED, 8) for number in range(2)]
    assert again[0].done == again[1].done
    assert again[0].model.rows == again[1].model.rows
