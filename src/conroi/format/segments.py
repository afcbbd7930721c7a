"""Sequences of 64-bit numbers in the smallest of five encodings, chosen as pylance chooses."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb

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
