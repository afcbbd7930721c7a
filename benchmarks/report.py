"""Tables for people, JSON for later, and whether each bar was met."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("pylance", "deltalake", "pyiceberg", "obstore", "protobuf")


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that must be reached."""

    claim: str
    measured: float
    limit: float
    at_least: bool = True

    @property
    def is_met(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{'met   ' if self.is_met else 'MISSED'}  {self.claim}: {self.measured:.2f} (bar {sign} {self.limit:g})"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        widths = [max(len(row[column]) for row in (self.header, *self.rows)) for column in range(len(self.header))]
        lines = [_row(self.header, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
        return "\n".join([f"### {self.title}", "", *lines, *(_row(row, widths) for row in self.rows), ""])


@dataclass(slots=True)
class Report:
    """What one benchmark found."""

    name: str
    tables: list[Table] = field(default_factory=list[Table])
    bars: list[Bar] = field(default_factory=list[Bar])
    canary_rates: Sequence[float] = ()

    def add(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.tables.append(Table(title, header, rows))

    def markdown(self) -> str:
        return "\n".join(
            [
                f"## {self.name}",
                "",
                f"{datetime.now(UTC):%Y-%m-%d}, {_machine()}. {_canary(self.canary_rates)}",
                "",
                *(table.markdown() for table in self.tables),
                *(f"- {bar}" for bar in self.bars),
                "",
            ]
        )

    def json(self) -> str:
        return json.dumps(
            {
                "name": self.name,
                "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "machine": _machine(),
                "canary_creates_per_s": [round(rate) for rate in self.canary_rates],
                "tables": [{"title": t.title, "header": list(t.header), "rows": list(t.rows)} for t in self.tables],
                "bars": [
                    {"claim": b.claim, "measured": b.measured, "limit": b.limit, "met": b.is_met} for b in self.bars
                ],
            },
            indent=1,
            ensure_ascii=False,
        )

    def save(self, folder: Path) -> None:
        """Write the page and the JSON beside each other."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.md").write_text(self.markdown(), "utf-8")
        (folder / f"{self.name}.json").write_text(self.json() + "\n", "utf-8")


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {system}; {packages}"


def _canary(rates: Sequence[float]) -> str:
    if not rates:
        return ""
    middle, least, most = statistics.median(rates), min(rates), max(rates)
    return f"File creates per second beside the turns: median {middle:,.0f} ({least:,.0f} to {most:,.0f})."
