"""Fragment-reuse index: maps row addresses through a compaction, so that indices stay valid."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.any_pb2 import Any as AnyMessage
from pyroaring import BitMap, BitMap64

from conroi.commit.deletions import load_deletions
from conroi.data.pinned import Pinned
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.indices import follows_reuse

REUSE_INDEX_NAME = "__lance_frag_reuse"
_DETAILS_TYPE = "/lance.table.FragmentReuseIndexDetails"
MOST_INLINE_BYTES = 200_000
"""Above this pylance keeps the details in a file of their own; we leave the rewritten fragments unindexed instead."""


def needs_reuse_index(manifest: Manifest) -> bool:
    """Whether there are indices that can follow rows by it, and would otherwise be left behind."""
    return not manifest.has_stable_row_ids and any(follows_reuse(index) for index in manifest.indices)


def fragment_reuse_index(pinned: Pinned, groups: Sequence[pb.Transaction.Rewrite.Group]) -> pb.IndexMetadata | None:
    """The index with this compaction added to it; None where it would be too large to keep in the manifest."""
    earlier = next((i for i in pinned.manifest.indices if i.name == REUSE_INDEX_NAME), None)
    details = pb.FragmentReuseIndexDetails()
    covered = BitMap()
    if earlier is not None:
        details.ParseFromString(earlier.index_details.value)
        covered = BitMap.deserialize(earlier.fragment_bitmap) if earlier.fragment_bitmap else covered
        if details.WhichOneof("content") == "external":
            return None
    version = details.inline.versions.add(dataset_version=pinned.version)
    for group in groups:
        version.groups.append(_reuse_group(pinned, group))
        covered |= BitMap([fragment.id for fragment in group.new_fragments])
    encoded = details.SerializeToString(deterministic=True)
    if len(encoded) > MOST_INLINE_BYTES:
        return None
    return pb.IndexMetadata(
        uuid=pb.UUID(uuid=pinned.files.environment.new_uuid().bytes),
        name=REUSE_INDEX_NAME,
        dataset_version=pinned.version,
        fragment_bitmap=covered.serialize(),
        index_details=AnyMessage(type_url=_DETAILS_TYPE, value=encoded),
        index_version=0,
        created_at=pinned.files.environment.now_ns() // 1_000_000,
    )


def _reuse_group(pinned: Pinned, group: pb.Transaction.Rewrite.Group) -> pb.FragmentReuseGroup:
    moved = BitMap64()
    for fragment in group.old_fragments:
        moved |= BitMap64((fragment.id << 32 | offset) for offset in _alive(pinned, fragment))
    return pb.FragmentReuseGroup(
        changed_row_addrs=moved.serialize(),
        old_fragments=[_digest(fragment) for fragment in group.old_fragments],
        new_fragments=[_digest(fragment) for fragment in group.new_fragments],
    )


def _alive(pinned: Pinned, fragment: pb.DataFragment) -> BitMap:
    everything = BitMap()
    everything.add_range(0, fragment.physical_rows)
    return everything - load_deletions(pinned.files.objects, pinned.manifest, fragment)


def _digest(fragment: pb.DataFragment) -> pb.FragmentDigest:
    return pb.FragmentDigest(
        id=fragment.id,
        physical_rows=fragment.physical_rows,
        num_deleted_rows=fragment.deletion_file.num_deleted_rows,
    )
