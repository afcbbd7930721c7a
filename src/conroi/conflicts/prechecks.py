"""Symmetric conflict checks before the matrix: their result does not depend on which commit was first."""

from __future__ import annotations

from dataclasses import dataclass

from conroi.conflicts import facts
from conroi.conflicts.facts import Staged
from conroi.conflicts.rule import Finding, Rule, found
from conroi.conflicts.rules.settings import changes_schema
from conroi.operations import Append, CreateIndex, DataOverlay, DataReplacement, Merge, Update, UpdateConfig, is_folded
from conroi.operations.base import Operation

BRINGS_VALUES = (Append, Update, DataReplacement, DataOverlay)


@dataclass(frozen=True, slots=True)
class Precheck:
    """A rule for pairs of which one operation is of one kind and one of the other, in either order."""

    mark: str
    """How the table of the docs refers to it."""
    one: frozenset[str]
    other: frozenset[str]
    rule: Rule

    def concerns(self, mine: str, theirs: str) -> bool:
        return (mine in self.one and theirs in self.other) or (mine in self.other and theirs in self.one)


def _null_promise(mine: Staged, theirs: Operation) -> Finding | None:
    is_broken = facts.may_break_null_promise(mine.operation) or facts.may_break_null_promise(theirs)
    return found("columns/nulls") if is_broken else None


def _schema_metadata(mine: Staged, theirs: Operation) -> Finding | None:
    is_changed = changes_schema(mine.operation) or changes_schema(theirs)
    return found("columns/metadata") if is_changed else None


PRECHECKS = (
    Precheck(
        "a",
        frozenset({"Merge", "Project"}),
        frozenset(kind.name for kind in BRINGS_VALUES),
        Rule(
            "Retried if one changes columns and promises nothing about nulls, and the other brings values.",
            ("columns/nulls",),
            _null_promise,
        ),
    ),
    Precheck(
        "b",
        frozenset({Merge.name}),
        frozenset({"UpdateConfig"}),
        Rule(
            "Retried if one adds columns and the other changes metadata of the schema or its columns.",
            ("columns/metadata",),
            _schema_metadata,
        ),
    ),
)


def _several(mine: Staged, theirs: Operation) -> Finding | None:
    is_hidden = is_folded(theirs) and isinstance(mine.operation, CreateIndex | UpdateConfig)
    return found("table/several") if is_hidden or is_folded(mine.operation) else None


SEVERAL = Rule(
    "Retried if yours is several changes in one version, which fit only the version they were made on. Retried also if "
    "the other one is, and you build an index or change settings: it may have done that too, and does not say so.",
    ("table/several",),
    _several,
)
"""The first check: whether one of the two is a folded transaction of several changes to one table."""
