"""The index `__lance_frag_reuse`: where rows moved in compactions that left the other indices unchanged.

Those still name the fragments from before. A reader follows the groups recorded here. A writer that changes what an
index covers must follow them too; otherwise a fragment that it removed would reappear for the next reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.indices import FRAGMENT_REUSE, covered_fragments, is_system, with_coverage


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
