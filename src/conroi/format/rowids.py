"""Row ids and row versions of a fragment: one number per row, in the order of the rows, deleted rows included.

A fragment of a table with stable row ids carries three such sequences, each an encoded message: the ids, the version
that created each row, and the version that last updated it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from pyroaring import BitMap

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.segments import U64Array, decode_segment, encode_segment, range_segment, segment_length

_SHORT = 64
"""The counts of sequences of up to so many bytes are kept: most fragments have one of a few."""

# ------------------------------------------------------------------------------------------------- row ids


def fresh_row_ids(start: int, count: int) -> bytes:
    """The ids `start`, `start + 1`, … of a new fragment."""
    return pb.RowIdSequence(segments=[range_segment(start, start + count)]).SerializeToString(deterministic=True)


def encode_row_ids(ids: U64Array) -> bytes:
    """Any ids, in the order of the rows."""
    return pb.RowIdSequence(segments=[encode_segment(ids)]).SerializeToString(deterministic=True)


def decode_row_ids(data: bytes, *, rows: int | None = None) -> U64Array:
    """The ids in an encoded sequence; with `rows`, there must be that many."""
    segments = _parse(pb.RowIdSequence, data).segments
    _check_count(sum(map(segment_length, segments)), rows)
    return _joined([decode_segment(segment) for segment in segments])


def count_row_ids(data: bytes) -> int:
    """How many ids an encoded sequence has, without expanding it."""
    return sum(map(segment_length, _parse(pb.RowIdSequence, data).segments))


def concat_row_ids(parts: Iterable[bytes]) -> bytes:
    """One sequence after the other, as compaction does; ranges that meet become one."""
    joined = pb.RowIdSequence()
    for part in parts:
        for segment in _parse(pb.RowIdSequence, part).segments:
            _append_segment(joined, segment)
    return joined.SerializeToString(deterministic=True)


def take_row_ids(data: bytes, positions: U64Array) -> bytes:
    """The ids of the rows at these positions, in that order."""
    return encode_row_ids(decode_row_ids(data)[positions])


def drop_row_ids(data: bytes, deleted: BitMap, *, rows: int | None = None) -> bytes:
    """The ids of the rows that are left when these positions are gone; with `rows`, there must be that many before."""
    _check_count(count_row_ids(data), rows)
    if not deleted:
        return data
    left, at = pb.RowIdSequence(), 0
    # Segment by segment, because one segment of ids that jump up and down needs several bytes for each.
    for segment in _parse(pb.RowIdSequence, data).segments:
        ids = decode_segment(segment)
        gone = np.asarray(deleted[deleted.rank(at - 1) if at else 0 : deleted.rank(at + len(ids) - 1)], np.int64)
        _append_segment(left, encode_segment(np.delete(ids, gone - at)))
        at += len(ids)
    return left.SerializeToString(deterministic=True)


def _append_segment(joined: pb.RowIdSequence, segment: pb.U64Segment) -> None:
    if segment.HasField("range") and segment.range.start == segment.range.end:
        return
    last = joined.segments[-1] if joined.segments else pb.U64Segment()
    are_ranges = last.HasField("range") and segment.HasField("range")
    if are_ranges and last.range.end == segment.range.start:
        last.range.end = segment.range.end
    else:
        joined.segments.append(segment)


# -------------------------------------------------------------------------------------------- row versions


def constant_versions(version: int, count: int) -> bytes:
    """The same version for every row of a new fragment."""
    return _encode_runs([(version, count)])


def encode_versions(versions: U64Array) -> bytes:
    """The version of each row, in the order of the rows."""
    starts = np.flatnonzero(np.diff(versions, prepend=~versions[:1]))
    lengths = np.diff(starts, append=len(versions))
    return _encode_runs(zip(versions[starts].tolist(), lengths.tolist(), strict=True))


def decode_versions(data: bytes, *, rows: int | None = None) -> U64Array:
    """The version of each row; with `rows`, there must be that many."""
    runs = _runs(data)
    _check_count(sum(count for _, count in runs), rows)
    return _joined([np.full(count, version, np.uint64) for version, count in runs])


def count_versions(data: bytes) -> int:
    """How many rows an encoded sequence has a version for, without expanding it."""
    return _counted(data) if len(data) <= _SHORT else sum(count for _, count in _runs(data))


@lru_cache(maxsize=10_000)
def _counted(data: bytes) -> int:
    return sum(count for _, count in _runs(data))


def concat_versions(parts: Iterable[bytes]) -> bytes:
    """One sequence after the other, as compaction does; runs of one version that meet become one."""
    joined: list[tuple[int, int]] = []
    for version, count in (run for part in parts for run in _runs(part)):
        if joined and joined[-1][0] == version:
            count += joined.pop()[1]
        joined.append((version, count))
    return _encode_runs(joined)


def take_versions(data: bytes, positions: U64Array) -> bytes:
    """The versions of the rows at these positions, in that order."""
    return encode_versions(decode_versions(data)[positions])


def drop_versions(data: bytes, deleted: BitMap) -> bytes:
    """The versions of the rows that are left when these positions are gone."""
    return data if not deleted else encode_versions(without(decode_versions(data), deleted))


def _runs(data: bytes) -> list[tuple[int, int]]:
    # A span says positions, but after a compaction those of the old fragment: only its length means anything.
    return [(run.version, segment_length(run.span)) for run in _parse(pb.RowDatasetVersionSequence, data).runs]


def _encode_runs(runs: Iterable[tuple[int, int]]) -> bytes:
    sequence = pb.RowDatasetVersionSequence()
    at = 0
    for version, count in runs:
        if count:
            sequence.runs.add(span=range_segment(at, at + count), version=version)
        at += count
    return sequence.SerializeToString(deterministic=True)


# ----------------------------------------------------------------------------------------------- both


def without(values: U64Array, deleted: BitMap) -> U64Array:
    """The values that are left when these positions are gone."""
    return np.delete(values, np.asarray(deleted.to_array(), np.int64))


def _joined(parts: list[U64Array]) -> U64Array:
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _check_count(found: int, expected: int | None) -> None:
    if expected is not None and found != expected:
        raise CorruptionError(
            f"A row sequence in the manifest has {found} entries for a fragment of {expected} rows.",
            hint="Open an older version of the table, or run doctor.",
        )


_Sequence = TypeVar("_Sequence", pb.RowIdSequence, pb.RowDatasetVersionSequence)


def _parse(kind: type[_Sequence], data: bytes) -> _Sequence:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise CorruptionError(
            f"A row sequence in the manifest is not a valid message ({error}).",
            hint="Open an older version of the table, or run doctor.",
        ) from error
