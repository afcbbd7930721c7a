"""Row lineage: stable row ids, and the versions that created and last updated each row.

A row keeps its id and the version of its creation when an update moves it into another fragment. The fragments passed
to these functions are copies that belong to the caller, and are changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.row_ids import (
    U64Array,
    constant_versions,
    count_row_ids,
    decode_row_ids,
    decode_versions,
    encode_row_ids,
    encode_versions,
    fresh_row_ids,
)

# What readers assume for a row without a recorded creation version.
_UNKNOWN_VERSION = 1


def assign_row_ids(fragments: Iterable[pb.DataFragment], next_row_id: int) -> int:
    """Give an id to every row that has none; the answer is the next free id.

    A merge writes updated rows first, with the ids they had, and inserted rows after them, without.
    """
    for fragment in fragments:
        if fragment.HasField("column_row_ids"):  # such a column has an id for every row
            continue
        missing = fragment.physical_rows - _known_ids(fragment)
        if missing < 0:
            raise InvalidInputError(
                f"A fragment has {fragment.physical_rows} rows but {_known_ids(fragment)} row ids.",
                hint="Write the fragment again.",
            )
        if missing == fragment.physical_rows:
            fragment.inline_row_ids = fresh_row_ids(next_row_id, missing)
        elif missing:
            fresh = np.arange(next_row_id, next_row_id + missing, dtype=np.uint64)
            ids = np.concatenate([decode_row_ids(fragment.inline_row_ids, rows=_known_ids(fragment)), fresh])
            fragment.inline_row_ids = encode_row_ids(ids)
        next_row_id += missing
    return next_row_id


def stamp_new(fragment: pb.DataFragment, version: int) -> None:
    """All rows were created, and last changed, in this version."""
    versions = constant_versions(version, fragment.physical_rows)
    fragment.inline_created_at_versions = versions
    fragment.inline_last_updated_at_versions = versions


def stamp_changed(fragment: pb.DataFragment, version: int) -> None:
    """All rows were last changed in this version."""
    fragment.inline_last_updated_at_versions = constant_versions(version, fragment.physical_rows)


def stamp_changed_rows(fragment: pb.DataFragment, offsets: Sequence[int], version: int) -> None:
    """Only the rows at these positions were changed in this version."""
    if fragment.HasField("column_last_updated_at_versions"):
        raise _spilled(fragment)
    if not offsets or not fragment.HasField("inline_last_updated_at_versions"):
        return  # without a record of the other rows there is nothing true to say about them
    if max(offsets) >= fragment.physical_rows:
        raise InvalidInputError(
            f"Row {max(offsets)} of fragment {fragment.id} was said to be changed, but it has "
            f"{fragment.physical_rows} rows.",
            hint="Compute the changed rows again.",
        )
    versions = decode_versions(fragment.inline_last_updated_at_versions, rows=fragment.physical_rows)
    versions[np.asarray(offsets, np.int64)] = version
    fragment.inline_last_updated_at_versions = encode_versions(versions)


def stamp_moved(
    fragments: Sequence[pb.DataFragment], sources: Sequence[pb.DataFragment], *, version: int, first_new_id: int
) -> None:
    """Rows with an id from before keep the version they were created in; all count as changed in this one."""
    untraced = [fragment for fragment in fragments if fragment.WhichOneof("created_at_version_sequence") is None]
    moved = [_row_ids(fragment) for fragment in untraced]
    wanted = np.unique(np.concatenate(moved)) if moved else np.empty(0, np.uint64)
    wanted = wanted[wanted < first_new_id]
    created = _created_versions(wanted, sources)
    for fragment, ids in zip(untraced, moved, strict=True):
        versions = np.full(len(ids), version, np.uint64)
        is_moved = ids < first_new_id
        versions[is_moved] = created[np.searchsorted(wanted, ids[is_moved])]
        versions[versions == 0] = version  # an id from before that no fragment has: the row is new
        fragment.inline_created_at_versions = encode_versions(versions)
    for fragment in fragments:
        stamp_changed(fragment, version)


def _created_versions(wanted: U64Array, sources: Sequence[pb.DataFragment]) -> U64Array:
    """For each wanted id (ascending), the version its row was created in; 0 for those not found.

    A row that was updated before is in several fragments; the oldest one counts.
    """
    created = np.zeros(len(wanted), np.uint64)
    for source in sources:
        if not np.any(created == 0):
            break
        if _is_outside(source, int(wanted[0]), int(wanted[-1])):
            continue
        ids = _row_ids(source)
        at = np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)
        offsets = np.flatnonzero((wanted[at] == ids) & (created[at] == 0))
        if len(offsets):
            created[at[offsets]] = _created_at(source, len(ids))[offsets]
    return created


def _created_at(source: pb.DataFragment, rows: int) -> U64Array:
    if source.HasField("column_created_at_versions"):
        raise _spilled(source)
    if not source.HasField("inline_created_at_versions"):
        return np.full(rows, _UNKNOWN_VERSION, np.uint64)
    return decode_versions(source.inline_created_at_versions, rows=rows)


def _is_outside(source: pb.DataFragment, low: int, high: int) -> bool:
    """Whether none of the ids can be in this range, without expanding them."""
    segments = pb.RowIdSequence.FromString(source.inline_row_ids).segments
    return all(
        segment.HasField("range") and (segment.range.end <= low or segment.range.start > high) for segment in segments
    ) and not source.HasField("column_row_ids")


def _row_ids(fragment: pb.DataFragment) -> U64Array:
    if fragment.HasField("column_row_ids"):
        raise _spilled(fragment)
    return decode_row_ids(fragment.inline_row_ids, rows=fragment.physical_rows)


def _known_ids(fragment: pb.DataFragment) -> int:
    return count_row_ids(fragment.inline_row_ids) if fragment.HasField("inline_row_ids") else 0


def _spilled(fragment: pb.DataFragment) -> UnsupportedError:
    return UnsupportedError(
        f"Fragment {fragment.id} keeps its row ids or row versions in a data file, not in the manifest; "
        "conroi cannot update such rows yet.",
        hint="Compact the table with pylance after removing lance.row_lineage.spill from its config.",
    )
