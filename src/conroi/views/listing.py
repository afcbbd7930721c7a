"""List that a notebook renders as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from conroi.views.grid import Grid, to_html

T = TypeVar("T")


class Listing(list[T]):
    """A list; what it holds, it shows as rows of text."""

    def __init__(self, items: Iterable[T], page: Callable[[Iterable[T]], Grid]) -> None:
        super().__init__(items)
        self._page = page

    def _repr_html_(self) -> str:
        return to_html(self._page(self))
