"""Output of the command line: text for people, or JSON for programs."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from conroi.display import Grid, Row
from conroi.display.pages import rows_page
from conroi.errors import UNSEEN, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

FOLDED = 20
"""A sentence is folded to no less than this before names are."""
NARROWEST = 10
"""So many letters of a line a column needs to be of any use."""
PROSE = ("message", "tables", "why", "finding", "detail", "hint")
"""Columns of sentences, which are the first to go on in the next line."""
WHOLE = ("time", "created", "since", "version")
"""Columns that are of no use in pieces; so are numbers."""
VALUE = 60
"""So many letters of a value are shown, and more on a terminal that is wider."""
UNLIMITED = 100_000
"""The width of a line that goes into a file or another program, which nothing needs to fit into."""


class Output:
    """What a command says."""

    def __init__(self, *, as_json: bool, is_quiet: bool = False) -> None:
        self.as_json = as_json
        self.is_quiet = is_quiet
        """Whether remarks and progress are left out."""

    # ------------------------------------------------------------------------ for people

    @cached_property
    def console(self) -> Console:
        """The screen; colours only if it is one."""
        from rich.console import Console

        width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else UNLIMITED
        return Console(width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)

    def line(self, text: str = "", style: str | None = None) -> None:
        """One line of text."""
        self.console.print(visible(text), style=style, soft_wrap=True)

    def prose(self, text: str, indent: int = 0, style: str = "") -> None:
        """A sentence, in as many lines as it needs."""
        from rich.padding import Padding
        from rich.text import Text

        self._draw(Padding(Text(visible(text), style=style), (0, 0, 0, indent), expand=False))

    def height(self, text: str, indent: int = 0) -> int:
        """How many lines a sentence takes on this screen."""
        from rich.text import Text

        width = max(1, self.console.width - indent)
        return len(Text(visible(text)).wrap(self.console, width))

    def aligned(self, rows: Sequence[Row], prefix: str, widths: Sequence[int]) -> None:
        """Rows in columns of these widths behind a prefix; what is longer goes on in the next line."""
        for row in rows:
            for line in folded([visible(cell, lines=False) for cell in row], widths):
                self.line(f"{prefix}{line}".rstrip())

    def hanging(self, text: str, first: str = "", then: str = "    ", style: str | None = None) -> None:
        """A line that goes on below, behind other letters, if it is longer than the screen."""
        from rich.text import Text

        shown = visible(text)
        width = max(NARROWEST, self.console.width - max(len(first), len(then)))
        for number, part in enumerate(Text(shown).wrap(self.console, width)):
            self.line(f"{then if number else first}{part.plain.rstrip()}", style=style)

    def _draw(self, what: Any) -> None:
        with self.console.capture() as drawn:
            self.console.print(what)
        text = drawn.get()
        if not self.console.is_terminal:  # the blanks that fill a line up are of no use in a file
            text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
        print(text, end="")  # noqa: T201

    def grid(self, grid: Grid, *, indent: int = 0, with_titles: bool = True, cuts: bool = False) -> None:
        """A grid as a table. What is too long goes on in the next line; with `cuts`, it is cut."""
        from rich.padding import Padding

        if grid.title:
            self.hanging(grid.title, style="bold")
        for text in grid.lines:
            self.prose(text)
        if not grid.rows:
            if grid.empty:
                self.line(grid.empty)
            return
        self._draw(
            Padding(
                _table(grid, self.console.width - indent, with_titles=with_titles, cuts=cuts),
                (0, 0, 0, indent),
                expand=False,
            )
        )

    def rows(self, rows: Sequence[Mapping[str, object]], columns: Sequence[str], numbers: Iterable[str]) -> None:
        """Rows of a table, with as many columns as can be read on this screen."""
        page = rows_page(rows, columns, numbers, longest=max(VALUE, self.console.width))
        fitting = columns[: _readable(page, self.console.width)]
        self.grid(rows_page(rows, fitting, numbers, longest=max(VALUE, self.console.width)), cuts=True)
        if len(fitting) < len(columns):
            self.note(f"{len(columns) - len(fitting)} more columns do not fit: {', '.join(columns[len(fitting) :])}.")

    # ------------------------------------------------------------------------ for programs

    def document(self, facts: object) -> None:
        """One JSON document."""
        print(to_json(facts, indent=2))  # noqa: T201

    def json_lines(self, rows: Iterable[object]) -> None:
        """One JSON document for each row, on a line of its own."""
        for row in rows:
            print(to_json(row))  # noqa: T201

    # ------------------------------------------------------------------------ beside it

    def note(self, text: str) -> None:
        """A remark that is no part of the answer."""
        if not self.is_quiet:
            print(visible(text), file=sys.stderr)  # noqa: T201

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Generator[Callable[[int], None]]:
        """A bar on the terminal while something takes long; the block calls it with how many more are done.

        Only on a terminal that can draw one, on stderr, and not for programs or with --quiet.
        """
        if not sys.stderr.isatty() or self.as_json or self.is_quiet or os.environ.get("TERM") == "dumb":
            yield lambda _count: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        parts = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda count: bar.advance(task, count)


def _table(grid: Grid, width: int, *, with_titles: bool, cuts: bool) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=with_titles, header_style="bold", padding=(0, 2, 0, 0))
    is_prose = [title in PROSE and not cuts for title in grid.titles]
    is_whole = [right or (title in WHOLE and not cuts) for title, right in zip(grid.titles, grid.right, strict=True)]
    longest = _longest(grid, with_titles=with_titles)
    widths = narrowed(longest, width - 2 * (len(longest) - 1), is_prose, is_whole)
    for title, right, fitting in zip(grid.titles, grid.right, widths, strict=True):
        table.add_column(
            title,
            justify="right" if right else "left",
            no_wrap=cuts,
            overflow="ellipsis" if cuts else "fold",
            width=fitting,
        )
    for row in grid.rows:
        table.add_row(*(Text(visible(cell, lines=False)) for cell in row))
    return table


def _longest(grid: Grid, *, with_titles: bool = True) -> list[int]:
    from rich.cells import cell_len

    titles = grid.titles if with_titles else [""] * len(grid.titles)
    return [max([cell_len(title), *(cell_len(row[i]) for row in grid.rows)]) for i, title in enumerate(titles)]


def _readable(grid: Grid, width: int) -> int:
    """How many of the first columns can be read side by side: numbers whole, the others to some letters."""
    used, count = 0, 0
    for longest, right in zip(_longest(grid), grid.right, strict=True):
        used += (longest if right else min(longest, NARROWEST)) + 2
        if used - 2 > width:
            break
        count += 1
    return max(1, count)


def narrowed(
    widths: Sequence[int], available: int, is_prose: Sequence[bool], is_whole: Sequence[bool] = ()
) -> list[int]:
    """Widths that fit side by side. Sentences give way first, then the widest names, at last numbers and times."""
    fitting = list(widths)
    whole = list(is_whole) or [False] * len(fitting)
    names = [not each for each in whole]
    for narrowest, may_give in (
        (FOLDED, is_prose),
        (NARROWEST, names),
        (1, names),
        (1, [True] * len(fitting)),
    ):
        widest = max(fitting)
        while widest > narrowest and sum(fitting) > available:
            widest -= 1
            fitting = [min(width, widest) if gives else width for width, gives in zip(fitting, may_give, strict=True)]
    return fitting


def folded(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """One row of text in columns of these widths, in as many lines as its longest cell needs."""
    parts = [
        [cell[at : at + width] for at in range(0, len(cell), width)] or [""]
        for cell, width in zip(cells, (max(1, each) for each in widths), strict=True)
    ]
    return [
        "  ".join(
            (part[line] if line < len(part) else "").ljust(width) for part, width in zip(parts, widths, strict=True)
        )
        for line in range(max(map(len, parts)))
    ]


def to_json(facts: object, indent: int | None = None) -> str:
    """JSON that every program can read: what is no number there becomes null."""
    try:
        text = json.dumps(facts, indent=indent, ensure_ascii=False, default=plain_value, allow_nan=False)
    except ValueError:
        text = json.dumps(_without_nan(facts), indent=indent, ensure_ascii=False, default=plain_value)
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)  # in JSON they are inside text, or escaped already


def _without_nan(item: Any) -> Any:
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    if isinstance(item, dict):
        return {key: _without_nan(each) for key, each in item.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(item, list | tuple):
        return [_without_nan(each) for each in item]  # pyright: ignore[reportUnknownVariableType]
    return item


def plain_value(item: Any) -> Any:
    """A value that JSON has no word for."""
    if isinstance(item, datetime | date | time):
        return item.isoformat()
    if isinstance(item, timedelta):
        return item.total_seconds()
    if isinstance(item, Decimal):
        return str(item)
    if isinstance(item, bytes):
        import base64

        return base64.b64encode(item).decode()
    if isinstance(item, set | frozenset | tuple):
        return list(item)
    return str(item)
