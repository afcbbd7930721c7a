"""Small appends by one writer: how many a second, and how much a long table costs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.engines import Conroi, ConroiDurable, Engine, EngineType, Pylance, rows
from benchmarks.grown import Grower
from benchmarks.harness import Series, Turn, Workspace, run_for, run_times, take_turns
from benchmarks.peers import Delta, Iceberg
from benchmarks.report import Bar, Report, milliseconds

ALL: tuple[EngineType, ...] = (Conroi, Pylance, ConroiDurable, Delta, Iceberg)  # those with a bar are neighbours
BATCH = rows(100)
FILES = (10, 1_000, 10_000)
FEW, MANY = FILES[0], FILES[-1]
STEPS_PER_TURN = 40
WARM_UP = 5
MEMORY_BAR_MB = 300
# With a new file list in every commit, thousands of files take pyiceberg minutes to set up.
MOST_FILES: dict[EngineType, int] = {Iceberg: 1_000}


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """Everything about appends."""
    report = Report("append")
    _append_rate(report, workspace, seconds=options.seconds, turns=options.turns)
    grower = Grower(workspace)
    _next_append(report, workspace, grower, turns=options.turns)
    _open_and_append(report, workspace, grower, turns=options.turns)
    _open_latest(report, workspace, grower, turns=options.turns)
    _memory(report, grower)
    report.canary_rates = workspace.canary_rates
    return report


def _append_rate(report: Report, workspace: Workspace, *, seconds: float, turns: int) -> None:
    contenders = {engine.name: _appends_for(workspace, engine, seconds) for engine in ALL}
    series = take_turns(workspace, contenders, turns=turns)
    pylance = series[Pylance.name]
    report.add(
        f"Commits of 100 rows, one writer, windows of {seconds:g} s, median of {turns} turns",
        ("engine", "commits/s", "least to most", "× pylance", "p50 ms", "p99 ms"),
        [
            (
                name,
                f"{found.median(_rate):.0f}",
                "{:.0f} to {:.0f}".format(*found.spread(_rate)),
                f"{found.ratio_to(pylance, _rate):.2f}",
                milliseconds(found.median(lambda turn: turn.percentile_s(50))),
                milliseconds(found.median(lambda turn: turn.percentile_s(99))),
            )
            for name, found in series.items()
        ],
    )
    report.bars.append(Bar("commits/s of conroi ÷ pylance", series[Conroi.name].ratio_to(pylance, _rate), 1.5))


def _appends_for(workspace: Workspace, engine: EngineType, seconds: float) -> Callable[[], Turn]:
    def turn() -> Turn:
        table = engine.create(workspace.fresh(engine.name.replace(", ", "-")), BATCH)
        table.append(BATCH)
        found = run_for(seconds, lambda: table.append(BATCH))
        _expect_rows(table, (2 + len(found.latencies_s)) * BATCH.num_rows)
        return found

    return turn


def _next_append(report: Report, workspace: Workspace, grower: Grower, *, turns: int) -> None:
    contenders = {_at(engine, files): _next_appends(grower, engine, files) for engine, files in _sizes(ALL)}
    series = take_turns(workspace, contenders, turns=turns)
    report.add(
        f"The next append of 100 rows to a table of so many files, ms, median of {turns} turns of {STEPS_PER_TURN}",
        ("engine", *(f"{files:,}" for files in FILES)),
        [(engine.name, *_medians(engine, series)) for engine in ALL],
    )
    ours, pylance = series[_at(Conroi, MANY)], series[_at(Pylance, MANY)]
    growth = ours.ratio_to(series[_at(Conroi, FEW)], _latency)
    report.bars.append(Bar(f"conroi's append at {MANY:,} fragments ÷ at {FEW}", growth, 3, at_least=False))
    report.bars.append(Bar(f"pylance's append ÷ conroi's at {MANY:,} fragments", pylance.ratio_to(ours, _latency), 5))


def _next_appends(grower: Grower, engine: EngineType, files: int) -> Callable[[], Turn]:
    def turn() -> Turn:
        table = engine.open(grower.grow(engine, files))
        found = run_times(STEPS_PER_TURN, lambda: table.append(BATCH), warm_up=WARM_UP)
        _expect_rows(table, (files + WARM_UP + STEPS_PER_TURN) * BATCH.num_rows)
        return found

    return turn


def _open_and_append(report: Report, workspace: Workspace, grower: Grower, *, turns: int) -> None:
    engines = (Conroi, Pylance, Delta)
    contenders = {_at(engine, files): _opened_appends(grower, engine, files) for engine, files in _sizes(engines)}
    series = take_turns(workspace, contenders, turns=turns)
    report.add(
        "Opening a table of so many files and appending 100 rows to it, as a job does that runs once, ms",
        ("engine", *(f"{files:,}" for files in FILES)),
        [(engine.name, *_medians(engine, series)) for engine in engines],
    )


def _opened_appends(grower: Grower, engine: EngineType, files: int) -> Callable[[], Turn]:
    def turn() -> Turn:
        folder = grower.grow(engine, files)
        return run_times(STEPS_PER_TURN, lambda: engine.open(folder).append(BATCH), warm_up=WARM_UP)

    return turn


def _open_latest(report: Report, workspace: Workspace, grower: Grower, *, turns: int) -> None:
    engines = (Conroi, Pylance, Delta, Iceberg)
    contenders = {_at(engine, files): _opens(engine, grower.grow(engine, files)) for engine, files in _sizes(engines)}
    series = take_turns(workspace, contenders, turns=turns)
    report.add(
        "Opening the latest version of a table of so many files, ms",
        ("engine", *(f"{files:,}" for files in FILES)),
        [(engine.name, *_medians(engine, series)) for engine in engines],
    )


def _opens(engine: EngineType, folder: Path) -> Callable[[], Turn]:
    return lambda: run_times(STEPS_PER_TURN, lambda: engine.open(folder), warm_up=1)


def _memory(report: Report, grower: Grower) -> None:
    peaks = {engine: _peak_mb(engine, grower.grow(engine, MANY)) for engine in (Conroi, Pylance, Delta)}
    report.add(
        f"Peak memory of a process that opens a table of {MANY:,} files, appends 5 times and counts, MB",
        ("engine", "after imports", "at its peak"),
        [(engine.name, f"{imported:.0f}", f"{peak:.0f}") for engine, (imported, peak) in peaks.items()],
    )
    report.bars.append(Bar(f"MB at {MANY:,} fragments", peaks[Conroi][1], MEMORY_BAR_MB, at_least=False))


def _peak_mb(engine: EngineType, folder: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.memory", engine.name, str(folder)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    imported, peak = printed.split()
    return float(imported), float(peak)


def _sizes(engines: Sequence[EngineType]) -> list[tuple[EngineType, int]]:
    """Every engine at every size that it reaches in a bearable time."""
    return [(engine, files) for files in FILES for engine in engines if files <= MOST_FILES.get(engine, MANY)]


def _at(engine: EngineType, files: int) -> str:
    return f"{engine.name} at {files}"


def _medians(engine: EngineType, series: Mapping[str, Series[Turn]]) -> list[str]:
    names = [_at(engine, files) for files in FILES]
    return [milliseconds(series[name].median(_latency)) if name in series else "–" for name in names]


def _expect_rows(table: Engine, expected: int) -> None:
    """A fast commit that lost rows is not fast."""
    if (actual := table.count()) != expected:
        raise AssertionError(f"{type(table).name} has {actual} rows and should have {expected}")


def _rate(turn: Turn) -> float:
    return turn.rate


def _latency(turn: Turn) -> float:
    return turn.median_s
