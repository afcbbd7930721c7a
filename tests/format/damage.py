"""Ways to damage bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conroi.errors import ConroiError


def cuts(data: bytes) -> Iterator[bytes]:
    """The data cut off after every possible number of bytes."""
    for length in range(len(data)):
        yield data[:length]


def flips(data: bytes) -> Iterator[bytes]:
    """The data with every single bit flipped, one at a time."""
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        yield bytes(changed)


def overwritten(data: bytes, place: int, other: bytes) -> bytes:
    """The data, of the same length, with other bytes from that place (counted round) on."""
    at = place % len(data)
    return data[:at] + other[: len(data) - at] + data[at + len(other) :]


def unnoticed(damaged: Iterator[bytes], read: Callable[[bytes], object]) -> list[bytes]:
    """The damaged bytes that were read as other data, without a typed error.

    An error that is not one of conroi's is not caught, and fails the test.
    """
    return [data for data in damaged if not _is_refused(data, read)]


def _is_refused(data: bytes, read: Callable[[bytes], object]) -> bool:
    """`read` asserts nothing: it answers whether the data is the original, or raises."""
    try:
        return bool(read(data))
    except ConroiError:
        return True
