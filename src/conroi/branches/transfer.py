"""Copy of a table version between branches: its files go into the target branch's own folders.

Files that the target branch can already reach (its own, and those of the table that it branched off) stay where they
are. Files of the source branch alone are copied, within the store where possible. File names are never reused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

import numpy as np

from conroi.commit.change import Plan
from conroi.conflicts import Staged
from conroi.data.table_version import TableVersion
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.naming import deletion_path, index_dir
from conroi.format.row_ids import decode_versions, encode_versions
from conroi.operations import Append
from conroi.operations.folded import FoldedMerge, FoldedOverwrite
from conroi.snapshots.snapshot import TableStorage
from conroi.storage.base_paths import Copy, copies_of_data_file, objects_of_base
from conroi.storage.objects import Objects
from conroi.storage.parallel import together

_Item = pb.DataFile | pb.DeletionFile | pb.IndexMetadata


class Bringing:
    """Copies one version from a branch to another."""

    def __init__(self, source: TableVersion, files: TableStorage, target: Manifest | None) -> None:
        self._source = source
        self._files = files
        self._target = target
        self._bases = {} if target is None else {base.path: base.id for base in target.head.base_paths}
        self._copies: dict[str, Copy] = {}
        """By path, the files to copy."""

    def plan(self) -> Plan:
        """Copy the necessary files, and make the source's version the next one of the target."""
        result = self._result()
        self.copy()
        metadata = dict(result.head.schema_metadata)
        fragments, fields = result.fragments, tuple(result.fields)
        names = ("Branch",)
        if self._target is None:
            config = dict(result.head.config)
            made = FoldedOverwrite(fragments, fields, metadata, config, result=result, statements=names)
            return Plan(Staged(operation=made, base=Manifest(b"")))
        operation = FoldedMerge(fragments, fields, metadata, result=result, statements=names)
        return Plan(Staged(operation=operation, base=self._target), must_not_move=True)

    def copy(self) -> None:
        """Copy the files that the target cannot reach."""
        tasks = [partial(copy.into, self._files.objects) for copy in self._copies.values()]
        together(tasks, is_local=self._files.objects.is_local)

    def _result(self) -> Manifest:
        source = self._source.manifest
        head = source.editable_head()
        head.ClearField("branch")
        del head.base_paths[:]
        head.version = 0
        if self._target is not None:
            now = self._target.head
            head.version = now.version
            head.base_paths.extend(now.base_paths)
            if now.branch:
                head.branch = now.branch
            if head.HasField("max_fragment_id") or now.HasField("max_fragment_id"):
                head.max_fragment_id = max(head.max_fragment_id, now.max_fragment_id)
            head.next_row_id = max(head.next_row_id, now.next_row_id)
        return source.changed(
            head=head,
            fragments=[self.fragment(fragment) for fragment in source.fragments],
            indices=[self._index(index) for index in source.indices],
        )

    def fragment(self, fragment: pb.DataFragment) -> pb.DataFragment:
        """The fragment as the target names its files."""
        copy = pb.DataFragment()
        copy.CopyFrom(fragment)
        for file in copy.files:
            if self._is_reachable(file) is None:
                self._keep(copies_of_data_file(self._source.files.objects, self._source.manifest, file))
            self._place(file)
        if copy.HasField("deletion_file"):
            if self._is_reachable(copy.deletion_file) is None:
                path = deletion_path(copy.id, copy.deletion_file)
                self._keep([Copy(self._where(copy.deletion_file), path, path)])
            self._place(copy.deletion_file)
        next_version = 1 if self._target is None else self._target.version + 1
        if copy.HasField("inline_created_at_versions"):
            copy.inline_created_at_versions = _not_after(next_version, copy.inline_created_at_versions)
        if copy.HasField("inline_last_updated_at_versions"):
            copy.inline_last_updated_at_versions = _not_after(next_version, copy.inline_last_updated_at_versions)
        return copy

    def _index(self, index: pb.IndexMetadata) -> pb.IndexMetadata:
        copy = pb.IndexMetadata()
        copy.CopyFrom(index)
        folder = index_dir(UUID(bytes=index.uuid.uuid))
        if self._is_reachable(index) is None:
            source = self._where(index)
            self._keep([Copy(source, path, path) for path in source.list_names(folder)])
        self._place(copy)
        return copy

    # ------------------------------------------------------------------------ one file

    def _where(self, item: _Item) -> Objects:
        base = item.base_id if item.HasField("base_id") else None
        return objects_of_base(self._source.files.objects, self._source.manifest, base)

    def _is_reachable(self, item: _Item) -> tuple[int | None] | None:
        """The base under which the target can name the file; None if it cannot."""
        root = self._where(item).root
        if root == self._files.root:
            return (None,)
        return (self._bases[root],) if root in self._bases else None

    def _keep(self, copies: Sequence[Copy]) -> None:
        self._copies |= {copy.path: copy for copy in copies}

    def _place(self, item: _Item) -> None:
        reachable = self._is_reachable(item)
        item.ClearField("base_id")
        if reachable is not None and reachable[0] is not None:
            item.base_id = reachable[0]


def brought(source: TableVersion, at: TableVersion) -> Plan:
    """The version of the source as the next one of a table that the target has."""
    return Bringing(source, at.files, at.manifest).plan()


def appended_fragments(source: TableVersion, fragments: Mapping[int, pb.DataFragment], at: TableVersion) -> Plan:
    """Bring fragments that have no deletions, as an append to the target."""
    bringing = Bringing(source, at.files, at.manifest)
    brought = [bringing.fragment(fragment) for fragment in fragments.values()]
    bringing.copy()
    for fragment in brought:
        fragment.id = 0
        for group in ("created_at_version_sequence", "last_updated_at_version_sequence", "row_id_sequence"):
            chosen = fragment.WhichOneof(group)
            if chosen is not None:
                fragment.ClearField(chosen)
    rows = sum(fragment.physical_rows for fragment in brought)
    return Plan(at.staged(Append(fragments=tuple(brought))), counts={"rows_added": rows})


def _not_after(version: int, encoded: bytes) -> bytes:
    """Row versions, in which those of the other branch only are replaced by the version that adds them here."""
    return encode_versions(np.minimum(decode_versions(encoded), version))
