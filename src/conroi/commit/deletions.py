"""Deletion vectors on disk: reading one, and writing new ones."""

from __future__ import annotations

from collections.abc import Mapping

from pyroaring import BitMap

from conroi.commit.files import TableFiles
from conroi.conflicts import facts
from conroi.format import lance_pb2 as pb
from conroi.format.deletions import decode_deletions, encode_deletions
from conroi.format.manifest import Manifest
from conroi.format.naming import deletion_path
from conroi.operations import Delete, Operation, Update
from conroi.operations.update import REWRITE_ROWS
from conroi.stores.bases import objects_of_base
from conroi.stores.cache import BoundedCache
from conroi.stores.objects import Objects

VECTORS: BoundedCache[BitMap] = BoundedCache(16 * 1024 * 1024)
"""By table and path: the rows that are gone. Files of deletions never change, and their names are never used twice."""
_OVERHEAD_BYTES = 16 * 1024
"""What a vector may take in memory beyond the size of its file."""


def load_deletions(objects: Objects, manifest: Manifest, fragment: pb.DataFragment) -> BitMap:
    """The rows of the fragment that are gone; empty if it has no deletion vector. Read only: others get it too."""
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


def affected_rows(objects: Objects, operation: Operation, base: Manifest) -> dict[int, BitMap] | None:
    """The rows that a change deletes or moves, by its wire form: its deletion vectors have them, its base's have not.

    None for a change that is not about rows, or gives rows new values where they are, which no deletion vector shows.
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
    files: TableFiles, vectors: Mapping[int, BitMap], read_version: int, *, as_bitmap: bool = False
) -> dict[int, tuple[pb.DeletionFile, str]]:
    """Write one deletion file per fragment; by fragment, what the manifest says of it and its path."""
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
        files.objects.put_unseen(path, data)
        VECTORS.put((files.root, path), gone, len(data) + _OVERHEAD_BYTES)
        written[fragment_id] = (file, path)
    return written
