"""Merge clauses: which rows they apply to, under which condition, and their action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Rows(Enum):
    """Which rows a clause is about."""

    MATCHED = "matched"
    """A row of the source and one of the target with the same key."""
    SOURCE_ONLY = "not matched"
    """A row of the source whose key the target does not have."""
    TARGET_ONLY = "not matched by source"
    """A row of the target whose key the source does not have."""


class Action(Enum):
    """What a clause does with its rows."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Clause:
    """One `when_…` of a merge. Of several for the same rows, the first whose condition holds wins."""

    rows: Rows
    action: Action
    values: Mapping[str, str] | None = None
    """New values by column, as expressions over `source.…` and `target.…`; None takes all columns of the source."""
    condition: str | None = None

    @property
    def takes_all(self) -> bool:
        """Whether it takes the source's columns as they are."""
        return self.values is None and self.action is not Action.DELETE

    def texts(self) -> list[str]:
        """All expressions in it."""
        return [*(self.values or {}).values(), *([self.condition] if self.condition else [])]
