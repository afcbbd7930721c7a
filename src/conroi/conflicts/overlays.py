"""Coverage of a data overlay, read from its undecoded message.

Overlays are an unstable part of the format that tables we write never have, so `conroi.format` carries them undecoded.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.roaring import decode_bitmap

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
