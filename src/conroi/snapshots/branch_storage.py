"""Table storage on a branch: copy-on-write overlay of the branch folder over the versions from before the branch.

A table on a branch is a Lance branch: a folder `tree/<branch>` below the table, whose manifests reference the files of
the table through a base path. Until the first write to the table on the branch, that folder does not exist. The
versions are then those of the table up to the branch point, and the base path is inserted while they are read. The
first writer copies the newest of them into the folder; from then on pylance sees a branch too.

Base paths are absolute in Lance. Base paths written here also have a name that gives their location relative to the
table, so that a lake that was moved is still read correctly: see `resolved`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from conroi.errors import NotFoundError
from conroi.format.flags import Flag
from conroi.format.manifest import Manifest
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from conroi.format.naming import parse_manifest_name, parse_staged_name
from conroi.format.on_disk import IDEMPOTENCY_DIR, RELATIVE_BASE_PREFIX, TRANSACTIONS_DIR, TREE_DIR, VERSIONS_DIR
from conroi.operations.base import Step
from conroi.operations.clone import Clone
from conroi.storage.objects import ObjectExists, ObjectInfo, Objects

_ROOT = "."


def branch_folder(location: str, branch: str) -> str:
    """The folder of a branch of the table in this folder."""
    return f"{location}/{TREE_DIR}/{branch}"


# ------------------------------------------------------------------------------ manifests


def seen_from(own: str, branch: str, folder: str, data: bytes) -> bytes:
    """A manifest file of the table in `folder`, as its branch has it in its `own` folder."""
    file = decode_manifest_file(data)
    return encode_manifest_file(as_branch(own, branch, folder, file.manifest), file.transaction)


def as_branch(own: str, branch: str, folder: str, manifest: Manifest) -> Manifest:
    """The manifest with the base path inserted; its author is preserved."""
    table = _table_of(own)
    clone = Clone(
        is_shallow=True,
        ref_version=manifest.version,
        ref_path=folder,
        ref_name=RELATIVE_BASE_PREFIX + relative_to(table, folder),
        branch_name=branch,
    ).apply(Manifest(b""), Step(manifest.version, source=resolved(folder, manifest)))
    head = clone.editable_head()
    for base in head.base_paths:  # those of a branch in between were relative to its own table
        if base.name.startswith(RELATIVE_BASE_PREFIX):
            base.name = RELATIVE_BASE_PREFIX + relative_to(table, base.path)
    head.reader_feature_flags |= Flag.BASE_PATHS
    head.writer_feature_flags |= Flag.BASE_PATHS
    return clone.changed(head=head)


def resolved(folder: str, manifest: Manifest) -> Manifest:
    """The manifest with its base paths resolved to their current location, if it is in a branch folder of ours."""
    branch = manifest.head.branch
    if not branch or not folder.endswith(f"/{TREE_DIR}/{branch}"):
        return manifest
    table = _table_of(folder)
    head = manifest.editable_head()
    for base in head.base_paths:
        if base.name.startswith(RELATIVE_BASE_PREFIX):
            base.path = joined(table, base.name.removeprefix(RELATIVE_BASE_PREFIX))
    return manifest if head.base_paths == manifest.head.base_paths else manifest.changed(head=head)


def _table_of(folder: str) -> str:
    """The folder of the table itself, given its folder on a branch."""
    return folder.rpartition(f"/{TREE_DIR}/")[0]


def relative_to(table: str, folder: str) -> str:
    """The path of a folder relative to the folder of a table.

    >>> relative_to("/lake/a.lance", "/lake/a.lance"), relative_to("/lake/a.lance", "/lake/a.lance/tree/dev")
    ('.', 'tree/dev')
    >>> relative_to("/lake/a.lance", "/lake/b.lance/tree/dev")
    '../b.lance/tree/dev'
    """
    up, above = "", table
    while folder != above and not folder.startswith(f"{above}/"):
        up, above = f"../{up}", above.rpartition("/")[0]
    return f"{up}{folder[len(above) + 1 :]}".rstrip("/") or _ROOT


def joined(table: str, inside: str) -> str:
    """The folder at a relative path, given the folder of a table.

    >>> joined("s3://bucket/lake/a.lance", "../b.lance/tree/dev"), joined("/lake/a.lance", ".")
    ('s3://bucket/lake/b.lance/tree/dev', '/lake/a.lance')
    """
    while inside.startswith("../"):
        table, inside = table.rpartition("/")[0], inside.removeprefix("../")
    return table if inside == _ROOT else f"{table}/{inside}"


# ------------------------------------------------------------------------------ files


@dataclass(frozen=True, slots=True)
class Origin:
    """The folder that has the versions up to this one."""

    objects: Objects
    version: int


class _Forked:
    """Overlay: the files of a branch's folder, over the versions before the branch at their origin."""

    def __init__(self, inner: Objects, branch: str, origins: Sequence[Origin]) -> None:
        self.inner = inner
        self._branch = branch
        self._origins = origins

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return f"Forked({self.inner!r})"

    def get(self, path: str) -> bytes:
        try:
            return self.inner.get(path)
        except NotFoundError:
            inherited = self._inherited(path)
            if inherited is None:
                raise
            return inherited

    def get_range(self, path: str, start: int, end: int) -> bytes:
        try:
            return self.inner.get_range(path, start, end)
        except NotFoundError:
            return self.get(path)[start:end]

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        try:
            return self.inner.get_tail(path, length)
        except NotFoundError:
            data = self.get(path)
            return data[max(0, len(data) - length) :], len(data)

    def head(self, path: str) -> ObjectInfo | None:
        found = self.inner.head(path)
        if found is None:
            for origin in self.holding(path):
                found = origin.objects.head(path)
                if found is not None:
                    break
        return found

    def list_names(self, prefix: str, *, after: str | None = None) -> Iterator[str]:
        return (info.path for info in self._listed(prefix, lambda objects: _named(objects, prefix, after)))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        return self._listed(prefix, lambda objects: objects.list(prefix, after=after))

    def _listed(self, prefix: str, listing: Callable[[Objects], Iterator[ObjectInfo]]) -> Iterator[ObjectInfo]:
        if not prefix.startswith((VERSIONS_DIR, IDEMPOTENCY_DIR)):
            yield from listing(self.inner)
            return
        seen: set[str] = set()
        for info in listing(self.inner):
            seen.add(info.path)
            yield info
        for origin in self._origins:
            for info in listing(origin.objects):
                version = _version_of(info.path)
                if info.path not in seen and version is not None and version <= origin.version:
                    seen.add(info.path)
                    yield info

    def rename_if_absent(self, source: str, target: str) -> None:
        try:
            self.inner.rename_if_absent(source, target)
        except NotFoundError:
            inherited = self._inherited(source)
            if inherited is None:
                raise
            self.inner.put_if_absent(target, inherited)

    # -------------------------------------------------------------------------- what is elsewhere

    def _inherited(self, path: str) -> bytes | None:
        for origin in self.holding(path):
            try:
                data = origin.objects.get(path)
            except NotFoundError:
                continue
            is_manifest = path.startswith(VERSIONS_DIR)
            return seen_from(self.inner.root, self._branch, origin.objects.root, data) if is_manifest else data
        return None

    def holding(self, path: str) -> Iterator[Origin]:
        """The origins that may have the file."""
        if path.startswith(f"{TRANSACTIONS_DIR}/"):
            yield from self._origins
            return
        version = _version_of(path) if path.startswith(f"{VERSIONS_DIR}/") else None
        if version is not None:
            yield from (origin for origin in self._origins if version <= origin.version)


