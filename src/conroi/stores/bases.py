"""Files of a table that live under another root, the bases of clones and branches; and copying files between roots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from conroi.errors import CorruptionError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import BLOB_EXTENSION
from conroi.format.manifest import Manifest
from conroi.format.naming import data_path
from conroi.parallel import in_parallel
from conroi.stores.objects import Objects, open_objects

_AT_ONCE = 16
"""So many files are copied at a time."""


@dataclass(frozen=True)
class Copy:
    """A file that is to be copied: where it is, and where it goes."""

    source: Objects
    there: str
    path: str

    def into(self, target: Objects) -> None:
        """Copy it."""
        target.copy_from(plain_objects(self.source), self.path, self.there)


def copy_all(target: Objects, copies: Iterable[Copy]) -> None:
    """Copy the files, many at a time; the first error ends it."""
    for _ in in_parallel(lambda copy: copy.into(target), copies, _AT_ONCE):
        pass


def copies_of_data_file(objects: Objects, manifest: Manifest, file: pb.DataFile) -> list[Copy]:
    """The data file and, in a table with blobs, the files beside it that hold the large ones."""
    base = next((b for b in manifest.head.base_paths if file.HasField("base_id") and b.id == file.base_id), None)
    if base is not None and not base.is_dataset_root:  # its files are right there, and not below data/
        source, before = open_objects(base.path, objects.storage_options), ""
    else:
        source, before = objects_of_base(objects, manifest, file.base_id if file.HasField("base_id") else None), "data/"
    found = [Copy(source, f"{before}{file.path}", data_path(file.path))]
    if any(field.extension_name == BLOB_EXTENSION for field in manifest.fields):
        folder = f"{before}{file.path.removesuffix('.lance')}"
        found += [Copy(source, path, f"data/{path.removeprefix(before)}") for path in source.list_names(folder)]
    return found


def plain_objects(objects: Objects) -> Objects:
    """The files themselves, so that a store that can copy within itself sees that it can."""
    inner: Objects | None = getattr(objects, "inner", None)
    return objects if inner is None else plain_objects(inner)


def objects_of_base(objects: Objects, manifest: Manifest, base_id: int | None) -> Objects:
    """Where files with this base id are; the table's own root without one."""
    if base_id is None:
        return objects
    for base in manifest.head.base_paths:
        if base.id == base_id:
            if not base.is_dataset_root:
                raise UnsupportedError(
                    f"Deletion files under the base {base.path} cannot be found: it is not the root of a table.",
                    table=objects.root,
                    hint="Compact those fragments with the program that wrote them.",
                )
            return open_objects(base.path, objects.storage_options)
    raise CorruptionError(
        f"The manifest names base {base_id}, which it does not have.",
        table=objects.root,
        version=manifest.version,
        hint="The manifest is damaged, or its writer is broken; open another version.",
    )
