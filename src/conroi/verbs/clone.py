"""Clone: a new table that starts from a version of this one."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from conroi.commit.change import Change
from conroi.commit.table_commit import commit
from conroi.conflicts import Staged
from conroi.data.table_version import TableVersion
from conroi.environment import moment
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.naming import deletion_path, index_dir
from conroi.operations import Clone
from conroi.snapshots.snapshot import Snapshot
from conroi.snapshots.table_storage import TableStorage
from conroi.storage.base_paths import Copy, copies_of_data_file, copy_all, objects_of_base, share_reach
from conroi.storage.objects import Objects


def clone(pinned: TableVersion, target: TableStorage, *, deep: bool) -> Snapshot:
    """Create the new table. A shallow clone references the files where they are; a deep one copies all of them."""
    begun_at = moment(target.environment)
    if not deep:
        share_reach(target.objects, pinned.files.objects)
    if deep:
        copy_all(target.objects, list(_files(pinned)))
    operation = Clone(
        is_shallow=not deep, ref_version=pinned.version, ref_path=pinned.files.objects.pylance_uri(), ref_name=None
    )
    change = Change(
        staged=Staged(operation=operation, base=Manifest(b"")),
        base=None,
        uuid=str(target.environment.new_uuid()),
        cloned=pinned.snapshot,
        begun_at=begun_at,
        new_table_naming=pinned.snapshot.naming,
    )
    return commit(target, change).snapshot


def _files(pinned: TableVersion) -> Iterator[Copy]:
    """All files of the version, wherever they are: its own, and those of the tables and branches it came from."""
    objects, manifest = pinned.files.objects, pinned.manifest
    for fragment in manifest.fragments:
        for file in fragment.files:
            yield from copies_of_data_file(objects, manifest, file)
        if fragment.HasField("deletion_file"):
            path = deletion_path(fragment.id, fragment.deletion_file)
            yield Copy(_where(pinned, fragment.deletion_file), path, path)
    for index in manifest.indices:
        source = _where(pinned, index)
        for path in source.list_names(index_dir(UUID(bytes=index.uuid.uuid))):
            yield Copy(source, path, path)


def _where(pinned: TableVersion, item: pb.DeletionFile | pb.IndexMetadata) -> Objects:
    return objects_of_base(pinned.files.objects, pinned.manifest, item.base_id if item.HasField("base_id") else None)
