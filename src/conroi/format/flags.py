"""Feature flags: the capabilities that a reader and a writer need for a table.

A manifest has two words of bits. An unknown bit in the reader's word forbids reading, one in the writer's word forbids
writing. pylance reads for us: we read what pylance 14 reads, and the installed one is asked too. We build manifests
ourselves, so we write only where we know the meaning of every bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from conroi.errors import CorruptionError, UnsupportedError
from conroi.format import lance_pb2 as pb


class Flag(IntFlag):
    """The bits, as pylance 14 enforces them."""

    DELETION_FILES = 1
    STABLE_ROW_IDS = 2
    OLD_V2_FORMAT = 4
    TABLE_CONFIG = 8
    BASE_PATHS = 16
    NO_TRANSACTION_FILE = 32
    DATA_OVERLAYS = 64
    COVERING_INDICES = 128
    MIXED_FILE_VERSIONS = 256
    FRAGMENT_REUSE_WITH_STABLE_ROW_IDS = 512
    TAGGED_FRAGMENT_REUSE = 1024
    SPILLED_ROW_LINEAGE = 2048
    FRAGMENT_TREE = 4096
    MANAGED_BLOBS = 16384
    FIELD_IDS_NOT_REUSED = 32768
    ZONE_WRITE_SEED = 65536


_WRITABLE = (
    Flag.DELETION_FILES
    | Flag.STABLE_ROW_IDS
    | Flag.OLD_V2_FORMAT
    | Flag.TABLE_CONFIG
    | Flag.BASE_PATHS
    | Flag.NO_TRANSACTION_FILE
    | Flag.COVERING_INDICES
)
_READABLE = (
    _WRITABLE | Flag.MIXED_FILE_VERSIONS | Flag.TAGGED_FRAGMENT_REUSE | Flag.SPILLED_ROW_LINEAGE | Flag.MANAGED_BLOBS
)
_IN_BOTH_WORDS = Flag.MIXED_FILE_VERSIONS | Flag.TAGGED_FRAGMENT_REUSE | Flag.MANAGED_BLOBS | Flag.ZONE_WRITE_SEED
_ORDINARY = int(Flag.DELETION_FILES | Flag.STABLE_ROW_IDS | Flag.TABLE_CONFIG | Flag.BASE_PATHS)
"""Bits that need no second look: known to readers and writers, in whichever word they are."""
_STICKY_READER = int(Flag.STABLE_ROW_IDS | Flag.MIXED_FILE_VERSIONS | Flag.TAGGED_FRAGMENT_REUSE | Flag.MANAGED_BLOBS)
_STICKY_WRITER = _STICKY_READER | int(Flag.FIELD_IDS_NOT_REUSED)


@dataclass(frozen=True, slots=True)
class FeatureFlags:
    """The two words of a manifest."""

    reader: int
    writer: int


def require_readable(head: pb.ManifestHead) -> None:
    """Refuse a table whose reader flags this version of conroi does not know."""
    if _is_ordinary(head):
        return
    _refuse_contradictions(head)
    _refuse(_beyond(head.reader_feature_flags, _READABLE), word="reader", verb="read")


def require_writable(head: pb.ManifestHead) -> None:
    """Refuse a table whose flags this version of conroi does not know; the reader flags bind a writer, too."""
    if not _is_ordinary(head):
        _refuse_unknown_to_writers(head)
    # Its manifest files also hold the values of dictionary columns, which a rewrite of ours would lose.
    if head.data_format.version.startswith("0."):
        raise UnsupportedError(
            f"This version of conroi cannot write to the table: its data files have the old format "
            f"{head.data_format.version}.",
            hint="Copy the rows into a new table, whose data files have version 2.0 or newer.",
        )


def _is_ordinary(head: pb.ManifestHead) -> bool:
    # Plain ints: this is asked for every version that a commit passes over, and enum arithmetic is slow.
    both = head.reader_feature_flags | head.writer_feature_flags
    return not both & ~_ORDINARY and not head.HasField("max_allocated_field_id")


def _refuse_unknown_to_writers(head: pb.ManifestHead) -> None:
    require_readable(head)
    _refuse(_beyond(head.writer_feature_flags, _WRITABLE), word="writer", verb="write to")
    _refuse(_beyond(head.reader_feature_flags, _WRITABLE), word="reader", verb="write to")


def extraordinary_reader_bits(head: pb.ManifestHead) -> list[int]:
    """The bits of the reader's word that not every reader knows."""
    rare = head.reader_feature_flags & ~_ORDINARY
    return [1 << place for place in range(rare.bit_length()) if rare >> place & 1]


def computed_flags(head: pb.ManifestHead, *, has_deletions: bool) -> FeatureFlags:
    """The words for a new manifest with this head: sticky bits as they were, the rest from what is in it."""
    both = int(Flag.DELETION_FILES) if has_deletions else 0
    if head.base_paths:
        both |= int(Flag.BASE_PATHS)
    only_writer = int(Flag.TABLE_CONFIG) if head.config else 0
    reader = head.reader_feature_flags & _STICKY_READER | both
    writer = head.writer_feature_flags & _STICKY_WRITER | both | only_writer
    return FeatureFlags(reader, writer)


def _refuse_contradictions(head: pb.ManifestHead) -> None:
    half_set = (head.reader_feature_flags ^ head.writer_feature_flags) & _IN_BOTH_WORDS
    if half_set:
        raise CorruptionError(
            f"The manifest sets {described(half_set)} for readers or for writers, but not for both.",
            hint="The manifest is damaged, or its writer is broken; open another version.",
        )
    # This one is a writer's business, and says that field 24 has the largest field id ever used.
    says_mark = bool(head.writer_feature_flags & Flag.FIELD_IDS_NOT_REUSED)
    if head.reader_feature_flags & Flag.FIELD_IDS_NOT_REUSED or says_mark != head.HasField("max_allocated_field_id"):
        raise CorruptionError(
            f"The manifest contradicts itself about {described(Flag.FIELD_IDS_NOT_REUSED)}.",
            hint="The manifest is damaged, or its writer is broken; open another version.",
        )


def _beyond(word: int, known: Flag) -> int:
    return word & ~int(known)  # of a Flag, `~` would leave out the bits that have no name


def _refuse(unknown: int, *, word: str, verb: str) -> None:
    if unknown:
        raise UnsupportedError(
            f"This version of conroi cannot {verb} the table: its {word} flags ask for {described(unknown)}.",
            hint="Upgrade conroi, or use the program that made the table.",
        )


def described(bits: int) -> str:
    """The bits with their names, such as `64 (DATA_OVERLAYS)`."""
    names = {flag.value: flag.name for flag in Flag}
    single = [1 << place for place in range(bits.bit_length()) if bits >> place & 1]
    return ", ".join(f"{bit} ({names.get(bit, 'unknown')})" for bit in single)
