"""One large merge in one process: half of the rows update, half are new."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.engines import Conroi, EngineType, Pylance, numbered, rows
from benchmarks.harness import Series, Turn, Workspace, run_times, take_turns
from benchmarks.peers import Delta
from benchmarks.report import Bar, Report

TABLE_ROWS = 5_000_000
SOURCE_ROWS = 500_000
MATCHING = SOURCE_ROWS // 2
# What a writer changes in place must not be shared among the copies of a table; data files are never changed.
LINKED = (".lance", ".parquet")


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """The bar is for a table without a key, the same with a declared key is told beside it."""
    report = Report("merging")
    plain = _compare(workspace, options, key=None)
    _tell(report, "no key declared", plain, options)
    _tell(report, "with a declared key", _compare(workspace, options, key="id"), options)
    ratio = plain[Conroi.name].ratio_to(plain[Pylance.name], _seconds)
    report.bars.append(Bar("seconds of conroi's merge ÷ pylance's", ratio, 1.3, at_least=False))
    report.canary_rates = workspace.canary_rates
    return report


def source() -> pa.Table:
    """Rows in no order, half of them with ids that the table has, from all over it."""
    random = np.random.default_rng(seed=1)
    there = random.choice(TABLE_ROWS, MATCHING, replace=False)
    new = np.arange(TABLE_ROWS, TABLE_ROWS + SOURCE_ROWS - MATCHING)
    return numbered(random.permutation(np.concatenate([there, new])))


def _compare(workspace: Workspace, options: argparse.Namespace, *, key: str | None) -> dict[str, Series[Turn]]:
    engines: tuple[EngineType, ...] = (Conroi, Pylance) if options.quick or key else (Conroi, Pylance, Delta)
    contenders = {engine.name: _merge(workspace, engine, key) for engine in engines}
    return take_turns(workspace, contenders, turns=options.turns)


def _merge(workspace: Workspace, engine: EngineType, key: str | None) -> Callable[[], Turn]:
    template = workspace.fresh(f"{engine.name}-template")
    engine.create(template, rows(TABLE_ROWS), key=key)
    data = source()
    warm = engine.create(workspace.fresh(f"{engine.name}-warm"), rows(1000), key=key)
    warm.upsert(rows(1000, 500))

    def turn() -> Turn:
        table = engine.open(_copy(template, workspace.fresh(engine.name)))
        answers: list[tuple[int, int] | None] = []
        found = run_times(1, lambda: answers.append(table.upsert(data)))
        if answers != [(MATCHING, SOURCE_ROWS - MATCHING)] or table.count() != TABLE_ROWS + SOURCE_ROWS - MATCHING:
            raise AssertionError(f"{engine.name} updated and inserted {answers[0]} rows and has {table.count()}")
        return found

    return turn


def _copy(template: Path, folder: Path) -> Path:
    shutil.copytree(template, folder, copy_function=_link_or_copy, dirs_exist_ok=True)
    return folder


def _link_or_copy(source: str, target: str) -> None:
    (os.link if source.endswith(LINKED) else shutil.copy2)(source, target)


def _tell(report: Report, what: str, series: dict[str, Series[Turn]], options: argparse.Namespace) -> None:
    pylance = series[Pylance.name]
    report.add(
        f"Merge of {SOURCE_ROWS:,} rows into {TABLE_ROWS:,}, half of them matching, {what}, "
        f"median of {options.turns} turns",
        ("engine", "seconds", "least to most", "× pylance"),
        [
            (
                name,
                f"{found.median(_seconds):.2f}",
                "{:.2f} to {:.2f}".format(*found.spread(_seconds)),
                f"{found.ratio_to(pylance, _seconds):.2f}",
            )
            for name, found in series.items()
        ],
    )


def _seconds(turn: Turn) -> float:
    return turn.elapsed_s
