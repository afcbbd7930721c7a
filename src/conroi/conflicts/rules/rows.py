"""Conflicts of row changes: deletes and updates against each other, against compactions and replaced columns."""

from __future__ import annotations

from conroi.conflicts import facts
from conroi.conflicts.rule import Finding, Rule, found
from conroi.conflicts.staged import Staged
from conroi.operations.base import Operation


def _row_changes(mine: Staged, theirs: Operation) -> Finding | None:
    """Fragments in common can be sorted out row by row, if I know my rows and only lists of deleted rows changed."""
    shared = facts.modified_fragments(mine.operation) & facts.modified_fragments(theirs)
    if not shared:
        return None
    updated = facts.updated_fragments(mine.operation)
    if not updated.keys() >= shared:
        return found("rows/whole-fragment", shared - updated.keys())
    if unknown := shared - (facts.affected_rows(mine) or {}).keys():
        return found("rows/unknown", unknown)
    if gone := shared & facts.removed_fragments(theirs):
        return found("rows/fragment-gone", gone)
    return _only_deletions_differ(mine, theirs, shared)


def _only_deletions_differ(mine: Staged, theirs: Operation, shared: frozenset[int]) -> Finding | None:
    base, newer = mine.base.fragments_by_id, facts.updated_fragments(theirs)
    if unknown := shared - base.keys():
        return found("rows/fragment-gone", unknown)
    if rewritten := {number for number in shared if base[number].files != newer[number].files}:
        return found("rows/files-changed", rewritten)
    contested = {number for number in shared if base[number].deletion_file != newer[number].deletion_file}
    if not contested:
        return None
    if facts.rewrites_columns(mine.operation):
        return _column_rewrite(mine, contested)
    return found("rows/merged", contested, contested=contested)


def _column_rewrite(mine: Staged, contested: set[int]) -> Finding:
    """My new column files keep their places, so the newer list of deleted rows fits, unless I deleted rows as well."""
    base, updated = mine.base.fragments_by_id, facts.updated_fragments(mine.operation)
    if any(updated[number].deletion_file != base[number].deletion_file for number in contested):
        return found("rows/unknown", contested)
    return found("rows/newer-deletions-kept", contested, contested=contested)


def _moved(mine: Staged, theirs: Operation) -> Finding | None:
    shared = facts.modified_fragments(mine.operation) & facts.modified_fragments(theirs)
    return found("rows/compacted", shared) if shared else None


def _replaced(mine: Staged, theirs: Operation) -> Finding | None:
    shared = facts.modified_fragments(mine.operation) & facts.modified_fragments(theirs)
    return found("rows/replaced", shared) if shared else None


ROW_CHANGES = Rule(
    "Different fragments never conflict. Rows of one fragment are compared, if it is known which rows you change:"
    " different"
    " rows are joined, the same row is retried.",
    (
        "rows/whole-fragment",
        "rows/unknown",
        "rows/fragment-gone",
        "rows/files-changed",
        "rows/merged",
        "rows/newer-deletions-kept",
    ),
    _row_changes,
)
ROWS_COMPACTED = Rule("Retried if a fragment in which you change rows was compacted.", ("rows/compacted",), _moved)
ROWS_REPLACED = Rule(
    "Retried if a column file of a fragment in which you change rows was replaced.", ("rows/replaced",), _replaced
)
