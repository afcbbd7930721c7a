"""Index maintenance: which fragments each index still covers after a change of data, and which indices remain.

An index that claims more than it covers returns wrong results without an error. So every rule here errs towards
claiming less: a fragment that is not covered is scanned.

The index `__lance_frag_reuse` says where rows moved in compactions that left the other indices unchanged. Those still
name the fragments from before. A reader follows the groups recorded there. A writer that changes what an index covers
must follow them too; otherwise a fragment that it removed would reappear for the next reader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from pyroaring import BitMap

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.roaring import decode_bitmap, encode_bitmap, encode_smallest
from conroi.operations.base import copied

FRAGMENT_REUSE = "__lance_frag_reuse"
MEM_WAL = "__lance_mem_wal"

# These find rows by where they are, not by their ids, so they cannot follow rows into another fragment.
_ADDRESS_KINDS = ("ZoneMapIndexDetails", "BloomFilterIndexDetails")
_ADDRESS_KIND_BTREE = "BTreeIndexDetails"
_HNSW, _RABIT = 3, 6  # fields of VectorIndexDetails
_ADDRESS_KIND_FM = "lance.index.pb.fmindexdetails"


def is_system(index: pb.IndexMetadata) -> bool:
    """Whether it is one of the format's own bookkeeping indices, which are on no column."""
    return index.name in (FRAGMENT_REUSE, MEM_WAL)


def covered_fragments(index: pb.IndexMetadata) -> BitMap | None:
    """The fragments the index was built for (some may be gone since); None if it does not say."""
    if not index.fragment_bitmap:
        return None
    return decode_bitmap(index.fragment_bitmap, what=f"fragment bitmap of index {index.name!r}")


def with_coverage(index: pb.IndexMetadata, covered: BitMap) -> pb.IndexMetadata:
    """A copy of the index that covers these fragments."""
    copy = copied(index)
    copy.fragment_bitmap = encode_bitmap(covered, has_runs=True)
    return copy


def finds_addresses(index: pb.IndexMetadata) -> bool:
    """Whether the index answers with row addresses, also on a table with stable row ids."""
    kind = index.index_details.type_url
    if kind.endswith(_ADDRESS_KIND_BTREE):
        return index.index_version >= 1  # those of version 0, from before pylance 14, hold row ids
    return kind.endswith(_ADDRESS_KINDS) or kind.rpartition("/")[2].lower() == _ADDRESS_KIND_FM


def without_gained(
    indices: Sequence[pb.IndexMetadata], coverage_before: Mapping[bytes, BitMap]
) -> Sequence[pb.IndexMetadata]:
    """Indices of a table with stable row ids, without coverage that they cannot have gained; themselves if all have.

    An index that answers with addresses holds the rows of the fragments that it was built for. A writer that takes it
    for an index of row ids adds the fragments into which it moved rows; the index does not know them there.
    `coverage_before` is what an index of this uuid covered at an earlier version.
    """
    trimmed = [_without_gained(index, coverage_before.get(index.uuid.uuid)) for index in indices]
    return indices if all(now is then for now, then in zip(trimmed, indices, strict=True)) else trimmed


def _without_gained(index: pb.IndexMetadata, before: BitMap | None) -> pb.IndexMetadata:
    covered = None if before is None or is_system(index) or not finds_addresses(index) else covered_fragments(index)
    if before is None or covered is None or covered <= before:
        return index
    copy = copied(index)
    copy.fragment_bitmap = encode_smallest(covered & before)  # it takes the place of the longer list
    return copy


def coverage(indices: Iterable[pb.IndexMetadata]) -> dict[bytes, BitMap]:
    """The fragments that each index covers, by its uuid; without those that do not say."""
    found = {index.uuid.uuid: covered_fragments(index) for index in indices}
    return {uuid: covered for uuid, covered in found.items() if covered is not None}


def follows_reuse(index: pb.IndexMetadata) -> bool:
    """Whether pylance 14 finds rows through this index after a fragment-reuse index says where they went.

    It does for all kinds at first. But when it then remaps a B-tree, n-gram or text index in a compaction of its own,
    it forgets about the reuse index, and filters silently lose rows; HNSW graphs cannot be read once rows are gone.
    """
    kind = index.index_details.type_url
    if kind.endswith("VectorIndexDetails"):
        details = UnknownFieldSet(Empty.FromString(index.index_details.value))
        return all(field.field_number not in (_HNSW, _RABIT) for field in details)
    return kind.endswith(("BitmapIndexDetails", "LabelListIndexDetails"))


def without_changed_fields(
    indices: Iterable[pb.IndexMetadata], changed: Mapping[int, Collection[int]]
) -> list[pb.IndexMetadata]:
    """Indices without the fragments (by id) in which one of their fields got new values."""
    return [_without_changed_fields(index, changed) for index in indices]


def _without_changed_fields(index: pb.IndexMetadata, changed: Mapping[int, Collection[int]]) -> pb.IndexMetadata:
    fields = set(index.fields)
    stale = BitMap(fragment_id for fragment_id, its_fields in changed.items() if not fields.isdisjoint(its_fields))
    covered = covered_fragments(index) if stale else None
    if covered is None or covered.isdisjoint(stale):
        return index
    return with_coverage(index, covered - stale)


