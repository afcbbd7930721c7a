"""File names below a table's root: built from facts, and parsed back."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from conroi.errors import CorruptionError, InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.on_disk import (
    DATA_DIR,
    DELETIONS_DIR,
    INDICES_DIR,
    TRANSACTIONS_DIR,
    VERSIONS_DIR,
)

DETACHED_BIT = 1 << 63
_LARGEST_U64 = (1 << 64) - 1
_SUFFIX = ".manifest"
_INVERTED_DIGITS = 20
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class ManifestNaming(Enum):
    """How a table names its manifests; a table keeps the scheme it was made with."""

    V1 = "V1"
    """`7.manifest`."""
    V2 = "V2"
    """`18446744073709551608.manifest`: counted down, so that the newest comes first in a listing."""

    def file_name(self, version: int) -> str:
        """The name below `_versions/`.

        >>> ManifestNaming.V2.file_name(1)
        '18446744073709551614.manifest'
        """
        if is_detached(version):
            return f"d{version}{_SUFFIX}"
        if self is ManifestNaming.V1:
            return f"{version}{_SUFFIX}"
        return f"{_LARGEST_U64 - version:0{_INVERTED_DIGITS}d}{_SUFFIX}"

    def path(self, version: int) -> str:
        """The path below the table's root.

        >>> ManifestNaming.V1.path(7)
        '_versions/7.manifest'
        """
        return f"{VERSIONS_DIR}/{self.file_name(version)}"


@dataclass(frozen=True, slots=True)
class ManifestName:
    """What the name of a manifest says."""

    version: int
    naming: ManifestNaming
    is_detached: bool = False


def is_detached(version: int) -> bool:
    """Whether this is the number of a version that is off the table's line of versions."""
    return bool(version & DETACHED_BIT)


def version_after(version: int) -> int:
    """The number of the next version; UnsupportedError if that would be one off the table's line of versions."""
    if version + 1 >= DETACHED_BIT:
        raise UnsupportedError(
            f"The table is at version {version}, and there are no numbers for more.",
            hint="Make a new table from it with clone(uri, deep=True).",
        )
    return version + 1


@functools.lru_cache(maxsize=16_384)
def parse_manifest_name(file_name: str) -> ManifestName | None:
    """What a file name below `_versions/` says, or None if it is not the final name of a manifest.

    >>> parse_manifest_name("7.manifest")
    ManifestName(version=7, naming=<ManifestNaming.V1: 'V1'>, is_detached=False)
    """
    stem = file_name.removesuffix(_SUFFIX)
    if stem == file_name:
        return None
    found = _parse_detached(stem[1:]) if stem.startswith("d") else _parse_stem(stem)
    # Only names that we would write ourselves count: no padding, no odd digits.
    return found if found is not None and found.naming.file_name(found.version) == file_name else None


def _parse_detached(digits: str) -> ManifestName | None:
    version = _u64(digits)
    if version is None or not is_detached(version):
        return None
    return ManifestName(version, ManifestNaming.V2, is_detached=True)


def _parse_stem(stem: str) -> ManifestName | None:
    number = _u64(stem)
    if number is None:
        return None
    if len(stem) == _INVERTED_DIGITS:
        return ManifestName(_LARGEST_U64 - number, ManifestNaming.V2)
    return ManifestName(number, ManifestNaming.V1)


def _u64(digits: str) -> int | None:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _INVERTED_DIGITS:
        return None
    number = int(digits)
    return number if number <= _LARGEST_U64 else None


def detect_naming(file_names: Iterable[str]) -> ManifestNaming | None:
    """The scheme of a table with these files in `_versions/`; None if there is no manifest among them."""
    parsed = (parse_manifest_name(name) for name in file_names)
    found = {name.naming for name in parsed if name is not None and not name.is_detached}
    if len(found) > 1:
        raise CorruptionError(
            "The table has manifests of both naming schemes, V1 and V2.",
            hint="A migration to V2 was interrupted; run it again without concurrent writers.",
        )
    return found.pop() if found else None


def staged_name(final_name: str, staging_id: uuid.UUID) -> str:
    """The name (or path) under which a manifest waits until its version is published."""
    return f"{final_name}-{staging_id}"


def parse_staged_name(file_name: str) -> tuple[ManifestName, uuid.UUID] | None:
    """The version and id of a staged manifest, or None if the name is not that of one."""
    final, separator, staging_id = file_name.partition(f"{_SUFFIX}-")
    name = parse_manifest_name(final + _SUFFIX)
    if not separator or name is None or not _UUID.fullmatch(staging_id):
        return None
    return name, uuid.UUID(staging_id)


def transaction_path(file_name: str) -> str:
    """The path of a transaction file, whose name stands in the manifest."""
    return f"{TRANSACTIONS_DIR}/{file_name}"


def parse_transaction_name(file_name: str) -> tuple[int, uuid.UUID] | None:
    """The read version and id in `{read_version}-{uuid}.txn`, or None if the name is not of that form."""
    stem = file_name.removesuffix(".txn")
    digits, _, transaction_id = stem.partition("-")
    read_version = _u64(digits)
    if stem == file_name or read_version is None or not _UUID.fullmatch(transaction_id):
        return None
    return read_version, uuid.UUID(transaction_id)


def data_file_name(file_id: uuid.UUID) -> str:
    """The name of a new data file: as pylance spells it, binary digits first to spread over key prefixes."""
    spread, rest = file_id.bytes[:3], file_id.bytes[3:]
    return f"{int.from_bytes(spread, 'big'):024b}{rest.hex()}.lance"


def data_path(file_name: str) -> str:
    """The path of a data file, whose name stands in the manifest."""
    return f"{DATA_DIR}/{file_name}"


def deletion_path(fragment_id: int, file: pb.DeletionFile) -> str:
    """The path of a fragment's deletion file; the manifest stores only its parts."""
    suffix = "bin" if file.file_type == pb.DeletionFile.BITMAP else "arrow"
    return f"{DELETIONS_DIR}/{fragment_id}-{file.read_version}-{file.id}.{suffix}"


def index_dir(index_id: uuid.UUID) -> str:
    """The folder of one index segment."""
    return f"{INDICES_DIR}/{index_id}"


def check_path(path: str) -> None:
    """Refuse a path that could leave the table's root, or that is no file name."""
    if not path or path[0] == "/" or (".." in path and ".." in path.split("/")) or "\0" in path:
        raise InvalidInputError(
            f"{path!r} is not a path inside the table", hint="paths are relative to the table's root, without '..'"
        )


def check_relative_path(path: str) -> str:
    """The path itself if it stays below its folder, else CorruptionError.

    >>> check_relative_path("a/b.lance")
    'a/b.lance'
    """
    segments = path.split("/")
    is_inside = not {"", ".", ".."}.intersection(segments)
    # A scheme or drive letter ("C:", "s3:") makes the first segment a root of its own.
    if not is_inside or "\\" in path or "\x00" in path or ":" in segments[0]:
        raise CorruptionError(
            f"The manifest names the file {path!r}, which is not a plain path inside the table.",
            hint="Do not open this table unless you trust who wrote it; doctor says where the path stands.",
        )
    return path
