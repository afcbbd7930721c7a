"""Validation of a version before pylance opens it: pylance opens files by path, follows links, trusts deletion files.

What is checked of a version: its paths stay below its folders; its bases are inside the lake or table, or allowed by
the caller; on a local disk its folders are not links, and its data, deletion and index files are regular files; its
deletion files have the expected checksum and counts; a fragment that claims very many rows has them. A file is checked
once per process, a deletion file again if it changed on disk, the folders every time.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import TypeAlias

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import BLOB_EXTENSION
from conroi.format.naming import check_relative_path, index_dir
from conroi.format.on_disk import DATA_DIR, DELETIONS_DIR, INDICES_DIR
from conroi.format.row_ids import count_versions
from conroi.snapshots.deletions import verify_deletions
from conroi.snapshots.snapshot import Snapshot
from conroi.storage.base_paths import base_objects
from conroi.storage.cache import BoundedCache
from conroi.storage.local import check_folders, local_folder
from conroi.storage.local_folders import LocalFolder, irregular_kind, store_error
from conroi.storage.objects import Objects

_FOLDERS = (DATA_DIR, DELETIONS_DIR, INDICES_DIR)
_SEEN: BoundedCache[frozenset[str]] = BoundedCache(64 * 1024 * 1024)
"""By root: the files of the version that was validated last."""
_NAME_BYTES = 160
"""Size of a path in memory, in bytes."""
_COUNTED: BoundedCache[int] = BoundedCache(4 * 1024 * 1024)
"""By path: the rows of files that were opened for their count."""
PLAUSIBLE_ROWS = 1 << 24
"""Number of rows up to which the count of a fragment is trusted.

pylance makes addresses for as many rows as the manifest says, without a look at the file if no column is needed: 2^32
of them take 32 GiB. The files of fragments with more are opened once in a process.
"""

Place: TypeAlias = tuple[Objects, str]
"""Files, and the folder in them that has the data files."""


def admit(objects: Objects, snapshot: Snapshot, rows_in_file: Callable[[Objects, str], int]) -> None:
    """Raise unless pylance may read this version: CorruptionError, or InvalidInputError for a base.

    `rows_in_file` opens a data file and tells how many rows it has.
    """
    if snapshot.is_admitted:
        return
    manifest = snapshot.manifest
    bases = {base.id: base for base in manifest.head.base_paths}
    own: Place = (objects, DATA_DIR)
    places: dict[int, Place] = {}

    def place_of(message: pb.DataFile | pb.DeletionFile | pb.IndexMetadata) -> Place:
        """Where its files are; a base is looked at if something is under it."""
        base = bases.get(message.base_id) if message.HasField("base_id") else None
        if base is None:  # pylance refuses a number that there is no base for
            return own
        if base.id not in places:
            places[base.id] = base_objects(objects, base.path), DATA_DIR if base.is_dataset_root else ""
        return places[base.id]

    has_blobs = any(field.extension_name == BLOB_EXTENSION for field in manifest.fields)
    needed: dict[str, tuple[Objects, set[str]]] = {}
    claims: list[tuple[Objects, str, pb.DataFragment]] = []
    for fragment in manifest.fragments:
        for file in fragment.files:
            where, folder = place_of(file)
            path = f"{folder}/{check_relative_path(file.path)}" if folder else check_relative_path(file.path)
            paths = needed.setdefault(where.root, (where, set()))[1]
            paths.add(path)
            if fragment.physical_rows > PLAUSIBLE_ROWS and folder == DATA_DIR and file.file_major_version >= 2:
                claims.append((where, file.path, fragment))
            if has_blobs:
                paths.add(path.removesuffix(".lance") + "/")
        _check_versions(objects, fragment)
        if fragment.HasField("deletion_file"):
            place_of(fragment.deletion_file)
    for index in manifest.indices:
        where, _ = place_of(index)
        for index_file in index.files:
            check_relative_path(index_file.path)
        if len(index.uuid.uuid) == 16:
            needed.setdefault(where.root, (where, set()))[1].add(f"{index_dir(uuid.UUID(bytes=index.uuid.uuid))}/")
    for where in (objects, *(where for where, _ in places.values())):
        check_folders(where, _FOLDERS)
    for where, paths in needed.values():
        _check_regular(where, paths)
    verify_deletions(objects, manifest)
    for where, name, fragment in claims:
        _check_rows(where, name, fragment, rows_in_file)


def _check_versions(objects: Objects, fragment: pb.DataFragment) -> None:
    """pylance expands these to one number for each row that they say there is, when it compacts."""
    for versions in (fragment.inline_created_at_versions, fragment.inline_last_updated_at_versions):
        if versions and count_versions(versions) > max(fragment.physical_rows, PLAUSIBLE_ROWS):
            raise CorruptionError(
                f"The manifest has row versions for more rows than fragment {fragment.id} has.",
                table=objects.root,
                hint="Open an older version of the table; doctor() says what is affected.",
            )


def _check_rows(
    objects: Objects, name: str, fragment: pb.DataFragment, rows_in_file: Callable[[Objects, str], int]
) -> None:
    key = f"{objects.root}/{name}"
    rows = _COUNTED.get(key)
    if rows is None:
        rows = rows_in_file(objects, name)
        _COUNTED.put(key, rows, _NAME_BYTES)
    if rows != fragment.physical_rows:
        raise CorruptionError(
            f"The manifest says that fragment {fragment.id} has {fragment.physical_rows:,} rows, but its file {name} "
            f"has {rows:,}.",
            table=objects.root,
            hint="Open an older version of the table, or restore the file from a copy; doctor() says what is affected.",
        )


def _check_regular(objects: Objects, needed: set[str]) -> None:
    if not objects.is_local:
        return
    seen = _SEEN.get(objects.root) or frozenset[str]()
    unseen = needed - seen
    if not unseen:
        return
    local = local_folder(objects)
    by_folder: dict[str, list[str]] = {}
    for path in unseen:
        folder, _, name = path.rpartition("/")
        by_folder.setdefault(folder, []).append(name)
    missing: set[str] = set()
    for folder, names in by_folder.items():
        for name in _refused_names(local, folder, names):
            missing.add(f"{folder}/{name}" if folder else name)
    kept = frozenset(needed - missing)
    _SEEN.put(objects.root, kept, _NAME_BYTES * len(kept))


def _refused_names(local: LocalFolder, folder: str, names: list[str]) -> Iterator[str]:
    """Look at these files of a folder, or at all of it for ''; the names that are not there."""
    try:
        with local.opened(folder) as above:
            for name in filter(None, names):
                try:
                    mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
                except OSError:
                    yield name
                    continue
                if irregular_kind(mode) is not None:
                    raise local.refused(f"{folder}/{name}", mode)
        if "" in names:
            for name, found in local.entries(folder):
                if irregular_kind(found.st_mode) is not None:
                    raise local.refused(f"{folder}/{name}", found.st_mode)
    except (FileNotFoundError, NotADirectoryError):
        yield from names
    except OSError as error:
        raise store_error(error, "open", folder, local.folder) from error
