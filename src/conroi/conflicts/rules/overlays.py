"""Conflicts of overlays: new values for rows, stored without rewriting their files."""

from __future__ import annotations

from pyroaring import BitMap

from conroi.conflicts import facts
from conroi.conflicts.overlays import covered_columns, covered_rows
from conroi.conflicts.rule import Finding, Rule, found
from conroi.conflicts.staged import Staged
from conroi.operations import DataOverlay, Update
from conroi.operations.base import Operation


def rows_covered_in(overlay: DataOverlay, fragment: int) -> BitMap:
    """The rows of a fragment over which an operation lays new values."""
    groups = [group for group in overlay.groups if group.fragment_id == fragment]
    return BitMap.union(BitMap(), *(covered_rows(part) for group in groups for part in group.overlays))


def _columns_covered_in(overlay: DataOverlay, fragment: int) -> frozenset[int]:
    groups = [group for group in overlay.groups if group.fragment_id == fragment]
    return frozenset(column for group in groups for part in group.overlays for column in covered_columns(part))


def _update_meets_overlay(mine: Staged, theirs: Operation) -> Finding | None:
    """My update was computed from the values below the overlay; where both touch a cell, it would undo the overlay."""
    update = mine.operation
    if not isinstance(update, Update) or not isinstance(theirs, DataOverlay):
        return None
    if facts.rewrites_columns(update):
        rewritten = facts.updated_fragments(update).keys() & facts.modified_fragments(theirs)
        columns = frozenset(update.fields_modified)
        covered = {number for number in rewritten if columns & _columns_covered_in(theirs, number)}
        return found("overlay/columns", covered) if covered else None
    return _moved_rows_meet_overlay(mine, theirs) if facts.moves_rows(update) else None


def _moved_rows_meet_overlay(mine: Staged, theirs: DataOverlay) -> Finding | None:
    shared = facts.modified_fragments(mine.operation) & facts.modified_fragments(theirs)
    moved = facts.affected_rows(mine)
    if moved is None:
        return found("rows/unknown", shared) if shared else None
    common = {
        number: rows
        for number in sorted(shared)
        if (rows := moved.get(number, BitMap()) & rows_covered_in(theirs, number))
    }
    if not common:
        return None
    return Finding("overlay/rows", fragments=tuple(common), rows=sum(len(rows) for rows in common.values()))


def _overlay_meets_row_change(mine: Staged, theirs: Operation) -> Finding | None:
    """Deleted rows simply lose the overlay; moved rows were copied without it, so those need a look at the rows."""
    targets = facts.modified_fragments(mine.operation)
    if gone := targets & facts.removed_fragments(theirs):
        return found("rows/fragment-gone", gone)
    touched = targets & facts.updated_fragments(theirs).keys() if facts.moves_rows(theirs) else frozenset[int]()
    return found("overlay/rows-checked", touched, contested=touched) if touched else None


UPDATE_MEETS_OVERLAY = Rule(
    "Retried if your update rewrites a column, or moves a row, over which new values were laid.",
    ("overlay/columns", "overlay/rows", "rows/unknown"),
    _update_meets_overlay,
)
OVERLAY_MEETS_DELETE = Rule(
    "Retried if a fragment under your overlay was removed; single deleted rows do not matter.",
    ("rows/fragment-gone",),
    _overlay_meets_row_change,
)
OVERLAY_MEETS_UPDATE = Rule(
    "Retried if a fragment under your overlay was removed, or if rows under it were moved.",
    ("rows/fragment-gone", "overlay/rows-checked"),
    _overlay_meets_row_change,
)
