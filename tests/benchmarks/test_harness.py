from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness import Series, Turn, Workspace, run_for, run_times, take_turns
from benchmarks.report import Bar, Table


def test_no_folder_is_used_twice_and_none_goes_before_the_end(tmp_path: Path):
    with Workspace(tmp_path) as workspace:
        folders = [workspace.fresh("same") for _ in range(3)]
        workspace.canary()
        assert len(set(folders)) == 3
        assert all(folder.is_dir() for folder in folders)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_a_workspace_goes_with_the_whole_and_not_before(tmp_path: Path):
    with Workspace(tmp_path) as workspace:
        part = workspace.part("appends")
        folder = part.fresh("same")
        part.canary()
        assert workspace.part("deletes").fresh("same") != folder
        assert (len(part.canary_rates), workspace.canary_rates) == (1, [])
        assert folder.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_contenders_take_turns(tmp_path: Path):
    order: list[str] = []

    def contender(name: str) -> Turn:
        order.append(name)
        return Turn([1.0], 1.0)

    with Workspace(tmp_path) as workspace:
        take_turns(workspace, {"a": lambda: contender("a"), "b": lambda: contender("b")}, turns=3)
        assert len(workspace.canary_rates) == 3
    assert order == ["a", "b", "a", "b", "a", "b"]


def test_a_window_ends_after_its_time_and_counts_every_step():
    steps: list[int] = []
    turn = run_for(0.02, lambda: steps.append(1))
    assert len(turn.latencies_s) == len(steps)
    assert turn.elapsed_s >= 0.02
    assert turn.rate == pytest.approx(len(steps) / turn.elapsed_s)


def test_warm_up_steps_do_not_count():
    steps: list[int] = []
    turn = run_times(4, lambda: steps.append(1), warm_up=3)
    assert (len(steps), len(turn.latencies_s)) == (7, 4)


def test_ratios_compare_neighbouring_turns_so_a_drifting_machine_cancels_out():
    mine = Series([Turn([1.0], 1.0), Turn([10.0], 10.0), Turn([100.0], 100.0)])
    theirs = Series([Turn([2.0], 2.0), Turn([20.0], 20.0), Turn([200.0], 200.0)])
    assert theirs.ratio_to(mine, lambda turn: turn.median_s) == 2.0


def test_a_missed_bar_says_so():
    assert str(Bar("twice as fast", 1.9, 2.0)).startswith("MISSED  twice as fast: 1.90 (bar ≥ 2)")
    assert Bar("twice as fast", 2.0, 2.0).is_met
    assert Bar("at most 3", 2.5, 3.0, at_least=False).is_met
    assert not Bar("at most 3", 3.5, 3.0, at_least=False).is_met


def test_tables_are_markdown():
    table = Table("Sizes", ("engine", "ms"), [("conroi", "1.5")])
    assert table.markdown() == "### Sizes\n\n| engine | ms  |\n|--------|-----|\n| conroi | 1.5 |\n"