def _named(objects: Objects, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
    return (ObjectInfo(path, 0, 0) for path in objects.list_names(prefix, after=after))


def _version_of(path: str) -> int | None:
    """The version that a file belongs to: a manifest, a staged manifest, or the record of an idempotency key."""
    name = path.rpartition("/")[2]
    if path.startswith(IDEMPOTENCY_DIR):
        return int(name) if name.isdecimal() else None
    staged = parse_staged_name(name)
    final = parse_manifest_name(name) if staged is None else staged[0]
    return None if final is None or final.is_detached else final.version


def forked_objects(inner: Objects, branch: str, origins: Sequence[Origin]) -> Objects:
    """Overlay of a branch's folder over the versions from before the branch."""
    return cast("Objects", _Forked(inner, branch, origins))


def holder_of(objects: Objects, path: str) -> Objects:
    """The folder that has a manifest: the branch's own, or the one that it is inherited from.

    Collectors process each folder by itself, so records for them belong there.
    """
    if isinstance(objects, _Forked):
        for folder in (objects.inner, *(origin.objects for origin in objects.holding(path))):
            if folder.head(path) is not None:
                return folder
        return objects.inner
    return objects


def is_inherited(objects: Objects, path: str) -> bool:
    """Whether a manifest is from before the branch and was not yet copied into the branch's own folder."""
    return isinstance(objects, _Forked) and objects.inner.head(path) is None


def write_fork(objects: Objects, path: str) -> None:
    """Copy a version from before the branch into the branch's own folder; idempotent under concurrency.

    Does nothing where there is no branch.
    """
    if isinstance(objects, _Forked) and objects.inner.head(path) is None:
        with contextlib.suppress(ObjectExists):
            objects.inner.put_if_absent(path, objects.get(path))
