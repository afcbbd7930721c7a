"""Row id sequences: compressed segments of stable row ids, and the index from ids to addresses."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from pyroaring import BitMap

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb

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


U64Array: TypeAlias = npt.NDArray[np.uint64]

# A fragment cannot have more rows than fit into half of a row address.
_MOST_ROWS = 1 << 32
_LARGEST_U64 = (1 << 64) - 1


def range_segment(start: int, end: int) -> pb.U64Segment:
    """The numbers from `start` up to, and without, `end`."""
    return pb.U64Segment(range=pb.U64Segment.Range(start=start, end=end))


def encode_segment(values: U64Array) -> pb.U64Segment:
    """These numbers, in this order, as one segment."""
    if len(values) == 0:
        return range_segment(0, 0)
    if not bool(np.all(values[1:] > values[:-1])):
        return pb.U64Segment(array=_encode_array(values))
    first, last, count = int(values[0]), int(values[-1]), len(values)
    holes = last - first + 1 - count
    if last == _LARGEST_U64:  # a range is without its end, and this one's end would be beyond 64 bits
        return pb.U64Segment(sorted_array=_encode_array(values))
    if holes == 0:
        return range_segment(first, last + 1)
    # Estimated bytes; on a tie pylance prefers them in this order.
    sizes = {"holes": 4 * holes, "bitmap": (last - first + 8) // 8, "array": 2 * count}
    smallest = min(sizes, key=lambda name: sizes[name])
    if smallest == "array":
        return pb.U64Segment(sorted_array=_encode_array(values))
    is_present = np.zeros(last - first + 1, np.bool_)
    is_present[values - np.uint64(first)] = True
    return _dense_segment(first, is_present, as_bitmap=smallest == "bitmap")


def decode_segment(segment: pb.U64Segment) -> U64Array:
    """The numbers of a segment, in their order."""
    kind = segment.WhichOneof("segment")
    if kind == "range":
        return _span(segment.range.start, segment.range.end)
    if kind == "range_with_holes":
        dense = segment.range_with_holes
        return np.setdiff1d(_span(dense.start, dense.end), _decode_array(dense.holes), assume_unique=True)
    if kind == "range_with_bitmap":
        span = segment.range_with_bitmap
        values = _span(span.start, span.end)
        return values[_bitmap_bits(span)]
    if kind == "sorted_array":
        return _decode_array(segment.sorted_array)
    if kind == "array":
        return _decode_array(segment.array)
    raise _damaged("a segment of it has no kind")


def segment_length(segment: pb.U64Segment) -> int:
    """How many numbers a segment has, without expanding it."""
    kind = segment.WhichOneof("segment")
    if kind == "range":
        return _span_length(segment.range.start, segment.range.end)
    if kind == "range_with_holes":
        dense = segment.range_with_holes
        return _span_length(dense.start, dense.end) - len(_decode_array(dense.holes))
    if kind == "range_with_bitmap":
        return int(_bitmap_bits(segment.range_with_bitmap).sum())
    return len(decode_segment(segment))


def _dense_segment(first: int, is_present: npt.NDArray[np.bool_], *, as_bitmap: bool) -> pb.U64Segment:
    end = first + len(is_present)
    if as_bitmap:
        bits = np.packbits(is_present, bitorder="little").tobytes()
        return pb.U64Segment(range_with_bitmap=pb.U64Segment.RangeWithBitmap(start=first, end=end, bitmap=bits))
    holes = np.flatnonzero(~is_present).astype(np.uint64) + np.uint64(first)
    return pb.U64Segment(
        range_with_holes=pb.U64Segment.RangeWithHoles(start=first, end=end, holes=_encode_array(holes))
    )


def _encode_array(values: U64Array) -> pb.EncodedU64Array:
    base = int(values.min())
    width = int(values.max()) - base
    offsets = values - np.uint64(base)
    if width < 1 << 16:
        content = offsets.astype("<u2").tobytes()
        return pb.EncodedU64Array(u16_array=pb.EncodedU64Array.U16Array(base=base, offsets=content))
    if width < 1 << 32:
        content = offsets.astype("<u4").tobytes()
        return pb.EncodedU64Array(u32_array=pb.EncodedU64Array.U32Array(base=base, offsets=content))
    content = values.astype("<u8").tobytes()
    return pb.EncodedU64Array(u64_array=pb.EncodedU64Array.U64Array(values=content))


def _decode_array(array: pb.EncodedU64Array) -> U64Array:
    kind = array.WhichOneof("array")
    if kind == "u16_array":
        return _offsets(array.u16_array.base, array.u16_array.offsets, "<u2")
    if kind == "u32_array":
        return _offsets(array.u32_array.base, array.u32_array.offsets, "<u4")
    if kind == "u64_array":
        return _offsets(0, array.u64_array.values, "<u8")
    raise _damaged("an array of it has no kind")


def _offsets(base: int, content: bytes, width: str) -> U64Array:
    if len(content) % np.dtype(width).itemsize:
        raise _damaged("an array of it is cut off")
    offsets = np.frombuffer(content, width).astype(np.uint64)
    if len(offsets) and base + int(offsets.max()) > _LARGEST_U64:
        raise _damaged("an array of it goes beyond 64 bits")
    return offsets + np.uint64(base)


def _bitmap_bits(span: pb.U64Segment.RangeWithBitmap) -> npt.NDArray[np.bool_]:
    length = _span_length(span.start, span.end)
    if len(span.bitmap) != (length + 7) // 8:
        raise _damaged(f"a bitmap of it has {len(span.bitmap)} bytes for {length} rows")
    bits = np.unpackbits(np.frombuffer(span.bitmap, np.uint8), bitorder="little")
    return bits[:length].astype(np.bool_)


def _span(start: int, end: int) -> U64Array:
    return np.arange(_span_length(start, end), dtype=np.uint64) + np.uint64(start)


def _span_length(start: int, end: int) -> int:
    if not 0 <= end - start <= _MOST_ROWS:
        raise _damaged(f"a range of it goes from {start} to {end}")
    return end - start


def _damaged(how: str) -> CorruptionError:
    return CorruptionError(
        f"A row sequence in the manifest is damaged: {how}.", hint="Open an older version of the table, or run doctor."
    )
