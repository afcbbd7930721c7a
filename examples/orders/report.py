"""The figures of a run, as they are written to report.json and shown at the end."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict, dataclass

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .checker import Found
from .landing import Landing
from .plan import Plan
from .timeline import Outcome, Timeline, by_kind


@dataclass(frozen=True)
class KindFigures:
    """One kind of step."""

    transactions: int
    median_s: float
    slowest_s: float


@dataclass(frozen=True)
class Report:
    """All of them."""

    plan: Plan
    workers: int
    rows: dict[str, int]
    rows_moved: int
    """Rows that the files of all steps brought, changed or took away."""
    steps: int
    published_once: int
    """Steps that are in the lake's history exactly once; must be all."""
    seconds: float
    working_seconds: float
    kinds: dict[str, KindFigures]
    rebased: int
    retried: int
    refused: int
    kills: int
    found_done: int
    """Steps that a killed worker had published, recognised by their idempotency key when they were tried again."""
    audits: int
    versions_audited: int
    invariants_checked: int
    problems: list[str]
    tables: dict[str, Found]

    @property
    def lost(self) -> int:
        """Rows that should be there."""
        return sum(found.lost for found in self.tables.values())

    @property
    def duplicated(self) -> int:
        """Rows beyond the first of their key."""
        return sum(found.duplicated for found in self.tables.values())

    @property
    def is_right(self) -> bool:
        """Whether nothing at all went wrong."""
        tables_are_right = all(found.is_right for found in self.tables.values())
        return tables_are_right and not self.problems and self.published_once == self.steps and self.audits > 0

    @property
    def rows_per_s(self) -> float:
        """Through all workers together."""
        return self.rows_moved / self.working_seconds

    def to_dict(self) -> dict[str, object]:
        """For report.json."""
        totals = {"lost": self.lost, "duplicated": self.duplicated, "is_right": self.is_right}
        speed = {
            "rows_per_s": round(self.rows_per_s),
            "transactions_per_s": round(self.steps / self.working_seconds, 2),
        }
        return {**asdict(self), **totals, **speed}


def make_report(
    plan: Plan, timeline: Timeline, tables: dict[str, Found], published: list[str | None], landing: Landing
) -> Report:
    """From what happened, what the checker found, the messages in the lake's history, and the files that came in."""
    times_published = Counter(published)
    kinds = {
        str(kind): KindFigures(
            len(attempts),
            round(statistics.median(each.seconds for each in attempts), 3),
            round(max(each.seconds for each in attempts), 3),
        )
        for kind, attempts in by_kind(timeline.attempts).items()
        if attempts
    }
    return Report(
        plan=plan,
        workers=len(timeline.workers),
        rows={name: found.rows for name, found in tables.items()},
        rows_moved=sum(landing.rows_of(step) for step in plan.steps()),
        steps=len(plan.steps()),
        published_once=sum(times_published[step.name] == 1 for step in plan.steps()),
        seconds=round(timeline.end, 2),
        working_seconds=round(timeline.working_seconds, 2),
        kinds=kinds,
        rebased=timeline.rebased,
        retried=timeline.count(Outcome.RETRIED),
        refused=timeline.count(Outcome.REFUSED),
        kills=timeline.count(Outcome.KILLED),
        found_done=timeline.count(Outcome.FOUND),
        audits=len(timeline.audits),
        versions_audited=len({audit.version for audit in timeline.audits}),
        invariants_checked=sum(audit.checks for audit in timeline.audits),
        problems=timeline.problems,
        tables=tables,
    )


def print_report(console: Console, report: Report) -> None:
    """On the terminal."""
    good = report.is_right
    verdict = "Nothing lost, nothing doubled, every invariant held." if good else "SOMETHING IS WRONG: see below."
    console.print()
    console.print(Panel(Group(_facts(report)), title=verdict, border_style="green" if good else "red", expand=False))
    console.print(_tables(report))
    console.print(_kinds(report))
    for problem in report.problems[:20]:
        console.print(Text(f"An audit found: {problem}", style="red"))


def _facts(report: Report) -> Table:
    facts = Table.grid(padding=(0, 2))
    rows = sum(report.rows.values())
    facts.add_row("rows in the lake", f"{rows:,} in {len(report.rows)} tables")
    facts.add_row(
        "throughput",
        f"{report.rows_per_s:,.0f} rows/s, {report.steps / report.working_seconds:.2f} transactions/s "
        f"over {report.working_seconds:.0f} s, by {report.workers} workers",
    )
    facts.add_row("steps published once", f"{report.published_once} of {report.steps}")
    facts.add_row(
        "conflicts", f"{report.rebased} rebased, {report.retried} retried, {report.refused} refused and done later"
    )
    facts.add_row("workers killed", f"{report.kills}; {report.found_done} of their steps had been published already")
    facts.add_row(
        "audits",
        f"{report.audits} on {report.versions_audited} versions, {report.invariants_checked} invariants checked",
    )
    facts.add_row("invariants broken", str(len(report.problems)))
    return facts


def _tables(report: Report) -> Table:
    shown = Table(title="Every row compared with the plan, by plain pylance", title_justify="left")
    shown.add_column("table")
    for column in ("rows", "lost", "duplicated", "unexpected", "wrong"):
        shown.add_column(column, justify="right")
    for name, found in report.tables.items():
        counts = (found.lost, found.duplicated, found.unexpected, found.wrong)
        cells = [Text(f"{count:,}", style="bold red" if count else "") for count in counts]
        shown.add_row(name, f"{found.rows:,}", *cells)
    return shown


def _kinds(report: Report) -> Table:
    shown = Table(title="Transactions", title_justify="left")
    shown.add_column("kind")
    for column in ("published", "median", "slowest"):
        shown.add_column(column, justify="right")
    for kind, figures in report.kinds.items():
        shown.add_row(kind, str(figures.transactions), f"{figures.median_s:.2f} s", f"{figures.slowest_s:.2f} s")
    return shown
