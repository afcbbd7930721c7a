"""Lakes in a SQL store beside those with a `__manifest`: writers of the same tables, and of different ones."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import conroi
from benchmarks.contention import BATCH, WRITERS
from benchmarks.crew import Crew, CrewTurn, Step
from benchmarks.harness import Series, Workspace, take_turns
from benchmarks.lakes import TABLES, ConroiLake
from benchmarks.report import Bar, Report, milliseconds
from benchmarks.together import errors, p99, rate, tell_errors
from tests.support.databases import PostgresServer, sqlite_address

MANIFEST, SQLITE, POSTGRES = "__manifest", "SQLite", "PostgreSQL"
STORES = (MANIFEST, SQLITE, POSTGRES)
HEADER = (
    "history",
    "transactions/s",
    "× __manifest",
    "p50 ms",
    "p99 ms",
    "CPU ms",
    "by any process",
    "retries",
    "errors",
)
NO_SLOWER_THAN = {SQLITE: 1.17, POSTGRES: 0.92}
"""What lakes in these stores reached beside a `__manifest` when each of them compared the head."""
THREADS = 10
LEAST_SECONDS = 5.0
"""Windows of a hundred writers: one step of a process is ten commits."""
RETRIES = "retries"


@dataclass(frozen=True)
class SameTables:
    """A writer that appends to three tables in each transaction."""

    folder: Path
    store: str

    def __call__(self, number: int) -> Step:  # all do the same
        lake = ConroiLake(self.folder, BATCH.schema, self.store)
        lake.open()
        lake.append(BATCH)
        return lambda: lake.append(BATCH)


@dataclass(frozen=True)
class OwnTables:
    """Writers that are threads, each a client of its own with a table of its own; a step is one commit of each.

    A commit that needed more than one attempt leaves a file, so that retries are counted.
    """

    folder: Path
    store: str
    threads: int

    def __call__(self, number: int) -> Step:
        clients = [conroi.connect(self.folder, store=self.store or None) for _ in range(self.threads)]
        pool = ThreadPoolExecutor(self.threads)

        def append(thread: int) -> None:
            with clients[thread].begin() as tx:
                tx[f"t{number * self.threads + thread}"].append(BATCH)
            for _ in range(1, tx.result.attempts):
                (self.folder / RETRIES / uuid.uuid4().hex).touch()

        def step() -> None:
            list(pool.map(append, range(self.threads)))

        step()
        return step


def measure(report: Report, workspace: Workspace, server: PostgresServer, options: argparse.Namespace) -> None:
    """One writer and eight of the same tables, then 10 and 100 of different ones."""
    for writers in (1, WRITERS):
        with Crew(writers) as crew:
            contenders = {name: _window(crew, workspace, server, name, 0, options.seconds) for name in STORES}
            series = take_turns(workspace, contenders, turns=options.turns)
        who = "1 writer" if writers == 1 else f"{writers} writers"
        what = f"100 rows into each of the same 3 tables of a lake, {who}"
        _tell(report, what, series, options.seconds, options.turns)
        for name, limit in NO_SLOWER_THAN.items():
            ratio = series[name].ratio_to(series[MANIFEST], rate)
            report.bars.append(Bar(f"lake in {name} ÷ lake with __manifest, {who}", ratio, limit))
    seconds = max(options.seconds, LEAST_SECONDS)
    with Crew(THREADS) as crew:
        for threads in (1, THREADS):
            contenders = {
                name: _window(crew, workspace, server, name, threads, seconds) for name in (MANIFEST, POSTGRES)
            }
            series = take_turns(workspace, contenders, turns=options.turns)
            who = f"{THREADS * threads} writers of different tables"
            what = f"100 rows into a table of their own, {who}; a step is {threads} commits"
            _tell(report, what, series, seconds, options.turns)
            retries = sum(turn.duplicates for turn in series[POSTGRES].turns)
            report.bars += [
                Bar(f"retries in PostgreSQL, {who}", retries, 0, at_least=False),
                Bar(f"errors in PostgreSQL, {who}", errors(series[POSTGRES]), 0, at_least=False),
            ]


def _window(
    crew: Crew, workspace: Workspace, server: PostgresServer, name: str, threads: int, seconds: float
) -> Callable[[], CrewTurn]:
    """A window of writers of the same tables, or (threads > 0) of threads with tables of their own."""

    def window() -> CrewTurn:
        folder = workspace.fresh(f"lake-{name}")
        store = {MANIFEST: "", SQLITE: sqlite_address(folder), POSTGRES: server.new_address()}[name]
        if not threads:
            ConroiLake(folder, BATCH.schema, store).create()
            found = crew.work([SameTables(folder, store)] * crew.size, seconds)
            return _checked(found, folder, store, TABLES, len(TABLES))
        names = [f"t{number}" for number in range(crew.size * threads)]
        with conroi.connect(folder, store=store or None).begin("create") as tx:
            for each in names:
                tx.create_table(each, BATCH.schema)
        (folder / RETRIES).mkdir()
        found = crew.work([OwnTables(folder, store, threads)] * crew.size, seconds)
        found = CrewTurn(found.shifts, found.seconds, len(list((folder / RETRIES).iterdir())))
        return _checked(found, folder, store, names, threads)

    return window


def _checked(found: CrewTurn, folder: Path, store: str, names: Sequence[str], per_step: int) -> CrewTurn:
    """All batches that were acknowledged are there, for readers with and without the store."""
    least = (len(found.shifts) + found.done) * per_step * BATCH.num_rows
    for lake in (conroi.connect(folder, store=store or None), conroi.connect(folder)):
        there = sum(lake[name].count_rows() for name in names)
        if there < least:
            raise AssertionError(f"{there} rows, and {least} were acknowledged")
    return found


def _tell(report: Report, title: str, series: Mapping[str, Series[CrewTurn]], seconds: float, turns: int) -> None:
    windows = f"windows of {seconds:g} s, median of {turns} turns"
    plain = series[MANIFEST]
    report.add(f"{title}, {windows}", HEADER, [_row(name, found, plain) for name, found in series.items()])
    tell_errors(report, {name: [t for turn in found.turns for t in turn.errors] for name, found in series.items()})


def _row(name: str, found: Series[CrewTurn], plain: Series[CrewTurn]) -> tuple[str, ...]:
    least_fair = min(found.turns, key=lambda turn: turn.fairness)
    return (
        name,
        f"{found.median(rate):.0f}",
        f"{found.ratio_to(plain, rate):.2f}" if all(map(rate, plain.turns)) else "",
        milliseconds(found.median(lambda turn: turn.percentile_s(50))),
        milliseconds(found.median(p99)),
        milliseconds(found.median(lambda turn: turn.cpu_s)),
        f"{least_fair.fewest}..{least_fair.most}",
        str(sum(turn.duplicates for turn in found.turns)),
        f"{errors(found)} for {sum(turn.done for turn in found.turns)}",
    )
