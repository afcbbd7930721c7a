"""Workers on one hot table of a lake: with its insert lock, and with optimistic commits alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import conroi
from benchmarks.contention import BATCH, IDS_PER_WRITER, WRITERS
from benchmarks.crew import Crew, CrewTurn, Step
from benchmarks.engines import renumbered
from benchmarks.harness import Series, Workspace, take_turns
from benchmarks.report import Bar, Report, milliseconds
from benchmarks.together import errors, p99, rate, tell_errors
from tests.support.databases import PostgresServer, postgres

OPTIMISTIC, LOCKED = "optimistic commits alone", "insert lock"
HEADER = ("how", "inserts/s", "least to most", "× optimistic", "p50 ms", "p99 ms", "by any process", "errors")


@dataclass(frozen=True)
class Inserter:
    """What one worker does: it inserts rows of its own, in one commit or in several."""

    folder: Path
    locks: str | None
    pieces: int

    def __call__(self, number: int) -> Step:
        lake = conroi.connect(self.folder, locks=self.locks)
        next_id = (number + 1) * IDS_PER_WRITER
        size = BATCH.num_rows // self.pieces

        def insert() -> None:
            nonlocal next_id
            next_id += BATCH.num_rows
            rows = renumbered(BATCH, next_id)
            if self.locks is not None:
                lake.insert("t", rows, chunk_rows=size if self.pieces > 1 else None)
                return
            table = lake["t"]
            for piece in range(self.pieces):
                table = table.append(rows.slice(piece * size, size))

        insert()
        return insert


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """One worker, then eight: inserts of one commit each, then of ten."""
    report = Report("locks")
    with postgres("fsync=on") as server:
        for workers in (1, WRITERS):
            with Crew(workers) as crew:
                for pieces, limit in ((1, 0.6), (10, 0.5)):
                    _compare(report, workspace, crew, server, pieces, limit, options)
    report.canary_rates = workspace.canary_rates
    return report


def _compare(
    report: Report,
    workspace: Workspace,
    crew: Crew,
    server: PostgresServer,
    pieces: int,
    limit: float,
    options: argparse.Namespace,
) -> None:
    seconds = options.seconds if pieces == 1 else 3 * options.seconds  # ten commits are one insert
    contenders = {name: _contender(name, crew, workspace, server, pieces, seconds) for name in (OPTIMISTIC, LOCKED)}
    series = take_turns(workspace, contenders, turns=options.turns)
    tell(report, _title(crew.size, pieces, seconds, options.turns), series)
    lost = sum(errors(found) for found in series.values())
    ratio = series[LOCKED].ratio_to(series[OPTIMISTIC], rate)
    what = f"{crew.size} workers, {pieces} commits an insert"
    report.bars += [
        Bar(f"inserts/s under the lock ÷ optimistic, {what}", ratio, limit),
        Bar(f"errors that reached a worker, {what}", lost, 0, at_least=False),
    ]


def _contender(
    name: str, crew: Crew, workspace: Workspace, server: PostgresServer, pieces: int, seconds: float
) -> Callable[[], CrewTurn]:
    def window() -> CrewTurn:
        folder = workspace.fresh(name.replace(" ", "-"))
        locks = server.address() if name == LOCKED else None
        lake = conroi.connect(folder, locks=locks)
        lake.create_table("t", renumbered(BATCH, 0), stable_row_ids=True)
        lake.set_locks("none" if locks is None else "postgresql")
        found = crew.work([Inserter(folder, locks, pieces)] * crew.size, seconds)
        # What was there, one insert of each worker before the window, and all that were acknowledged.
        assert lake["t"].count_rows() >= BATCH.num_rows * (1 + crew.size + found.done)
        return found

    return window


def tell(report: Report, title: str, series: Mapping[str, Series[CrewTurn]]) -> None:
    """One row for each way."""
    plain = series[OPTIMISTIC]
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
        f"{errors(found)} for {sum(turn.done for turn in found.turns)} inserts",
    )


def _title(workers: int, pieces: int, seconds: float, turns: int) -> str:
    commits = "one commit" if pieces == 1 else f"{pieces} commits"
    return (
        f"Inserts of {BATCH.num_rows} rows in {commits} by {workers} processes into one table on local disk, "
        f"windows of {seconds:g} s, median of {turns} turns"
    )
