"""Four processes that change rows of one table at once: other rows of one file, and the same keys."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.crew import Crew, CrewTurn, Step
from benchmarks.engines import SCHEMA, Conroi, Engine, EngineType, Pylance, rows
from benchmarks.harness import Series, Workspace, take_turns
from benchmarks.peers import Delta, Iceberg
from benchmarks.report import Bar, Report
from benchmarks.together import errors, rate, tell

WORKERS = 4
TABLE_ROWS = 100_000
ENGINES: tuple[EngineType, ...] = (Conroi, Pylance, Delta, Iceberg)  # those with a bar are neighbours
DELETED = 10
"""Rows that one delete takes away."""
SHARED = 50
"""Rows of an upsert that all workers bring: so many new ones, and so many that are there."""


@dataclass(frozen=True)
class Deleter:
    """Deletes rows of its own, a few at a time."""

    engine: EngineType
    folder: Path

    def __call__(self, number: int) -> Step:
        table = self.engine.open(self.folder)
        mine = iter(range(number * TABLE_ROWS // WORKERS, (number + 1) * TABLE_ROWS // WORKERS, DELETED))

        def delete() -> None:
            first = next(mine)
            table.delete(first, first + DELETED)

        delete()
        return delete


@dataclass(frozen=True)
class Upserter:
    """Brings rows that the others bring too: the next new ones, and the first of the table."""

    engine: EngineType
    folder: Path

    def __call__(self, number: int) -> Step:
        table = self.engine.open(self.folder)
        step = -1

        def upsert() -> None:
            nonlocal step
            step += 1
            table.upsert(upserted(number, step))

        upsert()
        return upsert


def upserted(worker: int, step: int) -> pa.Table:
    """Rows whose amount says which upsert they come from."""
    new = TABLE_ROWS + step * SHARED
    ids = np.concatenate([np.arange(SHARED), np.arange(new, new + SHARED)])
    amounts = pa.array(np.full(len(ids), step * WORKERS + worker, np.float64))
    return pa.table({"id": pa.array(ids), "amount": amounts, "name": pa.nulls(len(ids), pa.string())}, schema=SCHEMA)


Worker = type[Deleter] | type[Upserter]


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """Deletes, then upserts."""
    report = Report("rows")
    with Crew(WORKERS) as crew:
        deletes = _run(workspace, crew, Deleter, options)
        tell(report, _title(f"Deletes of {DELETED} rows, disjoint, all in one file", options), deletes)
        _add_bars(report, "deletes", deletes)
        upserts = _run(workspace, crew, Upserter, options)
        what = f"Upserts of {SHARED} new and {SHARED} existing rows, the same for all, by a declared key"
        tell(report, _title(what, options), upserts)
        _add_bars(report, "upserts", upserts)
        _tell_duplicates(report, upserts)
        report.canary_rates = workspace.canary_rates
    return report


def _run(workspace: Workspace, crew: Crew, worker: Worker, options: argparse.Namespace) -> dict[str, Series[CrewTurn]]:
    def contender(engine: EngineType) -> Callable[[], CrewTurn]:
        return lambda: _window(workspace.fresh(engine.name), crew, engine, worker, options.seconds)

    engines = ENGINES[:2] if options.quick else ENGINES
    return take_turns(workspace, {engine.name: contender(engine) for engine in engines}, turns=options.turns)


def _window(folder: Path, crew: Crew, engine: EngineType, worker: Worker, seconds: float) -> CrewTurn:
    engine.create(folder, rows(TABLE_ROWS), key="id" if worker is Upserter else None)
    found = crew.work([worker(engine, folder)] * crew.size, seconds)
    check = check_deletes if worker is Deleter else check_upserts
    return replace(found, duplicates=check(engine.open(folder), found))


def check_deletes(table: Engine, found: CrewTurn) -> int:
    """Every delete that was acknowledged is done; one that raised may be done or not."""
    ids = table.read(["id"])["id"]
    least, most = ((WORKERS + found.done + more) * DELETED for more in (0, len(found.errors)))
    if not least <= TABLE_ROWS - len(ids) <= most:
        raise AssertionError(f"{table.name} has {len(ids)} rows left and should have {TABLE_ROWS - least}")
    return len(ids) - len(ids.unique())


def check_upserts(table: Engine, found: CrewTurn) -> int:
    """Every key is there, and the rows that all share come from one upsert; how many are there twice."""
    data = table.read(["id", "amount"])
    ids, amounts = data["id"].to_numpy(), data["amount"].to_numpy()
    keys = len(np.unique(ids))
    least = TABLE_ROWS + SHARED * (1 + max(shift.done for shift in found.shifts))
    most = TABLE_ROWS + SHARED * (1 + max(shift.done + len(shift.errors) for shift in found.shifts))
    if not least <= keys <= most:
        raise AssertionError(f"{table.name} has {keys} keys and should have {least}")
    if len(ids) == keys and len(np.unique(amounts[ids < SHARED])) != 1:
        raise AssertionError(f"{table.name} mixed the rows of several upserts")
    return len(ids) - keys


def _title(what: str, options: argparse.Namespace) -> str:
    windows = f"windows of {options.seconds:g} s, median of {options.turns} turns"
    return f"{what}; {WORKERS} processes, {TABLE_ROWS:,} rows, {windows}"


def _add_bars(report: Report, verb: str, series: dict[str, Series[CrewTurn]]) -> None:
    ours, pylance = series[Conroi.name], series[Pylance.name]
    report.bars += [
        Bar(f"{verb} a second, conroi ÷ pylance", ours.ratio_to(pylance, rate), 1.5),
        Bar(f"errors of conroi's {verb}", errors(ours), 0, at_least=False),
    ]


def _tell_duplicates(report: Report, upserts: dict[str, Series[CrewTurn]]) -> None:
    twice = {name: sum(turn.duplicates for turn in found.turns) for name, found in upserts.items()}
    report.add("Rows too many after those upserts", tuple(twice), [[str(count) for count in twice.values()]])
    report.bars.append(Bar("rows too many after conroi's upserts", twice[Conroi.name], 0, at_least=False))