Groups = Sequence[tuple[BitMap, BitMap]]
"""For each group of a rewrite, the ids of the old fragments and of the new ones."""


def following_rewrite(covered: BitMap, groups: Groups) -> BitMap:
    """The fragments covered after a rewrite; a group must have been covered as a whole, or not at all."""
    after = covered.copy()
    for old, new in groups:
        if covered.isdisjoint(old):
            continue
        if not old <= covered:
            raise InvalidInputError(
                f"The rewrite puts indexed and not indexed fragments into one: {sorted(old)}.",
                hint="Plan the compaction again, so that each group is wholly inside or wholly outside each index.",
            )
        after = (after - old) | new
    return after


def without_rewritten(covered: BitMap, groups: Groups) -> BitMap:
    """The fragments covered after a rewrite by an index that cannot follow it."""
    return covered - BitMap.union(BitMap(), *(old for old, _ in groups))


def retained(
    indices: Iterable[pb.IndexMetadata], *, field_ids: Collection[int], fragment_ids: Iterable[int]
) -> list[pb.IndexMetadata]:
    """The indices that still mean something.

    Gone are those on a field that left the schema, and the segments of an index that cover nothing, unless all of them
    do: then the oldest stays, so that the table does not forget that it has this index.
    """
    fields = set(field_ids)
    left = [index for index in indices if is_system(index) or fields.issuperset(index.fields)]
    segments: defaultdict[str, list[pb.IndexMetadata]] = defaultdict(list)
    for index in left:
        segments[index.name].append(index)
    if all(len(same_name) == 1 for same_name in segments.values()):
        return left
    existing = BitMap(fragment_ids)
    kept = {id(index) for same_name in segments.values() for index in _useful(same_name, existing)}
    return [index for index in left if id(index) in kept]


def _useful(segments: Sequence[pb.IndexMetadata], existing: BitMap) -> Sequence[pb.IndexMetadata]:
    if len(segments) == 1 or segments[0].name == FRAGMENT_REUSE:
        return segments
    coverage = [covered_fragments(segment) for segment in segments]
    useful = [
        segment
        for segment, covered in zip(segments, coverage, strict=True)
        if covered is None or not covered.isdisjoint(existing)
    ]
    if any(covered is not None and not covered.isdisjoint(existing) for covered in coverage):
        return useful
    empty = [segment for segment, covered in zip(segments, coverage, strict=True) if covered is not None]
    oldest = min(empty, key=lambda segment: segment.dataset_version, default=None)
    return useful if oldest is None else [*useful, oldest]


def reuse_details(indices: Iterable[pb.IndexMetadata]) -> pb.FragmentReuseIndexDetails | None:
    """What the table's reuse index says, or where (`external`); None if there is no such index."""
    index = next((index for index in indices if index.name == FRAGMENT_REUSE), None)
    if index is None:
        return None
    try:
        return pb.FragmentReuseIndexDetails.FromString(index.index_details.value)
    except DecodeError as error:
        raise CorruptionError(
            f"The details of the index {FRAGMENT_REUSE} are not a valid message ({error}).",
            hint="The manifest is damaged; open an older version of the table.",
        ) from error


def following_reuse(indices: Sequence[pb.IndexMetadata], reuse: pb.FragmentReuseInline) -> Sequence[pb.IndexMetadata]:
    """The indices with the fragments they cover today, as pylance sees them after loading."""
    groups = [
        (
            BitMap(fragment.id for fragment in group.old_fragments),
            BitMap(fragment.id for fragment in group.new_fragments),
        )
        for version in sorted(reuse.versions, key=lambda version: version.dataset_version)
        for group in version.groups
    ]
    return [_following(index, groups) for index in indices]


def _following(index: pb.IndexMetadata, groups: Sequence[tuple[BitMap, BitMap]]) -> pb.IndexMetadata:
    before = covered_fragments(index)
    if before is None:
        return index
    covered = before
    for old, new in groups:
        if covered.isdisjoint(old):
            continue
        # An index that knew only some of the fragments does not know all rows of the new ones.
        covered = (covered - old) | new if old <= covered else covered - old
    return index if covered == before else with_coverage(index, covered)


def with_coverage_of_today(manifest: Manifest) -> Sequence[pb.IndexMetadata]:
    """The indices with the fragments that they cover now, as far as the manifest alone can tell."""
    details = reuse_details(manifest.indices)
    if details is None or not details.HasField("inline"):
        return manifest.indices
    return following_reuse(manifest.indices, details.inline)


def unindexed(manifest: Manifest) -> dict[str, BitMap]:
    """By name of an index, the fragments whose rows it does not have; such rows are scanned."""
    there = BitMap(manifest.fragments_by_id)
    found: dict[str, BitMap] = {}
    for index in with_coverage_of_today(manifest):
        if not is_system(index):
            found[index.name] = found.get(index.name, there) - (covered_fragments(index) or BitMap())
    return found
