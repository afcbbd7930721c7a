"""A benchmark that would not notice lost rows measures nothing: each check is shown a table that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import compaction, contention
from benchmarks import rows as row_changes
from benchmarks.crew import CrewTurn, Shift
from benchmarks.engines import Conroi, Engine, EngineType, Pylance, renumbered, rows
from benchmarks.peers import Delta, Iceberg
from benchmarks.report import Report
from benchmarks.together import tell_errors
from tests.support.arrow import column_values


def did(*steps: int, errors: int = 0) -> CrewTurn:
    """What workers say who succeeded so many times each."""
    shifts = [Shift(latencies_s=[0.1] * count) for count in steps]
    shifts[0].errors.extend(["lost"] * errors)
    return CrewTurn(shifts, seconds=1.0)


@pytest.mark.parametrize("engine", [Conroi, Pylance, Delta, Iceberg], ids=lambda engine: engine.name)
def test_every_engine_does_what_the_benchmarks_ask(engine: EngineType, tmp_path: Path):
    table = engine.create(tmp_path, rows(100), key="id")
    table.append(rows(10, start=100))
    table.delete(0, 5)
    table.upsert(rows(20, start=100))
    assert engine.open(tmp_path).count() == 115
    assert sorted(column_values(engine.open(tmp_path).read(["id"])["id"])) == list(range(5, 120))


@pytest.mark.parametrize("engine", [Conroi, Pylance, Delta], ids=lambda engine: engine.name)
def test_every_engine_updates_and_compacts_and_says_when_there_is_nothing_to_do(engine: EngineType, tmp_path: Path):
    table = engine.create(tmp_path, rows(10))
    table.append(rows(10, start=10))
    table.add_one(0, 4)
    assert [table.compact(), table.compact()] == [True, False]
    assert sum(column_values(engine.open(tmp_path).read(["amount"])["amount"])) == sum(range(20)) * 0.5 + 4


def test_a_lost_append_is_noticed(tmp_path: Path):
    table = appended(tmp_path, starts=range(0, 500, 100))  # one at creation, two to warm up, two that count
    contention.check_rows(table, 2, did(1, 1))
    contention.check_rows(table, 2, did(1, 0, errors=1))
    with pytest.raises(AssertionError, match="should have 600"):
        contention.check_rows(table, 2, did(2, 1))


def test_an_append_that_is_there_twice_is_noticed(tmp_path: Path):
    table = appended(tmp_path, starts=[0, 100, 200, 200])
    with pytest.raises(AssertionError, match="300 of them different"):
        contention.check_rows(table, 2, did(1, 0))


def appended(folder: Path, starts: range | list[int]) -> Engine:
    table = Pylance.create(folder, renumbered(contention.BATCH, starts[0]))
    for start in starts[1:]:
        table.append(renumbered(contention.BATCH, start))
    return table


def test_a_lost_delete_is_noticed(tmp_path: Path):
    table = Pylance.create(tmp_path, rows(row_changes.TABLE_ROWS))
    table.delete(0, (row_changes.WORKERS + 3) * row_changes.DELETED)
    assert row_changes.check_deletes(table, did(1, 1, 1, 0)) == 0
    with pytest.raises(AssertionError, match="should have"):
        row_changes.check_deletes(table, did(1, 1, 1, 1))


def test_lost_doubled_and_mixed_upserts_are_noticed(tmp_path: Path):
    table = Pylance.create(tmp_path, rows(row_changes.TABLE_ROWS))
    for step in range(3):
        table.upsert(row_changes.upserted(worker=1, step=step))
    assert row_changes.check_upserts(table, did(1, 2, 0, 0)) == 0
    with pytest.raises(AssertionError, match="keys and should have"):
        row_changes.check_upserts(table, did(1, 3, 0, 0))
    table.upsert(row_changes.upserted(worker=0, step=0).slice(0, 10))
    with pytest.raises(AssertionError, match="mixed the rows"):
        row_changes.check_upserts(table, did(1, 2, 0, 0))
    table.append(row_changes.upserted(worker=1, step=2))
    assert row_changes.check_upserts(table, did(1, 2, 0, 0)) == 2 * row_changes.SHARED


def test_a_lost_update_is_noticed(tmp_path: Path):
    table = Pylance.create(tmp_path, rows(compaction.TABLE_ROWS))
    for _ in range(compaction.UPDATERS + 2):
        table.add_one(0, compaction.UPDATED)
    compaction.check_amounts(table, did(1, 1, 0))
    with pytest.raises(AssertionError, match="added 50"):
        compaction.check_amounts(table, did(1, 1, 1))


def test_errors_that_differ_in_numbers_and_places_are_one_kind():
    report = Report("r")
    messages = ["Lost: version 7 of s3://b/x/t and /a/1/t", "Lost: version 8 of s3://b/y/t and /a/2/t"]
    tell_errors(report, {"conroi": messages, "pylance": []})
    assert report.tables[0].rows == [("conroi", "2", "Lost: version N of … and …")]
