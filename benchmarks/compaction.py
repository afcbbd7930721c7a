"""A compactor beside updaters: does it starve, do they fail, or is there room for both?"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from benchmarks.crew import Crew, CrewTurn, Shift, Step
from benchmarks.engines import Conroi, Engine, EngineType, Pylance, rows
from benchmarks.harness import Series, Workspace, take_turns
from benchmarks.peers import Delta
from benchmarks.report import Bar, Report, milliseconds
from benchmarks.together import tell_errors

UPDATERS = 3
TABLE_ROWS = 100_000
FILES = 10
UPDATED = 10
"""Rows that one update changes."""
ENGINES: tuple[EngineType, ...] = (Conroi, Pylance, Delta)


@dataclass(frozen=True)
class Updater:
    """Adds one to rows that no other updater changes, going round and round."""

    engine: EngineType
    folder: Path

    def __call__(self, number: int) -> Step:
        table = self.engine.open(self.folder)
        own = TABLE_ROWS // UPDATERS // UPDATED * UPDATED
        step = -1

        def update() -> None:
            nonlocal step
            step += 1
            first = number * own + step * UPDATED % own
            table.add_one(first, first + UPDATED)

        update()
        return update


@dataclass(frozen=True)
class Compactor:
    """Compacts, over and over."""

    engine: EngineType
    folder: Path

    def __call__(self, number: int) -> Step:
        return self.engine.open(self.folder).compact


@dataclass(frozen=True, slots=True)
class Both:
    """One window, seen from both sides."""

    updates: CrewTurn
    compactions: Shift

    @property
    def attempted(self) -> int:
        return self.compactions.done + len(self.compactions.errors)


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """Updates and compactions in one window."""
    report = Report("compaction")
    with Crew(UPDATERS + 1) as crew:
        contenders = {engine.name: _window(workspace, crew, engine, options.seconds) for engine in ENGINES}
        series = take_turns(workspace, contenders, turns=options.turns)
        report.add(
            f"{UPDATERS} processes updating {UPDATED} rows at a time beside a compactor, {TABLE_ROWS:,} rows, "
            f"windows of {options.seconds:g} s, median of {options.turns} turns",
            ("engine", "updates/s", "p50 ms", "p99 ms", "update errors", "compactions landed", "nothing to do"),
            [_row(name, found) for name, found in series.items()],
        )
        tell_errors(report, {name: _errors(found) for name, found in series.items()})
        landed, attempted = _landed(series[Conroi.name])
        report.bars += [
            Bar("updates of conroi that failed", _update_errors(series[Conroi.name]), 0, at_least=False),
            Bar("share of conroi's compactions that landed", landed / max(1, attempted), 0.8),
        ]
        report.canary_rates = workspace.canary_rates
    return report


def _window(workspace: Workspace, crew: Crew, engine: EngineType, seconds: float) -> Callable[[], Both]:
    def turn() -> Both:
        folder = workspace.fresh(engine.name)
        table = engine.create(folder, rows(TABLE_ROWS // FILES))
        for start in range(TABLE_ROWS // FILES, TABLE_ROWS, TABLE_ROWS // FILES):
            table.append(rows(TABLE_ROWS // FILES, start))
        jobs = [*[Updater(engine, folder)] * UPDATERS, Compactor(engine, folder)]
        *updaters, compactor = crew.work(jobs, seconds).shifts
        found = Both(CrewTurn(updaters, seconds), compactor)
        check_amounts(engine.open(folder), found.updates)
        return found

    return turn


def check_amounts(table: Engine, updates: CrewTurn) -> None:
    """No row is lost or twice, and every update that was acknowledged is there once."""
    data = table.read(["id", "amount"])
    before = rows(TABLE_ROWS)["amount"]
    added = (pc.sum(data["amount"]).as_py() or 0) - (pc.sum(before).as_py() or 0)
    least, most = ((UPDATERS + updates.done + more) * UPDATED for more in (0, len(updates.errors)))
    if not (data.num_rows == len(data["id"].unique()) == TABLE_ROWS and least <= added <= most):
        raise AssertionError(
            f"{table.name} has {data.num_rows} rows and should have {TABLE_ROWS}; added {added}, should be {least}"
        )


def _row(name: str, found: Series[Both]) -> Sequence[str]:
    landed, attempted = _landed(found)
    return (
        name,
        f"{found.median(lambda turn: turn.updates.rate):.0f}",
        milliseconds(found.median(lambda turn: turn.updates.percentile_s(50))),
        milliseconds(found.median(lambda turn: turn.updates.percentile_s(99))),
        f"{_update_errors(found)} for {sum(turn.updates.done for turn in found.turns)} updates",
        f"{landed} of {attempted}",
        str(sum(turn.compactions.idle for turn in found.turns)),
    )


def _landed(found: Series[Both]) -> tuple[int, int]:
    """Over all turns: how many compactions landed, of how many that had something to do."""
    return sum(turn.compactions.done for turn in found.turns), sum(turn.attempted for turn in found.turns)


def _errors(found: Series[Both]) -> list[str]:
    updates = [f"update: {text}" for turn in found.turns for text in turn.updates.errors]
    return updates + [f"compaction: {text}" for turn in found.turns for text in turn.compactions.errors]


def _update_errors(found: Series[Both]) -> int:
    return sum(len(turn.updates.errors) for turn in found.turns)
