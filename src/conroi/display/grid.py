"""Grids of text: a heading, lines and a table, before they are drawn as text or HTML. Pure."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from conroi.errors import visible

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of text under titles."""

    columns: tuple[str, ...] = ()
    """The titles; one that starts with `>` is of numbers, which stand to the right."""
    rows: tuple[Row, ...] = ()
    title: str = ""
    lines: tuple[str, ...] = ()
    """What is said between the title and the rows."""
    empty: str = ""
    """What is said if there are no rows."""

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(title.removeprefix(">") for title in self.columns)

    @property
    def right(self) -> tuple[bool, ...]:
        """Which columns stand to the right."""
        return tuple(title.startswith(">") for title in self.columns)


def grid(columns: str, rows: Iterable[Row], *, title: str = "", lines: Iterable[str] = (), empty: str = "") -> Grid:
    """A grid; `columns` are the titles with | between them."""
    return Grid(tuple(columns.split("|")) if columns else (), tuple(rows), title, tuple(lines), empty)


def to_html(*grids: Grid) -> str:
    """The grids for a notebook; every text is escaped."""
    return visible("".join(_html(each) for each in grids))


def _html(each: Grid) -> str:
    parts = [f"<b>{html.escape(each.title)}</b>" if each.title else ""]
    parts += [f"<div>{html.escape(line)}</div>" for line in each.lines]
    if not each.rows:
        return "".join(parts) + (f"<div>{html.escape(each.empty)}</div>" if each.empty else "")
    aligned = [' style="text-align:right"' if right else ' style="text-align:left"' for right in each.right]
    head = "".join(f"<th{style}>{html.escape(t)}</th>" for t, style in zip(each.titles, aligned, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{style}>{html.escape(cell)}</td>" for cell, style in zip(row, aligned, strict=True))
        + "</tr>"
        for row in each.rows
    )
    return "".join(parts) + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


T = TypeVar("T")


class Listing(list[T]):
    """A list; what it holds, it shows as rows of text."""

    def __init__(self, items: Iterable[T], page: Callable[[Iterable[T]], Grid]) -> None:
        super().__init__(items)
        self._page = page

    def _repr_html_(self) -> str:
        return to_html(self._page(self))
