"""Manifest file layout: sections found by their offsets, the manifest message last, and a footer.

::

    checksum             16 bytes, written by conroi, ignored by pylance
    index section        u32 length, IndexSection         only if there are indices
    transaction section  u32 length, Transaction          unless it is too big
    manifest             u32 length, Manifest
    footer               i64 where the manifest begins, u16 0, u16 2, "LANC"
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from google.protobuf.message import DecodeError

from conroi.errors import CorruptionError, InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.checksums import SEAL_SIZE, is_sealed_front, is_sealed_message, seal, unseal_front
from conroi.format.fields import check_tree, data_format_of
from conroi.format.flags import Flag
from conroi.format.manifest import Manifest
from conroi.format.roaring import decode_bitmap

LARGEST_INLINE_TRANSACTION_BYTES = 20 * 1024 * 1024
TAIL_BYTES = 64 * 1024
"""What to ask for first when only the end of the file is fetched; most manifests fit."""

_LENGTH = struct.Struct("<I")
_FOOTER = struct.Struct("<qHH4s")
_MAGIC = b"LANC"
_MAJOR, _MINOR = 0, 2

_LARGEST_FRAGMENT_ID = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """What a manifest file says: the manifest with its indices, and the transaction that made it, if it is inside."""

    manifest: Manifest
    transaction: bytes | None = None


def encode_manifest_file(manifest: Manifest, transaction: bytes | None = None) -> bytes:
    """The bytes of a manifest file; the fragments are neither decoded nor encoded again."""
    return lay_out(manifest, transaction)[0]


def lay_out(manifest: Manifest, transaction: bytes | None = None) -> tuple[bytes, ManifestFile]:
    """The bytes of a manifest file, and what `decode_manifest_file` would make of them."""
    sections: list[bytes] = []
    head = manifest.editable_head()
    for name in ("index_section", "transaction_section", "transaction_section_deprecated"):
        head.ClearField(name)
    at = SEAL_SIZE
    if manifest.indices:
        head.index_section = at
        sections.append(_section(pb.IndexSection(indices=manifest.indices).SerializeToString(deterministic=True)))
        at += len(sections[-1])
    if transaction is not None and len(transaction) <= LARGEST_INLINE_TRANSACTION_BYTES:
        head.transaction_section = at
        sections.append(_section(transaction))
        at += len(sections[-1])
    placed = manifest.changed(head=head)
    message = placed.message
    sections += [_LENGTH.pack(len(message)), message, _FOOTER.pack(at, _MAJOR, _MINOR, _MAGIC)]
    inline = transaction if head.HasField("transaction_section") else None
    return b"".join([seal(*sections), *sections]), ManifestFile(placed, inline)


def decode_manifest_file(data: bytes) -> ManifestFile:
    """What the bytes of a manifest file say; CorruptionError if they contradict themselves."""
    view = memoryview(data)
    at = _manifest_position(view, len(view))
    unseal_front(view, what="manifest")
    message = bytes(view[at + _LENGTH.size : -_FOOTER.size])
    manifest = Manifest(message)
    _check_plausible(manifest.head)
    check_tree(manifest.head.fields)
    indices = _indices(manifest.head, view[:at])
    transaction = _transaction(manifest.head, view[:at])
    if indices:
        manifest = manifest.changed(indices=indices)
    return ManifestFile(_completed(manifest), transaction)


def _completed(manifest: Manifest) -> Manifest:
    """With the facts that old writers leave out, as pylance works them out, so that no reader takes "unset" for "none".

    pylance up to 0.30 leaves out the largest fragment id where that is 0, and up to 0.15 the format of the data files.
    """
    if manifest.head.HasField("max_fragment_id") and manifest.head.HasField("data_format"):
        return manifest
    head = manifest.editable_head()
    if not head.HasField("data_format"):
        files = (file for fragment in manifest.fragments for file in fragment.files)
        new = "2.0" if head.writer_feature_flags & Flag.OLD_V2_FORMAT else "0.1"
        head.data_format.file_format = "lance"
        head.data_format.version = next((data_format_of(file) for file in files), new)
    used = [fragment.id for fragment in manifest.fragments]
    for index in manifest.indices:  # one may still cover a fragment that is gone, whose id must not come back
        used += decode_bitmap(index.fragment_bitmap, what="list of its fragments") if index.fragment_bitmap else ()
    if used and not head.HasField("max_fragment_id"):
        if max(used) > _LARGEST_FRAGMENT_ID:
            raise CorruptionError(
                f"The manifest has a fragment {max(used)}; ids end at {_LARGEST_FRAGMENT_ID}.",
                hint="Restore the manifest from a copy, or open an older version.",
            )
        head.max_fragment_id = max(used)
    return manifest.changed(head=head)


def with_other_indices(data: bytes, indices: Iterable[pb.IndexMetadata]) -> bytes:
    """The bytes of a manifest file with other indices in the same place: no offset and no size changes.

    So the manifest fits a reader that has the message of the old file in memory. InvalidInputError if the indices
    need more room than those that are there.
    """
    if is_sealed_front(data):
        raise InvalidInputError(
            "A manifest with a checksum cannot be changed in place.", hint="Build a new manifest instead."
        )
    at = _manifest_position(memoryview(data), len(data))
    head = pb.ManifestHead.FromString(data[at + _LENGTH.size : -_FOOTER.size])
    if not head.HasField("index_section"):
        raise InvalidInputError("The manifest has no indices to be changed.", hint="Build a new manifest instead.")
    start = head.index_section
    room = _LENGTH.size + len(_read_section(memoryview(data)[:at], start, "index"))
    section = _section(pb.IndexSection(indices=indices).SerializeToString(deterministic=True))
    if len(section) > room:
        raise InvalidInputError(
            f"The indices need {len(section)} bytes, and there is room for {room}.",
            hint="Build a new manifest instead.",
        )
    return data[:start] + section + bytes(room - len(section)) + data[start + room :]


def decode_inline_transaction(data: bytes) -> bytes | None:
    """Only the transaction inside a manifest file, which has a checksum of its own; None if it is not inside."""
    view = memoryview(data)
    at = _manifest_position(view, len(view))
    try:
        # A view, since the message may be long and protobuf takes one, though its stubs want bytes.
        sections = pb.ManifestSections.FromString(cast("bytes", view[at + _LENGTH.size : -_FOOTER.size]))
    except DecodeError as error:
        raise _damaged(f"it is not a valid message ({error})") from error
    return _transaction(sections, view[:at])


def transaction_at_front(front: bytes) -> bytes | None:
    """The transaction of a manifest that conroi wrote, if it stands in these first bytes of the file.

    A manifest of a thousand fragments is long, and a rebase over a version need not read it.
    """
    start = SEAL_SIZE + _LENGTH.size
    if len(front) < start or not is_sealed_front(front):
        return None
    end = start + _LENGTH.unpack_from(front, SEAL_SIZE)[0]
    content = front[start:end]
    # With indices their section comes first; a sealed message can only be the transaction.
    return content if len(front) >= end and is_sealed_message(content) else None


def decode_manifest_tail(tail: bytes, file_size: int) -> ManifestFile | int:
    """What the end of a manifest file says or, if that does not cover it, how many bytes from the end are needed.

    A manifest file holds nothing that a reader does not want, so the answer to a tail that is too short is its size.
    """
    if len(tail) > file_size or len(tail) < min(file_size, _FOOTER.size):
        raise _damaged(f"{len(tail)} bytes were read of {file_size}")
    _manifest_position(memoryview(tail), file_size)
    return decode_manifest_file(tail) if len(tail) == file_size else file_size


def _section(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def _manifest_position(tail: memoryview, file_size: int) -> int:
    """Where the manifest begins, by the footer, checked against the size of the file."""
    if len(tail) < _FOOTER.size:
        raise _damaged(f"it has only {len(tail)} bytes")
    at, major, minor, magic = _FOOTER.unpack(tail[-_FOOTER.size :])
    if magic != _MAGIC:
        raise _damaged("it does not end with the mark of a Lance file")
    if (major, minor) > (_MAJOR, _MINOR):
        raise UnsupportedError(
            f"The manifest file has format {major}.{minor}; this version of conroi knows up to {_MAJOR}.{_MINOR}.",
            hint="Upgrade conroi.",
        )
    length = file_size - _FOOTER.size - _LENGTH.size - at
    if at < 0 or length < 0:
        raise _damaged(f"its footer points to byte {at} of {file_size}")
    start = len(tail) - (file_size - at)
    if start >= 0 and _LENGTH.unpack_from(tail, start)[0] != length:
        raise _damaged("the length of the message is not the one that the footer says")
    return at


def _check_plausible(head: pb.ManifestHead) -> None:
    """Facts that every manifest states; a damaged message that still parses often lacks one."""
    if head.version == 0:
        raise _damaged("it has no version number")
    is_named = head.data_format.file_format == "lance" and head.data_format.version
    if head.HasField("data_format") and not is_named:
        raise _damaged("it does not say which format its data files have")
    if not head.HasField("timestamp"):
        raise _damaged("it does not say when it was written")


def _indices(head: pb.ManifestHead, sections: memoryview) -> tuple[pb.IndexMetadata, ...]:
    if not head.HasField("index_section"):
        return ()
    content = _read_section(sections, head.index_section, "index")
    try:
        found = pb.IndexSection.FromString(content).indices
    except DecodeError as error:
        raise _damaged(f"its index section is not a valid message ({error})") from error
    if any(len(index.uuid.uuid) != 16 for index in found):
        raise _damaged("an index in it has no id")
    return tuple(found)


def _transaction(head: pb.ManifestHead | pb.ManifestSections, sections: memoryview) -> bytes | None:
    # pylance 14 moved the offset from field 21 to 23; older writers know only 21.
    if head.HasField("transaction_section"):
        return _read_section(sections, head.transaction_section, "transaction")
    if head.HasField("transaction_section_deprecated"):
        return _read_section(sections, head.transaction_section_deprecated, "transaction")
    return None


def _read_section(sections: memoryview, at: int, what: str) -> bytes:
    start = at + _LENGTH.size
    if start > len(sections):
        raise _damaged(f"its {what} section would begin at byte {at}, after the sections end")
    end = start + _LENGTH.unpack_from(sections, at)[0]
    if end > len(sections):
        raise _damaged(f"its {what} section would end at byte {end}, after the sections end")
    return bytes(sections[start:end])


def _damaged(how: str) -> CorruptionError:
    return CorruptionError(
        f"The manifest file is damaged: {how}.",
        hint="Open an older version with at(version=…), or restore the file from a copy.",
    )
