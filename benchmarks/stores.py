"""What a commit to a table or a lake through a store costs: PostgreSQL and SQLite beside the conditional put."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import conroi
from benchmarks import contention, lake_stores
from benchmarks.contention import BATCH, IDS_PER_WRITER
from benchmarks.crew import Crew, CrewTurn, Step
from benchmarks.engines import Conroi, renumbered
from benchmarks.harness import Series, Workspace, take_turns
from benchmarks.report import Bar, Report, milliseconds
from benchmarks.together import errors, p99, rate, tell_errors
from tests.support.databases import PostgresServer, postgres, sqlite_address

CONDITIONAL, SQLITE, POSTGRES = "conditional put", "SQLite", "PostgreSQL"
HEADER = ("store", "commits/s", "least to most", "× conditional put", "p50 ms", "p99 ms", "by any process", "errors")

Contender = Callable[[], CrewTurn]


@dataclass(frozen=True)
class Writer:
    """What one writer does: opens the table, appends once to warm up, then appends rows of its own."""

    folder: Path
    store: str | None

    def open(self) -> conroi.Table:
        return conroi.open_table(self.folder / "t", store=self.store)

    def __call__(self, number: int) -> Step:
        table = self.open()
        next_id = (number + 1) * IDS_PER_WRITER

        def append() -> None:
            nonlocal next_id, table
            next_id += BATCH.num_rows
            table = table.append(renumbered(BATCH, next_id))

        append()
        return append


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """One writer, then eight, each on every store in turn."""
    report = Report("stores")
    # As in production: it syncs each transaction to disk, as SQLite does.
    with postgres("fsync=on", "max_connections=300") as server:
        for writers in (1, contention.WRITERS):
            with Crew(writers) as crew:
                contenders = {name: _contender(name, crew, workspace, server, options) for name in _STORES}
                series = take_turns(workspace, contenders, turns=options.turns)
            tell(report, _title(writers, options), series)
            lost = sum(errors(found) for found in series.values())
            report.bars.append(Bar(f"errors that reached one of {writers} writers", lost, 0, at_least=False))
            for name, limit in ((SQLITE, 0.85), (POSTGRES, 0.6)):
                ratio = series[name].ratio_to(series[CONDITIONAL], rate)
                report.bars.append(Bar(f"commits/s through {name} ÷ conditional put, {writers} writers", ratio, limit))
        lake_stores.measure(report, workspace, server, options)
    report.canary_rates = workspace.canary_rates
    return report


_STORES = (CONDITIONAL, SQLITE, POSTGRES)


def _contender(
    name: str, crew: Crew, workspace: Workspace, server: PostgresServer, options: argparse.Namespace
) -> Contender:
    def window() -> CrewTurn:
        folder = workspace.fresh(name.replace(" ", "-"))
        store = {CONDITIONAL: None, SQLITE: sqlite_address(folder), POSTGRES: server.new_address()}[name]
        return run_window(crew, Writer(folder, store), options.seconds)

    return window


def run_window(crew: Crew, writer: Writer, seconds: float) -> CrewTurn:
    """All writers for so long; every commit that was acknowledged is there once, for readers with and without store."""
    conroi.create_table(writer.folder / "t", renumbered(BATCH, 0), store=writer.store)
    found = crew.work([writer] * crew.size, seconds)
    contention.check_rows(Conroi(writer.open()), crew.size, found)
    contention.check_rows(Conroi(conroi.open_table(writer.folder / "t")), crew.size, found)
    return found


def tell(report: Report, title: str, series: Mapping[str, Series[CrewTurn]]) -> None:
    """One row for each store."""
    plain = series[CONDITIONAL]
    report.add(title, HEADER, [_row(name, found, plain) for name, found in series.items()])
    tell_errors(
        report, {name: [text for turn in found.turns for text in turn.errors] for name, found in series.items()}
    )


def _row(name: str, found: Series[CrewTurn], plain: Series[CrewTurn]) -> tuple[str, ...]:
    least_fair = min(found.turns, key=lambda turn: turn.fairness)
    return (
        name,
        f"{found.median(rate):.0f}",
        "{:.0f} to {:.0f}".format(*found.spread(rate)),
        f"{found.ratio_to(plain, rate):.2f}",
        milliseconds(found.median(lambda turn: turn.percentile_s(50))),
        milliseconds(found.median(p99)),
        f"{least_fair.fewest}..{least_fair.most}",
        f"{errors(found)} for {sum(turn.done for turn in found.turns)} commits",
    )


def _title(writers: int, options: argparse.Namespace) -> str:
    who = "one process" if writers == 1 else f"{writers} processes"
    return (
        f"Commits of {BATCH.num_rows} rows by {who} to one table on local disk, windows of {options.seconds:g} s, "
        f"median of {options.turns} turns"
    )
