"""The benchmark of stores writes through the store it names, and would notice rows that are lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import conroi
from benchmarks import stores
from benchmarks.__main__ import BENCHMARKS
from benchmarks.crew import CrewTurn, Prepare, Shift
from benchmarks.harness import Series
from benchmarks.report import Report
from conroi.versions import open_records
from tests.support.databases import sqlite_address


class OneWorker:
    """A crew of one in this process, who does two steps and says how many it did."""

    size = 1

    def __init__(self, says: int) -> None:
        self._says = says

    def work(self, jobs: Sequence[Prepare], seconds: float) -> CrewTurn:
        step = jobs[0](0)
        for _ in range(2):
            step()
        return CrewTurn([Shift(latencies_s=[0.1] * self._says, in_time=self._says)], seconds)


def test_it_is_one_of_the_benchmarks():
    assert "stores" in BENCHMARKS


def test_the_writers_go_through_the_store_and_lost_rows_are_noticed(tmp_path: Path):
    address = sqlite_address(tmp_path)
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()
    stores.run_window(OneWorker(says=2), stores.Writer(tmp_path / "right", address), 1.0)  # type: ignore[arg-type]
    records = open_records(address)
    key = records.key_of(conroi.open_table(tmp_path / "right" / "t")._files.objects)
    assert [record.version for record in records.all(key)] == [1, 2, 3, 4], "created, warmed up, and two that count"
    with pytest.raises(AssertionError, match="should have 500"):
        stores.run_window(OneWorker(says=3), stores.Writer(tmp_path / "wrong", address), 1.0)  # type: ignore[arg-type]


def test_the_report_says_how_many_times_as_fast_as_the_conditional_put():
    report = Report("r")
    turns = {name: CrewTurn([Shift([0.1] * done, done)], 1.0) for name, done in [("conditional put", 8), ("SQLite", 2)]}
    stores.tell(report, "t", {name: Series([turn]) for name, turn in turns.items()})
    assert [(row[0], row[1], row[3]) for row in report.tables[0].rows] == [
        ("conditional put", "8", "1.00"), ("SQLite", "2", "0.25")
    ]  # fmt: skip
