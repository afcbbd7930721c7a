"""Coverage of a data overlay, read from its undecoded message.

Overlays are an unstable part of the format that tables we write never have, so `conroi.format` carries them undecoded.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap

from conroi.conflicts import facts
from conroi.conflicts.facts import Staged
from conroi.conflicts.rules import Finding, Rule, found
from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.roaring import decode_bitmap
from conroi.operations import DataOverlay, Update
from conroi.operations.base import Operation

_DATA_FILE, _SHARED_BITMAP, _COVERAGE_BY_FIELD = 1, 2, 4
_BYTES_WIRE_TYPE = 2
_FIXED_SIZES = {1: 8, 5: 4}


def covered_columns(overlay: bytes) -> frozenset[int]:
    """The ids of the fields that an overlay gives new values."""
    files = [pb.DataFile.FromString(content) for number, content in _parts(overlay) if number == _DATA_FILE]
    return frozenset(field for file in files for field in file.fields if field >= 0)


def covered_rows(overlay: bytes) -> BitMap:
    """The offsets of the rows that an overlay covers in any field."""
    rows = BitMap()
    for number, content in _parts(overlay):
        if number == _SHARED_BITMAP:
            rows |= decode_bitmap(content, what="coverage of an overlay")
        elif number == _COVERAGE_BY_FIELD:
            for _, bitmap in _parts(content):
                rows |= decode_bitmap(bitmap, what="coverage of an overlay")
    return rows


def _parts(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message, by number; numbers are skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire_type = tag & 7
        if wire_type == _BYTES_WIRE_TYPE:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise _damaged()
            yield tag >> 3, message[at : at + length]
            at += length
        elif wire_type == 0:
            _, at = _varint(message, at)
        elif wire_type in _FIXED_SIZES:
            at += _FIXED_SIZES[wire_type]
        else:
            raise _damaged()


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _damaged()


def _damaged() -> CorruptionError:
    return CorruptionError(
        "An overlay of a transaction is not a valid message.",
        hint="The file is damaged; restore it from a copy, or start again from the newest version.",
    )


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
