"""Conflicts between dropped columns and changes of those columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from conroi.conflicts import facts
from conroi.conflicts.rule import Decide, Finding, Rule, found
from conroi.conflicts.rules.settings import columns_described
from conroi.conflicts.staged import Staged
from conroi.operations import DataReplacement, Project, Update
from conroi.operations.base import Operation


def _replaced(operation: Operation) -> Iterable[int]:
    return facts.replaced_columns(operation) if isinstance(operation, DataReplacement) else ()


def _rewritten(operation: Operation) -> Iterable[int]:
    return operation.fields_modified if isinstance(operation, Update) else ()


def _indexed(operation: Operation) -> Iterable[int]:
    return (field for index in facts.new_indices(operation) for field in index.fields)


def _needs(columns: Callable[[Operation], Iterable[int]], finding: str) -> Decide:
    """A rule that finds something if one of these columns of mine is no longer in the schema."""

    def decide(mine: Staged, theirs: Operation) -> Finding | None:
        kept = {field.id for field in theirs.schema} if isinstance(theirs, Project) else set[int]()
        gone = set(columns(mine.operation)) - kept
        return found(finding, names=facts.column_names(mine.base.fields, gone)) if gone else None

    return decide


REPLACED_COLUMN_DROPPED = Rule(
    "Incompatible if a column of which you replace files was dropped.",
    ("replacement/column-gone",),
    _needs(_replaced, "replacement/column-gone"),
)
REWRITTEN_COLUMN_DROPPED = Rule(
    "Retried if a column that you rewrite in place was dropped.",
    ("rows/column-gone",),
    _needs(_rewritten, "rows/column-gone"),
)
INDEXED_COLUMN_DROPPED = Rule(
    "Incompatible if a column that you index was dropped.",
    ("index/column-gone",),
    _needs(_indexed, "index/column-gone"),
)
DESCRIBED_COLUMN_DROPPED = Rule(
    "Incompatible if a column of which you change the metadata was dropped.",
    ("settings/column-gone",),
    _needs(columns_described, "settings/column-gone"),
)
