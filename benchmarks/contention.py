"""Eight writers appending to one table at once: how many commits, how long the unlucky wait, who gets how much."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.crew import Crew, CrewTurn, Step
from benchmarks.engines import Conroi, Engine, EngineType, Folder, Pylance, Storage, renumbered, rows
from benchmarks.harness import Series, Workspace, take_turns
from benchmarks.peers import Delta, Iceberg
from benchmarks.report import Bar, Report
from benchmarks.together import errors, p99, rate, tell
from tests.support.servers import S3Server, seaweedfs

WRITERS = 8
BATCH = rows(100)
ENGINES: tuple[EngineType, ...] = (Conroi, Pylance, Delta, Iceberg)  # those with a bar are neighbours
IDS_PER_WRITER = 1_000_000_000

Contender = Callable[[], CrewTurn]


@dataclass(frozen=True)
class Writer:
    """What one writer does: opens the table, appends once to warm up, then appends rows of its own."""

    engine: EngineType
    folder: Folder
    storage: Storage = None

    def __call__(self, number: int) -> Step:
        table = self.engine.open(self.folder, storage=self.storage)
        next_id = (number + 1) * IDS_PER_WRITER

        def append() -> None:
            nonlocal next_id
            next_id += BATCH.num_rows
            table.append(renumbered(BATCH, next_id))

        append()
        return append


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """Writers on local disk, and beside it on an S3 server."""
    report = Report("contention")
    with Crew(WRITERS) as crew:
        engines = ENGINES[:2] if options.quick else ENGINES
        on_disk = {engine.name: _on_disk(crew, workspace, engine, options.seconds) for engine in engines}
        series = take_turns(workspace, on_disk, turns=options.turns)
        tell(report, _title("local disk", options), series)
        _add_bars(report, series[Conroi.name], series[Pylance.name])
        if not options.quick:
            _on_s3(report, workspace, crew, options)
        report.canary_rates = workspace.canary_rates
    return report


def _on_disk(crew: Crew, workspace: Workspace, engine: EngineType, seconds: float) -> Contender:
    return lambda: _window(crew, Writer(engine, workspace.fresh(engine.name)), seconds)


def _on_s3(report: Report, workspace: Workspace, crew: Crew, options: argparse.Namespace) -> None:
    with seaweedfs(workspace.fresh("seaweedfs")) as server:
        contenders = {engine.name: _on_server(crew, server, engine, options.seconds) for engine in (Conroi, Pylance)}
        tell(report, _title("SeaweedFS", options), take_turns(workspace, contenders, turns=options.turns))


def _on_server(crew: Crew, server: S3Server, engine: EngineType, seconds: float) -> Contender:
    return lambda: _window(crew, Writer(engine, server.new_uri("folder"), server.options), seconds)


def _window(crew: Crew, writer: Writer, seconds: float) -> CrewTurn:
    writer.engine.create(writer.folder, renumbered(BATCH, 0), storage=writer.storage)
    found = crew.work([writer] * crew.size, seconds)
    check_rows(writer.engine.open(writer.folder, storage=writer.storage), crew.size, found)
    return found


def check_rows(table: Engine, writers: int, found: CrewTurn) -> None:
    """Every commit that was acknowledged is there once; one that raised may be there or not."""
    ids = table.read(["id"])["id"]
    commits = 1 + writers + found.done
    least, most = commits * BATCH.num_rows, (commits + len(found.errors)) * BATCH.num_rows
    if len(ids.unique()) != len(ids) or not least <= len(ids) <= most:
        raise AssertionError(
            f"{table.name} has {len(ids)} rows, {len(ids.unique())} of them different, and should have {least}"
        )


def _title(place: str, options: argparse.Namespace) -> str:
    windows = f"windows of {options.seconds:g} s, median of {options.turns} turns"
    return f"Commits of 100 rows by {WRITERS} processes to one table on {place}, {windows}"


def _add_bars(report: Report, ours: Series[CrewTurn], pylance: Series[CrewTurn]) -> None:
    fairness = ours.median(lambda turn: turn.fairness)
    report.bars += [
        Bar(f"commits/s of conroi ÷ pylance, {WRITERS} writers", ours.ratio_to(pylance, rate), 3),
        Bar("p99 of conroi ÷ pylance", ours.ratio_to(pylance, p99), 0.2, at_least=False),
        Bar("commits of conroi's slowest writer ÷ its fastest", fairness, 0.5),
        Bar("errors of conroi that reached a writer", errors(ours), 0, at_least=False),
    ]
