"""Base paths: files of a table that live under another root (clones, branches), and copies between roots.

The author of a manifest can name any folder as a base. So a base is used only if it is inside the lake or the table
that was opened, or if the caller allowed it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conroi.errors import ConroiError, CorruptionError, InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import BLOB_EXTENSION
from conroi.format.manifest import Manifest
from conroi.format.naming import data_path
from conroi.storage import open_objects
from conroi.storage.local_folders import is_below
from conroi.storage.location import LocalLocation, parse_location
from conroi.storage.objects import Objects, Reach, plain_objects, reach_of
from conroi.storage.parallel import in_parallel

_AT_ONCE = 16
"""Number of files that are copied in parallel."""


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
    """Copy the files in parallel; stops at the first error."""
    for _ in in_parallel(lambda copy: copy.into(target), copies, _AT_ONCE):
        pass


def copies_of_data_file(objects: Objects, manifest: Manifest, file: pb.DataFile) -> list[Copy]:
    """The data file and, in a table with blobs, the files beside it that hold the large ones."""
    base = next((b for b in manifest.head.base_paths if file.HasField("base_id") and b.id == file.base_id), None)
    if base is not None and not base.is_dataset_root:  # its files are right there, and not below data/
        source, before = base_objects(objects, base.path), ""
    else:
        source, before = objects_of_base(objects, manifest, file.base_id if file.HasField("base_id") else None), "data/"
    found = [Copy(source, f"{before}{file.path}", data_path(file.path))]
    if any(field.extension_name == BLOB_EXTENSION for field in manifest.fields):
        folder = f"{before}{file.path.removesuffix('.lance')}"
        found += [Copy(source, path, f"data/{path.removeprefix(before)}") for path in source.list_names(folder)]
    return found


def objects_of_base(objects: Objects, manifest: Manifest, base_id: int | None) -> Objects:
    """The storage of files with this base id; the table's own root without one."""
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
            return base_objects(objects, base.path)
    raise CorruptionError(
        f"The manifest names base {base_id}, which it does not have.",
        table=objects.root,
        version=manifest.version,
        hint="The manifest is damaged, or its writer is broken; open another version.",
    )


def base_objects(objects: Objects, path: str) -> Objects:
    """The storage of a base of a table, if the table may use that base; InvalidInputError if not."""
    reach = reach_of(objects)
    root = _allowed_root(reach, path)
    if root is None:
        raise InvalidInputError(
            f"The table refers to files below {path!r}, outside of {reach.root}.",
            table=objects.root,
            hint=f"If you trust the table with that folder, open it with allow_bases=[{path!r}].",
        )
    return open_objects(path, objects.storage_options, reach=Reach(root, reach.bases))


def allow_bases(objects: Objects, paths: Sequence[str | os.PathLike[str]] | None) -> None:
    """Allow the table or lake to use files below these folders, for the life of this handle."""
    for path in _checked_bases(paths):
        reach_of(objects).bases.add(path)


def share_reach(clone: Objects, source: Objects) -> None:
    """Allow a clone to use the files of its source, for the life of this handle."""
    theirs = reach_of(source)
    for path in (_spelled(source.root), _spelled(theirs.root), *theirs.bases):
        reach_of(clone).bases.add(path)


def _checked_bases(paths: Sequence[str | os.PathLike[str]] | None) -> set[str]:
    """The folders that an opener names."""
    if paths is None:
        return set()
    is_list = isinstance(paths, Iterable) and not isinstance(paths, str | bytes)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_list or not all(isinstance(path, str | os.PathLike) for path in paths):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(
            f"allow_bases takes a list of folders, and not {str(paths)[:100]!r}.",
            hint='Give a list, such as allow_bases=["/data/other.lance"].',
        )
    return {_spelled(os.fspath(path)) for path in paths}


def _allowed_root(reach: Reach, path: str) -> str | None:
    """The root that the base is below; None if it is below none."""
    try:
        folder = _spelled(path)
    except ConroiError:
        return None
    return next((root for root in (reach.root, *sorted(reach.bases)) if _is_inside(folder, root)), None)


def _spelled(path: str) -> str:
    """The canonical spelling of a location, as pylance reads it: `..` and `file://` are resolved, links are not."""
    location = parse_location(path)
    return location.folder if isinstance(location, LocalLocation) else location.uri()


def _is_inside(folder: str, root: str) -> bool:
    if "://" in folder or "://" in root:
        return is_below(folder, root)
    # Both by what they lead to: a root may be reached by several names, and a link below it leads out of it.
    return is_below(os.path.realpath(folder), os.path.realpath(root))
