"""Checksums of the files that conroi writes, stored where pylance does not look.

The Lance format has no checksums, so a flipped bit in a manifest can yield a different valid manifest. The format
leaves room for ours: before the first section of a manifest file, as an unknown field of a transaction, between the
batch and the footer of an Arrow file, after the end of a bitmap. A file without a checksum was written by other
software, and gets the checks that the format itself allows.
"""

from __future__ import annotations

import struct

import xxhash

from conroi.errors import CorruptionError

_MARK = b"conroi\x00\x01"  # the last byte is the version of this scheme
_DIGEST = struct.Struct("<Q")
SEAL_SIZE = len(_MARK) + _DIGEST.size
SEAL_FIELD_NUMBER = 114855
_FIELD_PREFIX = b"\xba\x8a\x38\x10"  # on the wire: field 114855, 16 bytes long


def seal(*parts: bytes | memoryview) -> bytes:
    """The seal over these bytes, taken as one run."""
    hasher = xxhash.xxh64()
    for part in parts:
        hasher.update(part)
    return _MARK + _DIGEST.pack(hasher.intdigest())


def unseal_front(data: memoryview, *, what: str) -> None:
    """Check the seal at the front of a file, if there is one, against all that follows."""
    found = bytes(data[:SEAL_SIZE])
    if found.startswith(_MARK):
        _check(found, data[SEAL_SIZE:], what=what)


def is_sealed_front(data: bytes) -> bool:
    """Whether a file that begins so has a seal at its front."""
    return data.startswith(_MARK)


def is_sealed_message(data: bytes) -> bool:
    """Whether the message begins with a seal."""
    return data.startswith(_FIELD_PREFIX + _MARK)


def seal_message(message: bytes) -> bytes:
    """A protobuf message with a seal as its first field, which other readers skip."""
    return _FIELD_PREFIX + seal(message) + message


def unseal_message(data: bytes, *, what: str) -> bytes:
    """The message without its seal, checked; a message without one is given back as it is."""
    start = len(_FIELD_PREFIX)
    message = data[start + SEAL_SIZE :]
    # Either half of the preamble is enough to know that there was a seal, so that damage to the other half is seen.
    if data[:start] == _FIELD_PREFIX or data[start : start + len(_MARK)] == _MARK:
        _check(data[: start + SEAL_SIZE], message, what=what, prefix=_FIELD_PREFIX)
        return message
    return data


def unseal_end(data: bytes, *, what: str) -> bytes:
    """The bytes without the seal at their end, checked; or as they are, if there is none."""
    content, found = data[:-SEAL_SIZE], data[-SEAL_SIZE:]
    if not found.startswith(_MARK):
        return data
    _check(found, content, what=what)
    return content


def unseal_inside(data: bytes, *, what: str) -> bytes:
    """The bytes without the seal that stands somewhere among them, checked; or as they are, if there is none."""
    at = data.rfind(_MARK)
    if at < 0:
        return data
    before, after = data[:at], data[at + SEAL_SIZE :]
    _check(data[at : at + SEAL_SIZE], before, after, what=what)
    return before + after


def _check(found: bytes, *parts: bytes | memoryview, what: str, prefix: bytes = b"") -> None:
    if found != prefix + seal(*parts):
        raise CorruptionError(
            f"The {what} is damaged: its checksum does not match its bytes.",
            hint="Restore the file from a copy, or open another version of the table; doctor lists what is affected.",
        )
