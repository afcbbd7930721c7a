"""Conflict rules of operations that change columns or replace their data."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from conroi.conflicts import facts
from conroi.conflicts.facts import Staged
from conroi.conflicts.rules import Decide, Finding, Rule, found
from conroi.conflicts.rules.settings import columns_described
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


def _columns_by_fragment(operation: Operation) -> dict[int, frozenset[int]]:
    columns: dict[int, frozenset[int]] = {}
    if isinstance(operation, DataReplacement):
        for group in operation.replacements:
            fields = columns.get(group.fragment_id, frozenset[int]())
            columns[group.fragment_id] = fields | frozenset(facts.live_fields(group.new_file))
    return columns


def _names(mine: Staged, columns: Iterable[int]) -> tuple[str, ...]:
    return facts.column_names(mine.base.fields, columns)


def _meets_row_change(mine: Staged, theirs: Operation) -> Finding | None:
    """Deleted rows keep their places, so the new file still fits; moved rows and rewritten columns do not."""
    replaced = _columns_by_fragment(mine.operation)
    if gone := replaced.keys() & facts.removed_fragments(theirs):
        return found("replacement/fragment-gone", gone)
    touched = replaced.keys() & facts.updated_fragments(theirs).keys()
    if touched and facts.moves_rows(theirs):
        return found("replacement/rows-moved", touched)
    modified = frozenset(theirs.fields_modified) if isinstance(theirs, Update) else frozenset[int]()
    both = {number: replaced[number] & modified for number in touched if replaced[number] & modified}
    if not both:
        return None
    return found("replacement/column-rewritten", both, _names(mine, frozenset[int]().union(*both.values())))


def _meets_replacement(mine: Staged, theirs: Operation) -> Finding | None:
    one, other = _columns_by_fragment(mine.operation), _columns_by_fragment(theirs)
    both = {number: one[number] & other[number] for number in one.keys() & other.keys() if one[number] & other[number]}
    if not both:
        return None
    return found("replacement/column-rewritten", both, _names(mine, frozenset[int]().union(*both.values())))


def _meets_rewrite(mine: Staged, theirs: Operation) -> Finding | None:
    shared = facts.modified_fragments(mine.operation) & facts.modified_fragments(theirs)
    return found("replacement/rows-moved", shared) if shared else None


REPLACEMENT_MEETS_ROW_CHANGE = Rule(
    "Deleted rows do not matter. Incompatible if a fragment is gone; retried if its rows moved or the column was"
    " rewritten.",
    ("replacement/fragment-gone", "replacement/rows-moved", "replacement/column-rewritten"),
    _meets_row_change,
)
REPLACEMENT_MEETS_REPLACEMENT = Rule(
    "Retried if both replace one column of one fragment.",
    ("replacement/column-rewritten",),
    _meets_replacement,
)
REPLACEMENT_MEETS_REWRITE = Rule(
    "Retried if a fragment of which you replace a column was compacted.", ("replacement/rows-moved",), _meets_rewrite
)
