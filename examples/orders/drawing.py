"""The picture of a run, as SVG: one lane for each worker, one for the audits, and how the tables grew.

Colours are classes, so that the page can show it light or dark; every mark has a title for the mouse.
"""

from __future__ import annotations

from html import escape

from .events import Event
from .timeline import Attempt, Outcome, Timeline

WIDTH, LEFT, RIGHT, TOP = 1200, 84, 16, 8
LANE, BAR = 54, 24
AUDIT_LANE = 30


def timeline_svg(timeline: Timeline) -> str:
    """All lanes over one axis of seconds."""
    scale = Scale(timeline.end)
    bottom = TOP + LANE * len(timeline.workers) + AUDIT_LANE
    parts = [_grid(scale, bottom)]
    for number, name in enumerate(timeline.workers):
        top = TOP + LANE * number
        parts.append(f'<text class="lane" x="0" y="{top + 34}">{escape(name)}</text>')
        parts += [_start(scale, top, *times) for who, *times in timeline.starts if who == name]
        parts += [_attempt(scale, top, attempt) for attempt in timeline.attempts if attempt.who == name]
    parts.append(f'<text class="lane" x="0" y="{bottom - 10}">audits</text>')
    parts += [_audit(scale, bottom - 15, audit) for audit in timeline.audits]
    title = "What each worker did when"
    return _svg(WIDTH, bottom + 24, title, "".join(parts), "timeline")


class Scale:
    """Seconds to pixels."""

    def __init__(self, end: float) -> None:
        self.end = max(end, 1.0)

    def x(self, seconds: float) -> float:
        """Where a moment is."""
        return LEFT + seconds / self.end * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> list[int]:
        """Round seconds, about ten of them."""
        step = next(step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3600) if self.end / step <= 12)
        return list(range(0, int(self.end) + 1, step))


def _grid(scale: Scale, bottom: int) -> str:
    lines = "".join(
        f'<line class="grid" x1="{scale.x(t):.1f}" x2="{scale.x(t):.1f}" y1="{TOP}" y2="{bottom}"/>'
        f'<text class="tick" x="{scale.x(t):.1f}" y="{bottom + 16}">{t} s</text>'
        for t in scale.ticks()
    )
    return (
        '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect class="stripe" width="2.5" height="5"/></pattern></defs>{lines}'
    )


def _start(scale: Scale, top: int, begin: float, end: float) -> str:
    x, width = scale.x(begin), max(1, scale.x(end) - scale.x(begin) - 1)
    return (
        f'<rect class="starting" x="{x:.1f}" y="{top + 24}" rx="2" height="{BAR - 12}" width="{width:.1f}">'
        f"<title>starting: {end - begin:.1f} s</title></rect>"
    )


def _attempt(scale: Scale, top: int, attempt: Attempt) -> str:
    """A bar; hatched if nothing came of it. Marks stand above it, the dot of a rebase below."""
    x, end = scale.x(attempt.start), scale.x(attempt.end)
    place = f'x="{x:.1f}" y="{top + 18}" rx="2" width="{max(2.5, end - x - 1):.1f}" height="{BAR}"'
    bar = f'<rect class="{attempt.kind}" {place}/>'
    if attempt.outcome in (Outcome.RETRIED, Outcome.REFUSED, Outcome.KILLED):
        bar += f'<rect fill="url(#hatch)" {place}/>'
    return (
        f'<g class="bar">{bar}{mark(attempt.outcome, end, top + 9)}{_rebased(attempt, end, top)}{_title(attempt)}</g>'
    )


def mark(outcome: Outcome, x: float, y: float) -> str:
    """The sign of how it ended, if it is not simply done."""
    if outcome is Outcome.RETRIED:
        return f'<path class="retried" d="M{x - 5:.1f},{y - 4} h10 l-5,9 z"/>'
    if outcome is Outcome.REFUSED:
        return f'<path class="refused" d="M{x:.1f},{y - 5:.1f} l5,5 l-5,5 l-5,-5 z"/>'
    if outcome is Outcome.KILLED:
        return f'<path class="killed" d="M{x - 5:.1f},{y - 5:.1f} l10,10 m0,-10 l-10,10"/>'
    if outcome is Outcome.FOUND:
        return f'<path class="found" d="M{x - 5:.1f},{y} l4,4 l7,-8"/>'
    return ""


def _rebased(attempt: Attempt, x: float, top: int) -> str:
    return f'<circle class="rebased" cx="{x - 3:.1f}" cy="{top + 47}" r="2.4"/>' if attempt.rebased else ""


def _title(attempt: Attempt) -> str:
    lines = [f"{attempt.step}: {attempt.outcome}", f"{attempt.who}, {attempt.start:.1f} s + {attempt.seconds:.2f} s"]
    if attempt.version:
        lines.append(f"version {attempt.version} of the lake")
    if attempt.rebased:
        lines.append(f"rebased over {attempt.rebased} versions of its tables")
    if attempt.note and attempt.note != "attempt":
        lines.append(attempt.note)
    return f"<title>{escape(chr(10).join(lines))}</title>"


def _audit(scale: Scale, y: float, audit: Event) -> str:
    kind = "bad" if audit.problems else "good"
    told = f"version {audit.version}: {audit.checks} invariants in {audit.seconds:.2f} s"
    title = escape("\n".join([told, *(audit.problems or ["all held"])]))
    return f'<circle class="audit {kind}" cx="{scale.x(audit.at):.1f}" cy="{y}" r="4"><title>{title}</title></circle>'


def growth_svg(timeline: Timeline, table: str) -> str:
    """How many rows a table had, as the audits saw it."""
    width, height, head = 280, 80, 4
    points = [(audit.at, audit.rows[table]) for audit in timeline.audits]
    most = max((rows for _, rows in points), default=0) or 1
    end = max(timeline.end, 1.0)
    spots = [(at / end * width, head + (height - head) * (1 - rows / most)) for at, rows in points]
    path = "".join(f"{'H' if n else 'M'}{x:.1f}{'V' if n else ','}{y:.1f}" for n, (x, y) in enumerate(spots))
    last = f"{points[-1][1]:,}" if points else "0"
    inside = (
        f'<line class="grid" x1="0" x2="{width}" y1="{height}" y2="{height}"/>'
        f'<path class="growth" d="{path}H{width}"><title>{table}: {last} rows in the end</title></path>'
        f'<text x="0" y="{height + 15}">0 s</text>'
        f'<text x="{width}" y="{height + 15}" text-anchor="end">{end:.0f} s</text>'
    )
    return _svg(width, height + 18, f"Rows of {table} over time", inside, "growth-chart")


def _svg(width: int, height: int, title: str, inside: str, name: str) -> str:
    return (
        f'<svg class="{name}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )
