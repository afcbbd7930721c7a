"""Deletion vector files: read existing ones and write new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pyroaring import BitMap

from conroi.conflicts import facts
from conroi.errors import CorruptionError, NotFoundError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.deletions import decode_deletions, encode_deletions
from conroi.format.manifest import Manifest
from conroi.format.naming import deletion_path
from conroi.operations import Delete, Operation, Update
from conroi.operations.update import REWRITE_ROWS
from conroi.snapshots.snapshot import TableStorage
from conroi.storage.base_paths import objects_of_base
from conroi.storage.cache import BoundedCache
from conroi.storage.local_folders import LocalFolder
from conroi.storage.objects import Objects, reach_of
from conroi.storage.parallel import in_parallel

VECTORS: BoundedCache[BitMap] = BoundedCache(16 * 1024 * 1024)
"""Cache of deletion vectors, by table and path. Deletion files are immutable, and their names are never reused."""
Identity: TypeAlias = tuple[object, ...]
_VERIFIED: BoundedCache[Identity] = BoundedCache(16 * 1024 * 1024)
"""By table and path: deletion files whose checksum was verified."""
_IDENTITY_BYTES = 400
_AT_ONCE = 16
_OVERHEAD_BYTES = 16 * 1024
"""Upper bound of a vector's size in memory beyond the size of its file, in bytes."""


def load_deletions(objects: Objects, manifest: Manifest, fragment: pb.DataFragment) -> BitMap:
    """The deleted rows of the fragment; empty if it has no deletion vector. Shared: must not be modified."""
    if not fragment.HasField("deletion_file"):
        return BitMap()
    file = fragment.deletion_file
    where = objects_of_base(objects, manifest, file.base_id if file.HasField("base_id") else None)
    path = deletion_path(fragment.id, file)
    known = VECTORS.get((where.root, path))
    if known is None:
        data = where.get(path)
        known = decode_deletions(data, file, physical_rows=fragment.physical_rows)
        VECTORS.put((where.root, path), known, len(data) + _OVERHEAD_BYTES)
    return known


def verify_deletions(objects: Objects, manifest: Manifest) -> None:
    """Verify the deletion files of a version against their checksums and the manifest, before pylance reads them.

    Each is read once per process; on a local disk again if the file was replaced.
    """
    unread: list[tuple[Objects, str, pb.DataFragment, Identity]] = []
    for fragment in manifest.fragments:
        if not fragment.HasField("deletion_file"):
            continue
        file = fragment.deletion_file
        try:
            where = objects_of_base(objects, manifest, file.base_id if file.HasField("base_id") else None)
        except UnsupportedError:  # only the program that wrote it knows where it is
            continue
        path = deletion_path(fragment.id, file)
        identity = _identity(where, path)
        is_known = not where.is_local and VECTORS.get((where.root, path)) is not None
        if not is_known and _VERIFIED.get((where.root, path)) != identity:
            unread.append((where, path, fragment, identity))
    if objects.is_local or len(unread) < 2:
        for each in unread:
            _verify(*each)
        return
    for _ in in_parallel(lambda each: _verify(*each), unread, _AT_ONCE):
        pass


def _verify(where: Objects, path: str, fragment: pb.DataFragment, identity: Identity) -> None:
    try:
        data = where.get(path)
        rows = decode_deletions(data, fragment.deletion_file, physical_rows=fragment.physical_rows)
    except NotFoundError as error:
        raise CorruptionError(
            f"A file that the table needs is missing: {path}",
            table=where.root,
            hint="It was deleted, or collected as part of an old version; open a newer version.",
        ) from error
    except CorruptionError as error:
        VECTORS.drop((where.root, path))
        raise CorruptionError(f"{path}: {error.message}", table=where.root, hint=error.hint) from error
    VECTORS.put((where.root, path), rows, len(data) + _OVERHEAD_BYTES)
    _VERIFIED.put((where.root, path), identity, _IDENTITY_BYTES)


def _identity(where: Objects, path: str) -> Identity:
    """Identity of a file on a local disk (to detect a replacement); in object stores, names are never reused."""
    if not where.is_local:
        return ()
    try:
        found = LocalFolder(where.root, reach_of(where).root).stat(path)
    except OSError:
        return ("missing",)
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def affected_rows(objects: Objects, operation: Operation, base: Manifest) -> dict[int, BitMap] | None:
    """The rows that a change deletes or moves: those that its deletion vectors have and the base's have not.

    None for a change that is not about rows, or that updates values in place, which no deletion vector shows.
    """
    if not isinstance(operation, Delete | Update):
        return None
    if isinstance(operation, Update) and (operation.update_mode != REWRITE_ROWS or operation.fields_modified):
        return None
    rows: dict[int, BitMap] = {}
    known = base.fragments_by_id
    for number in facts.removed_fragments(operation) & known.keys():
        everything = BitMap(range(known[number].physical_rows))
        rows[number] = everything - load_deletions(objects, base, known[number])
    for fragment in operation.updated_fragments:
        if fragment.id in known:
            before = load_deletions(objects, base, known[fragment.id])
            rows[fragment.id] = load_deletions(objects, base, fragment) - before
    return rows


def write_deletions(
    files: TableStorage, vectors: Mapping[int, BitMap], read_version: int, *, as_bitmap: bool = False
) -> dict[int, tuple[pb.DeletionFile, str]]:
    """Write one deletion file per fragment; returns, by fragment, its manifest entry and its path."""
    written: dict[int, tuple[pb.DeletionFile, str]] = {}
    for fragment_id, gone in vectors.items():
        file_type, data = encode_deletions(gone, force_bitmap=as_bitmap)
        file = pb.DeletionFile(
            file_type=file_type,
            read_version=read_version,
            id=files.environment.random_u64(),
            num_deleted_rows=len(gone),
        )
        path = deletion_path(fragment_id, file)
        files.objects.put_unique(path, data)
        VECTORS.put((files.root, path), gone, len(data) + _OVERHEAD_BYTES)
        written[fragment_id] = (file, path)
    return written
