"""Conflict rules of operations that change rows, with or without a key."""

from __future__ import annotations

from conroi.conflicts import facts
from conroi.conflicts.facts import Staged
from conroi.conflicts.rules import Finding, Rule, found
from conroi.format import lance_pb2 as pb
from conroi.format.keyfilter import may_intersect
from conroi.operations import Update
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


def _my_filter(mine: Staged) -> pb.KeyExistenceFilter | None:
    if mine.keys_checked_exactly or not isinstance(mine.operation, Update):
        return None
    return mine.operation.inserted_rows


def _append(mine: Staged, _theirs: Operation) -> Finding | None:
    return found("keys/append") if _my_filter(mine) is not None else None


def _update(mine: Staged, theirs: Operation) -> Finding | None:
    my_keys = _my_filter(mine)
    if my_keys is None:
        # The other side's filter alone is not asked: without one of my own I insert no declared key.
        return None
    their_keys = theirs.inserted_rows if isinstance(theirs, Update) else None
    if their_keys is None:
        return found("keys/unlisted")
    if my_keys.field_ids != their_keys.field_ids:
        return found("keys/other-columns")
    return found("keys/maybe-same") if may_intersect(my_keys, their_keys) else None


KEYS_APPENDED = Rule("Retried if you insert rows under a declared key.", ("keys/append",), _append)
KEYS_INSERTED = Rule(
    "Retried if you insert rows under a declared key, unless the key filters of both show that no key is the same.",
    ("keys/unlisted", "keys/other-columns", "keys/maybe-same"),
    _update,
)
