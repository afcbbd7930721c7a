"""Three tables in one commit: how many a second, beside engines that can do it, and what a long history costs."""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import conroi
from benchmarks.crew import Crew, CrewTurn, Step, work_for
from benchmarks.engines import rows
from benchmarks.harness import Series, Workspace, run_times, take_turns
from benchmarks.lakes import TABLES, ConroiLake, DuckDb, DuckLake, Lakes, PylanceThrice
from benchmarks.report import Bar, Report, milliseconds
from benchmarks.together import errors, p99, rate, tell_errors
from tests.support.databases import postgres

BATCH = rows(100)
LakesType = type[ConroiLake] | type[PylanceThrice] | type[DuckLake] | type[DuckDb]
ENGINES: tuple[LakesType, ...] = (ConroiLake, PylanceThrice, DuckLake)
MANY_TABLES = 10_000


@dataclass(frozen=True)
class Writer:
    """What one writer does: opens the lake, commits once to warm up, then commits again and again."""

    engine: LakesType
    folder: Path
    catalog: str

    def make(self) -> Lakes:
        return self.engine(self.folder, BATCH.schema, self.catalog)

    def __call__(self, number: int) -> Step:  # all do the same
        lakes = self.make()
        lakes.open()
        lakes.append(BATCH)
        return lambda: lakes.append(BATCH)


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """Writers on three tables, then what versions and tables cost."""
    report = Report("lake")
    with postgres("fsync=on") as server:
        for writers in (1, 4):
            with Crew(writers) as crew:
                _rates(report, workspace, crew, server.new_database, options)
    _history(report, workspace, 1_000 if options.quick else 10_000)
    _many_tables(report, workspace, 1_000 if options.quick else MANY_TABLES)
    report.canary_rates = workspace.canary_rates
    return report


def _rates(
    report: Report, workspace: Workspace, crew: Crew, new_catalog: Callable[[], str], options: argparse.Namespace
) -> None:
    contenders: dict[str, Callable[[], CrewTurn]] = {}
    for engine in ENGINES:
        contenders[engine.name] = _window(crew, engine, workspace, new_catalog, options.seconds)
    contenders[DuckDb.name] = lambda: _threads(workspace, crew.size, options.seconds)
    series = take_turns(workspace, contenders, turns=options.turns)
    header = ("engine", "atomic", "transactions/s", "× pylance", "p50 ms", "p99 ms", "by any writer", "errors")
    pylance = series[PylanceThrice.name]
    is_atomic = {engine.name: engine.is_atomic for engine in (*ENGINES, DuckDb)}
    table = [_row(name, found, pylance, is_atomic=is_atomic[name]) for name, found in series.items()]
    windows = f"windows of {options.seconds:g} s, median of {options.turns} turns"
    report.add(f"100 rows into each of 3 tables, {crew.size} writers, {windows}", header, table)
    tell_errors(report, {name: [t for turn in found.turns for t in turn.errors] for name, found in series.items()})
    ours = series[ConroiLake.name]
    who = "1 writer" if crew.size == 1 else f"{crew.size} writers"
    report.bars += [
        Bar(f"3-table transactions/s of conroi ÷ pylance's 3 commits, {who}", ours.ratio_to(pylance, rate), 1),
        Bar(
            f"3-table transactions/s of conroi ÷ DuckLake, {who}",
            ours.ratio_to(series[DuckLake.name], rate),
            3 if crew.size == 1 else 5,
        ),
        Bar(f"errors of conroi that reached a writer, {who}", errors(ours), 0, at_least=False),
    ]


def _row(
    name: str, found: Series[CrewTurn], pylance: Series[CrewTurn], *, is_atomic: bool
) -> tuple[str, str, str, str, str, str, str, str]:
    least_fair = min(found.turns, key=lambda turn: turn.fairness)
    return (
        name,
        "yes" if is_atomic else "no",
        f"{found.median(rate):.0f}",
        f"{found.ratio_to(pylance, rate):.2f}",
        milliseconds(found.median(lambda turn: turn.percentile_s(50))),
        milliseconds(found.median(p99)),
        f"{least_fair.fewest}..{least_fair.most}",
        f"{errors(found)} for {sum(turn.done for turn in found.turns)}",
    )


