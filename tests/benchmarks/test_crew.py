from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.crew import Crew, CrewTurn, Shift, Step, work_for


@dataclass(frozen=True)
class Mark:
    """A job that leaves a file when it is prepared, and one when it first works."""

    folder: Path

    def __call__(self, number: int) -> Step:
        (self.folder / f"prepared-{number}").touch()

        def step() -> None:
            seen = len(list(self.folder.glob("prepared-*")))
            (self.folder / f"seen-{number}-{seen}-{os.getpid()}").touch()

        return step


@dataclass(frozen=True)
class Unprepared:
    def __call__(self, number: int) -> Step:
        raise ValueError(f"worker {number} finds no table")


def test_no_process_works_before_all_are_prepared_and_the_processes_stay(tmp_path: Path):
    with Crew(2) as crew:
        pids: list[set[str]] = []
        for name in ("first", "second"):
            folder = tmp_path / name
            folder.mkdir()
            turn = crew.work([Mark(folder)] * 2, 0.01)
            assert len(turn.shifts) == 2
            seen = [file.name.split("-") for file in folder.glob("seen-*")]
            assert {(number, prepared) for _, number, prepared, _ in seen} == {("0", "2"), ("1", "2")}
            pids.append({pid for *_, pid in seen})
    assert pids[0] == pids[1]
    assert len(pids[0] - {str(os.getpid())}) == 2


def test_a_worker_that_cannot_start_is_no_figure():
    with Crew(2) as crew, pytest.raises(RuntimeError, match="finds no table"):
        crew.work([Unprepared(), Unprepared()], 0.01)


def test_errors_are_counted_and_do_not_end_the_window():
    answers = iter([None, ValueError("a conflict"), False, None])

    def step() -> object:
        answer = next(answers, None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    shift = work_for(0.01, step)
    assert shift.errors == ["ValueError: a conflict"]
    assert shift.idle == 1
    assert shift.done == shift.in_time or shift.done == shift.in_time + 1
    assert shift.done > 2


def test_a_step_that_ends_after_the_window_counts_as_latency_and_not_as_rate():
    def slow() -> None:
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            pass

    shift = work_for(0.01, slow)
    assert (shift.in_time, shift.done) == (0, 1)
    assert shift.latencies_s[0] >= 0.02


def test_a_turn_adds_up_its_workers():
    fast = Shift(latencies_s=[0.1] * 10, in_time=10)
    slow = Shift(latencies_s=[0.4] * 5, in_time=4, errors=["lost"])
    turn = CrewTurn([fast, slow], seconds=2.0)
    assert turn.rate == 7.0
    assert (turn.fewest, turn.most, turn.fairness) == (4, 10, 0.4)
    assert (turn.done, turn.errors) == (15, ["lost"])
    assert (turn.percentile_s(50), turn.percentile_s(99)) == (0.1, 0.4)


def test_a_turn_without_a_commit_is_not_fair():
    assert CrewTurn([Shift(), Shift()], seconds=1.0).fairness == 0.0
