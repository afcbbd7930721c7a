"""Progress reports of Spark jobs: passed to a callback, or drawn as a bar on an interactive terminal."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec

from conroi.data.pinned import Pinned
from conroi.data.writing import Progress


@contextmanager
def watched(progress: Progress | None, what: str, rows: int) -> Generator[Progress | None]:
    """The caller's own; or a bar on the terminal, if there is one and `rich` is installed."""
    if progress is not None or not sys.stderr.isatty() or find_spec("rich") is None:
        yield progress
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True)) as bars:
        bar = bars.add_task(what, total=rows)

        drawn = 0

        def draw(done: int) -> None:
            nonlocal drawn
            bars.advance(bar, done - drawn)
            drawn = done

        yield draw


def shown(pinned: Pinned) -> str:
    """A short name of the table."""
    return pinned.root.rstrip("/").rpartition("/")[2]
