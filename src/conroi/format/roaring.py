"""Portable roaring bitmaps, validated byte by byte before the C library decodes them.

The library trusts its input: a damaged container can make it return wrong results. These bitmaps come from storage, so
every count, key and order is checked first.
"""

from __future__ import annotations

import struct

import numpy as np
from pyroaring import BitMap

from conroi.errors import CorruptionError

_PLAIN_COOKIE = 12346
_RUN_COOKIE = 12347
_SMALLEST_WITH_OFFSETS = 4
_LARGEST_ARRAY = 4096
_BITSET_BYTES = 8192


def decode_bitmap(data: bytes, *, what: str) -> BitMap:
    """The bitmap in these bytes; CorruptionError unless they are one whole, valid bitmap and nothing else."""
    try:
        end = _checked_end(data)
    except (struct.error, IndexError) as error:
        raise _damaged(what, "it is cut off") from error
    except ValueError as error:
        raise _damaged(what, str(error)) from error
    if end != len(data):
        raise _damaged(what, f"it ends at byte {end} of {len(data)}")
    return BitMap.deserialize(data)


def encode_bitmap(bitmap: BitMap, *, has_runs: bool = False) -> bytes:
    """The bitmap as bytes; without run containers, as pylance writes deletion files, unless asked otherwise."""
    # Adding members one by one is what leaves a bitmap without runs.
    return BitMap(bitmap.to_array(), optimize=has_runs).serialize()


def encode_smallest(bitmap: BitMap) -> bytes:
    """The bitmap in as few bytes as the format allows: by members or by runs, whichever is shorter as a whole.

    The library decides for each container by itself, and so forgets that runs need no offsets in the header.
    """
    return min(encode_bitmap(bitmap), encode_bitmap(bitmap, has_runs=True), _encode_runs(bitmap), key=len)


def _encode_runs(bitmap: BitMap) -> bytes:
    """The bitmap with nothing but run containers."""
    members = np.asarray(bitmap.to_array(), np.int64)
    keys = np.unique(members >> 16)
    if not 0 < len(keys) < _SMALLEST_WITH_OFFSETS:
        return bitmap.serialize()
    described, containers = b"", b""
    for key in keys.tolist():
        inside = members[members >> 16 == key] & 0xFFFF
        starts = inside[np.flatnonzero(np.diff(inside, prepend=-2) > 1)]
        ends = inside[np.flatnonzero(np.diff(inside, append=1 << 17) > 1)]
        runs = np.stack([starts, ends - starts], axis=1)
        described += struct.pack("<HH", key, len(inside) - 1)
        containers += struct.pack("<H", len(runs)) + runs.astype("<u2").tobytes()
    cookie = struct.pack("<HH", _RUN_COOKIE, len(keys) - 1)
    return cookie + bytes([(1 << len(keys)) - 1]) + described + containers


def _checked_end(data: bytes) -> int:
    """Where the bitmap ends, after checking all that it says about itself."""
    count, is_run, at = _header(data)
    if count == 0:
        return at
    described = np.frombuffer(data, "<u2", 2 * count, at).astype(np.int64)
    keys, cardinalities = described[::2], described[1::2] + 1
    if np.any(np.diff(keys) <= 0):
        raise ValueError("its containers are not in order")
    at += 4 * count
    offsets: list[int] | None = None
    if not any(is_run) or count >= _SMALLEST_WITH_OFFSETS:
        offsets = np.frombuffer(data, "<u4", count, at).tolist()
        at += 4 * count
    for index, cardinality in enumerate(cardinalities.tolist()):
        if offsets is not None and offsets[index] != at:
            raise ValueError(f"its container {index} is not where it should be")
        at = _container_end(data, at, cardinality, is_run[index])
    return at


def _header(data: bytes) -> tuple[int, list[bool], int]:
    """How many containers there are, which of them are runs, and where their descriptions begin."""
    (cookie,) = struct.unpack_from("<I", data)
    if cookie == _PLAIN_COOKIE:
        (count,) = struct.unpack_from("<I", data, 4)
        if count > 1 << 16:
            raise ValueError(f"it would have {count} containers")
        return count, [False] * count, 8
    if cookie & 0xFFFF != _RUN_COOKIE:
        raise ValueError("it does not begin like a bitmap")
    count = (cookie >> 16) + 1
    flag_bytes = (count + 7) // 8
    flags = np.frombuffer(data, np.uint8, flag_bytes, 4)
    bits = np.unpackbits(flags, bitorder="little")
    if bits[count:].any():
        raise ValueError("its run flags go on after the last container")
    return count, [bool(bit) for bit in bits[:count]], 4 + flag_bytes


def _container_end(data: bytes, at: int, cardinality: int, is_run: bool) -> int:
    if is_run:
        return _run_end(data, at, cardinality)
    if cardinality > _LARGEST_ARRAY:
        bits = np.frombuffer(data, "<u8", _BITSET_BYTES // 8, at)
        if int(np.bitwise_count(bits).sum()) != cardinality:
            raise ValueError("a container does not have as many members as it says")
        return at + _BITSET_BYTES
    members = np.frombuffer(data, "<u2", cardinality, at)
    if np.any(members[1:] <= members[:-1]):
        raise ValueError("the members of a container are not in order")
    return at + 2 * cardinality


def _run_end(data: bytes, at: int, cardinality: int) -> int:
    (count,) = struct.unpack_from("<H", data, at)
    runs = np.frombuffer(data, "<u2", 2 * count, at + 2).astype(np.int64)
    first, last = runs[::2], runs[::2] + runs[1::2]
    if np.any(first[1:] <= last[:-1]) or np.any(last > 0xFFFF):
        raise ValueError("the runs of a container are not in order")
    if int((last - first + 1).sum()) != cardinality:
        raise ValueError("a container does not have as many members as it says")
    return at + 2 + 4 * count


def _damaged(what: str, how: str) -> CorruptionError:
    return CorruptionError(
        f"The {what} is not a valid bitmap: {how}.",
        hint="The file is damaged; restore it from a copy, or open an older version of the table.",
    )
