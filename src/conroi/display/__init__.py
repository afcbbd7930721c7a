"""Text views of a lake, for the command line and notebooks: grids of text, drawn as text or HTML. Pure."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from conroi.errors import visible

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_LIST_ITEMS = 4
_BLANKS = {9: " ", 10: " ", 13: " "}


def moment(when: datetime | None) -> str:
    """To the second, in UTC."""
    return "" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def number(value: int | None) -> str:
    """With commas; a question mark if it is not known."""
    return "?" if value is None else f"{value:,}"


def size(count: int | None) -> str:
    """Bytes in the unit that suits them."""
    if count is None:
        return "?"
    value = float(count)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def plural(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def changed_rows(added: int | None, removed: int | None) -> str:
    """`+3 −1`, or nothing if nothing was."""
    if added is None or removed is None:
        return "?"
    return " ".join([f"+{added:,}"] * bool(added) + [f"−{removed:,}"] * bool(removed))


def key_text(row: Mapping[str, object]) -> str:
    """A key as `a=1, b=x`."""
    return ", ".join(f"{plain(name)}={plain(str(item))}" for name, item in row.items())


def plain(text: str) -> str:
    """On one line, and without what would steer a terminal."""
    return visible(text.translate(_BLANKS))


def value(item: object, longest: int = 60) -> str:
    """One value of a row, short enough for a table."""
    text = _text(item)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _text(item: object) -> str:
    if item is None:
        return "null"
    if isinstance(item, str):
        return plain(item)
    if isinstance(item, bytes):
        return f"{item[:8].hex()}{'…' if len(item) > 8 else ''} ({len(item):,} B)"
    if isinstance(item, float):
        return f"{item:.6g}" if abs(item) < 1e6 else repr(item)
    if isinstance(item, Mapping):
        return "{" + ", ".join(f"{plain(str(key))}: {_text(each)}" for key, each in item.items()) + "}"
    if isinstance(item, Sequence):
        shown = ", ".join(_text(each) for each in item[:_LIST_ITEMS])
        return f"[{shown}, … {len(item):,}]" if len(item) > _LIST_ITEMS else f"[{shown}]"
    return plain(str(item))


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
