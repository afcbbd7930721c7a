"""The page of a run: one HTML file that needs nothing else, neither a network nor a script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from .drawing import growth_svg, mark, timeline_svg
from .plan import Kind
from .report import Report
from .timeline import Outcome, Timeline

KINDS = {
    Kind.LOAD: "load orders, items, customers, totals",
    Kind.CORRECT: "correct orders, items, totals",
    Kind.CANCEL: "cancel orders, with items and totals",
    Kind.CLOSE: "close a day",
    Kind.COMPACT: "compact all tables",
}


def page_of(report: Report, timeline: Timeline) -> str:
    """The whole page."""
    style = (Path(__file__).parent / "page.css").read_text("utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Orders pipeline</title>
<style>
{style}</style>
</head>
<body>
<h1>Orders pipeline</h1>
{_verdict(report)}
<p>{report.workers} Spark workers wrote four tables of one lake at once, each step as one transaction over several
tables, while readers audited it. {report.kills} workers were killed on the way. Seed {report.plan.seed}.</p>
<div class="tiles">{"".join(_tiles(report))}</div>
<h2>Who did what when</h2>
{_legend()}
<div class="card scroll">{timeline_svg(timeline)}</div>
<h2>Rows over time, as the audits saw them</h2>
<div class="growths">{"".join(_growth(report, timeline, table) for table in report.rows)}</div>
<div class="pair">
<section><h2>Every row compared with the plan, by plain pylance</h2><div class="scroll">{_check(report)}</div></section>
<section><h2>Transactions that were published</h2><div class="scroll">{_kinds(report)}</div></section>
</div>
<h2>Every attempt</h2>
<details><summary>{len(timeline.attempts)} attempts of {report.steps} steps</summary>
<div class="scroll">{_attempts(timeline)}</div></details>
</body>
</html>
"""


def _verdict(report: Report) -> str:
    if report.is_right:
        return '<p class="verdict">Nothing lost, nothing doubled, every invariant held.</p>'
    items = "".join(f"<li>{escape(problem)}</li>" for problem in report.problems[:50])
    return f'<p class="verdict bad">Something is wrong; the figures below say what.</p><ul>{items}</ul>'


def _tiles(report: Report) -> Iterable[str]:
    rows = sum(report.rows.values())
    facts: list[tuple[str, str, bool]] = [
        (f"{rows:,}", "rows in four tables", False),
        (f"{report.published_once} of {report.steps}", "steps published once", report.published_once != report.steps),
        (str(report.rebased), "rebased over others", False),
        (str(report.retried), "attempts retried", False),
        (str(report.refused), "refused, done later", False),
        (f"{report.rows_per_s:,.0f}", f"rows a second for {report.working_seconds:.0f} s", False),
        (f"{report.invariants_checked:,}", f"invariants checked in {report.audits} audits", False),
        (str(len(report.problems)), "invariants broken", bool(report.problems)),
        (f"{report.lost:,}", "rows lost", report.lost > 0),
        (f"{report.duplicated:,}", "rows duplicated", report.duplicated > 0),
    ]
    for figure, label, is_bad in facts:
        yield f'<div class="tile{" bad" if is_bad else ""}"><b>{figure}</b><span>{label}</span></div>'


def _legend() -> str:
    def entry(sign: str, text: str) -> str:
        return f'<li><svg viewBox="0 0 18 18" aria-hidden="true">{sign}</svg>{text}</li>'

    bars = [
        entry(f'<rect class="{kind}" x="1" y="3" width="16" height="12" rx="2"/>', text) for kind, text in KINDS.items()
    ]
    marks = [
        entry('<circle class="rebased" cx="9" cy="9" r="3"/>', "rebased over others"),
        entry(mark(Outcome.RETRIED, 9, 9), "overtaken, done again"),
        entry(mark(Outcome.REFUSED, 9, 9), "refused, done later"),
        entry(mark(Outcome.KILLED, 9, 9), "killed with signal 9"),
        entry(mark(Outcome.FOUND, 9, 9), "found to be done already"),
        entry('<rect class="starting" x="1" y="6" width="16" height="6" rx="2"/>', "starting"),
        entry('<circle class="audit good" cx="9" cy="9" r="5"/>', "audit, all held"),
        entry('<circle class="audit bad" cx="9" cy="9" r="5"/>', "not all"),
    ]
    return f'<ul class="legend">{"".join(bars)}</ul><ul class="legend">{"".join(marks)}</ul>'


def _growth(report: Report, timeline: Timeline, table: str) -> str:
    return f'<div class="card"><p>{table} <b>{report.rows[table]:,}</b></p>{growth_svg(timeline, table)}</div>'


def _check(report: Report) -> str:
    rows = [
        [name, f"{found.expected:,}", f"{found.rows:,}", found.lost, found.duplicated, found.unexpected, found.wrong]
        for name, found in report.tables.items()
    ]
    return _table(["table", "planned", "found", "lost", "duplicated", "unexpected", "wrong"], rows, bad_from=3)


def _kinds(report: Report) -> str:
    rows = [[k, f.transactions, f"{f.median_s:.2f} s", f"{f.slowest_s:.2f} s"] for k, f in report.kinds.items()]
    return _table(["kind", "published", "median", "slowest"], rows)


def _attempts(timeline: Timeline) -> str:
    rows = [
        [a.step, a.who, f"{a.start:.1f} s", f"{a.seconds:.2f} s", a.outcome, a.rebased or "", a.version or ""]
        for a in sorted(timeline.attempts, key=lambda a: a.start)
    ]
    return _table(["step", "worker", "began", "took", "outcome", "rebased over", "version of the lake"], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], bad_from: int | None = None) -> str:
    """Numbers other than 0 in the columns from `bad_from` on are shown as bad."""

    def cell(place: int, value: object) -> str:
        is_bad = bad_from is not None and place >= bad_from and bool(value)
        return f"<td{' class=bad' if is_bad else ''}>{escape(str(value))}</td>"

    body = "".join(f"<tr>{''.join(cell(n, value) for n, value in enumerate(row))}</tr>" for row in rows)
    return f"<table><thead><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr></thead><tbody>{body}</tbody></table>"