def _window(
    crew: Crew, engine: LakesType, workspace: Workspace, new_catalog: Callable[[], str], seconds: float
) -> Callable[[], CrewTurn]:
    def window() -> CrewTurn:
        catalog = new_catalog() if engine is DuckLake else ""
        writer = Writer(engine, workspace.fresh(engine.name.partition(",")[0].replace(" ", "-")), catalog)
        writer.make().create()
        found = crew.work([writer] * crew.size, seconds)
        lakes = writer.make()
        lakes.open()
        check_rows(lakes, crew.size, found)
        return found

    return window


def check_rows(lakes: Lakes, writers: int, found: CrewTurn) -> None:
    """Every acknowledged commit is there, in all tables alike; one that raised may be there or not."""
    counts = lakes.count()
    least = (writers + found.done) * BATCH.num_rows
    most = least + len(found.errors) * BATCH.num_rows
    if any(not least <= count <= most for count in counts) or (lakes.is_atomic and len(set(counts)) > 1):
        raise AssertionError(f"{lakes.name} has {counts} rows, and should have {least} to {most} in each table")


def _threads(workspace: Workspace, writers: int, seconds: float) -> CrewTurn:
    lakes = DuckDb(workspace.fresh("duckdb"), BATCH.schema, "")
    lakes.create()
    with ThreadPoolExecutor(writers) as pool:
        futures = [pool.submit(work_for, seconds, lambda: lakes.append(BATCH)) for _ in range(writers)]
        shifts = [future.result() for future in futures]
    return CrewTurn(shifts, seconds)


def _history(report: Report, workspace: Workspace, many: int) -> None:
    """Begin and commit early and late in a lake's life: one row into one table, whose own manifest stays small."""
    lake = conroi.connect(workspace.fresh("history"))
    small = pa.table({"id": [1]})
    lake.create_table("hot", small.schema)
    fresh = workspace.fresh("history-short")
    short = conroi.connect(fresh)
    short.create_table("hot", small.schema)

    def step(which: conroi.Lake) -> Callable[[], object]:
        def once() -> None:
            with which.begin() as tx:
                tx["hot"].overwrite(small, if_moved="win")

        return once

    run_times(10, step(short))
    with _progress(many):
        run_times(many, step(lake))
    turns = [(run_times(100, step(lake), warm_up=5), run_times(100, step(short), warm_up=5)) for _ in range(5)]
    ratios = [late.median_s / early.median_s for late, early in turns]
    late, early = turns[-1]
    report.add(
        "Begin and commit of one table",
        ("lake versions", "median ms"),
        [(str(short.version), milliseconds(early.median_s)), (str(lake.version), milliseconds(late.median_s))],
    )
    bar = f"begin + commit at {many:,} lake versions ÷ at a few hundred"
    report.bars.append(Bar(bar, statistics.median(ratios), 1.3, at_least=False))


@contextlib.contextmanager
def _progress(many: int) -> Generator[None]:
    print(f"making {many:,} versions of a lake …", flush=True)
    yield


def _many_tables(report: Report, workspace: Workspace, many: int) -> None:
    """What a lake costs that has very many tables."""
    folder = workspace.fresh("tables")
    lake = conroi.connect(folder)
    small = pa.table({"id": [1]})
    print(f"making {many:,} tables …", flush=True)
    for start in range(0, many, 500):
        with lake.begin() as tx:
            for number in range(start, min(start + 500, many)):
                tx.create_table(f"t{number}", small)

    def commit() -> None:
        lake["t7"].append(small)

    def scattered() -> None:
        nonlocal turn
        turn += 1
        lake[f"t{(turn * 7919) % many}"].append(small)

    turn = 0
    opened = run_times(5, lambda: conroi.connect(folder).tables())
    listed = run_times(20, lambda: lake.tables())
    one, spread = run_times(100, commit, warm_up=5), run_times(200, scattered, warm_up=5)
    few = conroi.connect(workspace.fresh("few-tables"))
    for name in TABLES:
        few.create_table(name, small)
    beside = run_times(100, lambda: few["t0"].append(small), warm_up=5)
    report.add(
        f"A lake with {many:,} tables",
        ("what", "median ms"),
        [
            ("open and list all names", milliseconds(opened.median_s)),
            ("list again", milliseconds(listed.median_s)),
            ("append to one table", milliseconds(one.median_s)),
            ("append to one of all tables at random", milliseconds(spread.median_s)),
            ("for comparison: append in a lake with 3 tables", milliseconds(beside.median_s)),
        ],
    )
