"""Clone: a new table that starts as a version of this one."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from conroi.commit.change import Change
from conroi.commit.files import TableFiles
from conroi.commit.loop import commit
from conroi.commit.snapshot import Snapshot
from conroi.conflicts import Staged
from conroi.data.pinned import Pinned
from conroi.environment import moment
from conroi.errors import UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.naming import data_path, deletion_path, index_dir
from conroi.operations import Clone


def clone(pinned: Pinned, target: TableFiles, *, deep: bool) -> Snapshot:
    """Make the new table. A shallow one names the files where they are; a deep one gets copies of all of them."""
    begun_at = moment(target.environment)
    if deep:
        for path in _files(pinned):
            target.objects.copy_from(pinned.files.objects, path)
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


def _files(pinned: Pinned) -> Iterator[str]:
    for fragment in pinned.manifest.fragments:
        for file in fragment.files:
            _refuse_base(pinned, file)
            yield data_path(file.path)
        if fragment.HasField("deletion_file"):
            _refuse_base(pinned, fragment.deletion_file)
            yield deletion_path(fragment.id, fragment.deletion_file)
    for index in pinned.manifest.indices:
        _refuse_base(pinned, index)
        yield from pinned.files.objects.list_names(index_dir(UUID(bytes=index.uuid.uuid)))


def _refuse_base(pinned: Pinned, item: pb.DataFile | pb.DeletionFile | pb.IndexMetadata) -> None:
    if item.HasField("base_id"):
        raise UnsupportedError(
            "This version has files under other roots, so a deep clone of it cannot be made.",
            table=pinned.root,
            hint="Make a deep clone of the table it was cloned from, or compact() this one first.",
        )
