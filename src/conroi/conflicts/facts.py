"""What an operation touches: fragments, rows, indices, settings. One small question each, for any operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.roaring import decode_bitmap
from conroi.operations import (
    Append,
    CreateIndex,
    DataOverlay,
    DataReplacement,
    Delete,
    Merge,
    Project,
    Rewrite,
    Update,
    UpdateMemWalState,
)
from conroi.operations.base import Operation
from conroi.operations.indices import FRAGMENT_REUSE, MEM_WAL


@dataclass(frozen=True)
class Staged:
    """An operation that is ready to be committed, and its base version."""

    operation: Operation
    base: Manifest
    """The manifest of my base version."""
    affected_rows: Mapping[int, BitMap] | None = None
    """By fragment id, the physical offsets of the rows that I delete, move or change in place. None: not known."""
    keys_checked_exactly: bool = False
    """The caller compares the inserted keys with every newer commit itself, so the filters are not checked."""
    unwritten: frozenset[int] = frozenset()
    """Updated fragments whose new list of deleted rows is not written yet: the affected rows, joined with those that
    are gone at the newest version when it is."""
    rewrite_keeps_order: bool = False
    """My compaction puts the rows that were alive into its new fragments in their order, so deletions can follow."""


REWRITE_ROWS = pb.Transaction.Update.REWRITE_ROWS
REWRITE_COLUMNS = pb.Transaction.Update.REWRITE_COLUMNS


# ------------------------------------------------------------------------------ fragments
def updated_fragments(operation: Operation) -> dict[int, pb.DataFragment]:
    """The fragments of which the operation brings a new state, by id."""
    if isinstance(operation, Delete | Update):
        return {fragment.id: fragment for fragment in operation.updated_fragments}
    return {}


def new_fragments(operation: Operation) -> Sequence[pb.DataFragment]:
    """The fragments that an append or an update adds."""
    if isinstance(operation, Append):
        return operation.fragments
    return operation.new_fragments if isinstance(operation, Update) else ()


def removed_fragments(operation: Operation) -> frozenset[int]:
    """The fragments without a live row."""
    if isinstance(operation, Delete):
        return frozenset(operation.deleted_fragment_ids)
    if isinstance(operation, Update):
        return frozenset(operation.removed_fragment_ids)
    return frozenset()


def modified_fragments(operation: Operation) -> frozenset[int]:
    """The fragments that the operation changes, removes, copies or overlays."""
    match operation:
        case Delete() | Update():
            return removed_fragments(operation).union(updated_fragments(operation))
        case Rewrite():
            return frozenset(old.id for group in operation.groups for old in group.old_fragments)
        case DataReplacement():
            return frozenset(group.fragment_id for group in operation.replacements)
        case DataOverlay():
            return frozenset(group.fragment_id for group in operation.groups)
        case _:
            return frozenset()


def moves_rows(operation: Operation) -> bool:
    """Whether rows leave their fragments and appear, changed, in new ones."""
    return isinstance(operation, Update) and bool(operation.new_fragments) and operation.update_mode == REWRITE_ROWS


def rewrites_columns(operation: Operation) -> bool:
    """Whether rows are changed where they are, by new files for some of their columns."""
    return isinstance(operation, Update) and operation.update_mode == REWRITE_COLUMNS


def affected_rows(mine: Staged) -> dict[int, BitMap] | None:
    """By fragment, the rows that I delete, move or change: remembered, or as the transaction itself says."""
    if mine.affected_rows is not None:
        return dict(mine.affected_rows)
    operation = mine.operation
    if not isinstance(operation, Update) or not rewrites_columns(operation):
        return None
    rows = {number: BitMap(offsets) for number, offsets in operation.updated_fragment_offsets.items()}
    for number, bitmap in operation.updated_fragment_offset_bitmaps.items():
        rows[number] = decode_bitmap(bitmap, what="list of updated rows")
    return rows or None


# -------------------------------------------------------------------------------- columns
def may_break_null_promise(operation: Operation) -> bool:
    """Whether columns change in a way that was only checked against the rows known at the time."""
    return isinstance(operation, Merge | Project) and not operation.preserves_nullability


def replaced_columns(operation: DataReplacement) -> frozenset[int]:
    """The fields that get new values in some fragment."""
    return frozenset(field for group in operation.replacements for field in live_fields(group.new_file))


def live_fields(file: pb.DataFile) -> tuple[int, ...]:
    """The fields of a data file that are still in use."""
    return tuple(field for field in file.fields if field >= 0)


def column_names(base_fields: Iterable[pb.Field], ids: Iterable[int]) -> tuple[str, ...]:
    """The names of these fields, or their numbers where they have none."""
    names = {field.id: field.name for field in base_fields}
    return tuple(names.get(number, f"field {number}") for number in sorted(ids))


# -------------------------------------------------------------------------------- indices
def new_indices(operation: Operation) -> tuple[pb.IndexMetadata, ...]:
    return tuple(operation.new_indices) if isinstance(operation, CreateIndex) else ()


def removed_indices(operation: Operation) -> tuple[pb.IndexMetadata, ...]:
    return tuple(operation.removed_indices) if isinstance(operation, CreateIndex) else ()


def names_of(indices: Iterable[pb.IndexMetadata]) -> frozenset[str]:
    return frozenset(index.name for index in indices)


def reuse_index(operation: Operation) -> pb.IndexMetadata | None:
    """The fragment-reuse index that a compaction or an index change brings."""
    if isinstance(operation, Rewrite):
        return operation.fragment_reuse_index
    return next((index for index in new_indices(operation) if index.name == FRAGMENT_REUSE), None)


# --------------------------------------------------------------------------- streaming writers
def progress(operation: Operation) -> tuple[pb.CompactedSsTable, ...]:
    """How far an operation moves the marks of streaming writers."""
    if isinstance(operation, Update | UpdateMemWalState):
        return tuple(operation.compacted_sstables)
    found: list[pb.CompactedSsTable] = []
    for index in new_indices(operation):
        if index.name == MEM_WAL:
            found.extend(pb.MemWalIndexDetails.FromString(index.index_details.value).compacted_sstables)
    return tuple(found)
