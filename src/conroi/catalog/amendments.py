"""Row changes that are computed from the current row at the time of the publication."""

from __future__ import annotations

from typing import Protocol

from conroi.catalog.rows import Row


class Amendment(Protocol):
    """A change to a table's row, computed at commit. Both methods run on every attempt, on the state that the put
    is for.
    """

    @property
    def object_id(self) -> str:
        """The table."""
        ...

    def check(self, row: Row | None) -> None:
        """Raise a conflict that forbids the publication, given the current row; None if there is no such table."""
        ...

    def amended(self, row: Row) -> Row:
        """The row to publish, derived from the one that the publication would leave; check() has been called."""
        ...
