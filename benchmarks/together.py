"""What benchmarks with several processes tell, in the same columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.crew import CrewTurn
from benchmarks.engines import Pylance
from benchmarks.harness import Series
from benchmarks.report import Report, milliseconds

HEADER = ("engine", "commits/s", "least to most", "× pylance", "p50 ms", "p99 ms", "CPU ms", "by any process", "errors")


def tell(report: Report, title: str, series: Mapping[str, Series[CrewTurn]]) -> None:
    """One row for each engine."""
    pylance = series[Pylance.name]
    report.add(title, HEADER, [_row(name, found, pylance) for name, found in series.items()])
    messages = {name: [text for turn in found.turns for text in turn.errors] for name, found in series.items()}
    tell_errors(report, messages)


def tell_errors(report: Report, messages: Mapping[str, Sequence[str]]) -> None:
    """Which errors reached the users of each engine, those that differ only in numbers and places taken together."""
    kinds = {name: Counter(_kind(text) for text in texts) for name, texts in messages.items()}
    found = [(name, str(times), kind) for name, counted in kinds.items() for kind, times in counted.most_common(3)]
    if found:
        report.add("The errors of these", ("engine", "times", "what"), found)


def _kind(message: str) -> str:
    without_places = re.sub(r"(\w+:/)?/[^\s,:;']+", "…", " ".join(message.split()))
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]+|\d+", "N", without_places)[:160].replace("|", "/")


def _row(name: str, found: Series[CrewTurn], pylance: Series[CrewTurn]) -> Sequence[str]:
    least_fair = min(found.turns, key=lambda turn: turn.fairness)
    return (
        name,
        f"{found.median(rate):.0f}",
        "{:.0f} to {:.0f}".format(*found.spread(rate)),
        f"{found.ratio_to(pylance, rate):.2f}",
        milliseconds(found.median(lambda turn: turn.percentile_s(50))),
        milliseconds(found.median(p99)),
        milliseconds(found.median(lambda turn: turn.cpu_s)),
        f"{least_fair.fewest}..{least_fair.most}",
        f"{errors(found)} for {sum(turn.done for turn in found.turns)} commits",
    )


def rate(turn: CrewTurn) -> float:
    return turn.rate


def p99(turn: CrewTurn) -> float:
    return turn.percentile_s(99)


def errors(found: Series[CrewTurn]) -> int:
    """How many reached a user, over all turns."""
    return sum(len(turn.errors) for turn in found.turns)
