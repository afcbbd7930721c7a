"""Rewrite: the same rows in other fragments (compaction and sorting)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyroaring import BitMap

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, copied, unknown_fields
from conroi.operations.fragments import (
    check_given_ids,
    check_new,
    missing_fragments,
    next_fragment_id,
    numbered,
    with_fragments,
)
from conroi.operations.indices import (
    Groups,
    covered_fragments,
    finds_addresses,
    following_rewrite,
    follows_reuse,
    is_system,
    with_coverage,
    without_rewritten,
)

Group = pb.Transaction.Rewrite.Group
RewrittenIndex = pb.Transaction.Rewrite.RewrittenIndex


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace groups of fragments by others with the same rows, and indices by ones that know where the rows went.

    `fragment_reuse_index` says where rows went for indices that are remapped later; with `reuses_carefully` only those
    kinds follow it with which nothing can go wrong, and the others no longer cover the rewritten fragments. With
    `mixes_coverage` a group may join fragments that an index covers and others; it then covers none of it.
    `is_numbered` says that the ids of its fragments were given out on the version it is applied to. The wire carries
    none of the four.
    `is_old_form` marks a transaction from before there were groups.
    """

    name: ClassVar[str] = "Rewrite"

    groups: tuple[Group, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()
    fragment_reuse_index: pb.IndexMetadata | None = None
    reuses_carefully: bool = False
    mixes_coverage: bool = False
    is_numbered: bool = False
    is_old_form: bool = False
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.Rewrite(rewritten_indices=self.rewritten_indices)
        if self.is_old_form:
            message.old_fragments.extend(self.groups[0].old_fragments)
            message.new_fragments.extend(self.groups[0].new_fragments)
        else:
            message.groups.extend(self.groups)
        message.MergeFromString(self.unknown)
        return pb.Transaction(rewrite=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.Rewrite) -> Rewrite:
        is_old_form = not message.groups and bool(message.old_fragments or message.new_fragments)
        only_group = Group(old_fragments=message.old_fragments, new_fragments=message.new_fragments)
        return cls(
            groups=(only_group,) if is_old_form else tuple(message.groups),
            rewritten_indices=tuple(message.rewritten_indices),
            is_old_form=is_old_form,
            unknown=unknown_fields(message),
        )

    def apply(self, base: Manifest, _step: Step) -> Manifest:
        head = base.editable_head()
        removed = self._removed(base)
        new = self._new_fragments(head)
        check_given_ids(new, base, are_reserved=not self.is_numbered)
        added = numbered(new, next_fragment_id(head))
        kept = [fragment for fragment in base.fragments if fragment.id not in removed]
        indices = self._indices(base, self._id_groups(added))
        if self.fragment_reuse_index is not None:
            name = self.fragment_reuse_index.name
            indices = [*(index for index in indices if index.name != name), self.fragment_reuse_index]
        return with_fragments(base, head, [*kept, *added], indices=indices)

    def _removed(self, base: Manifest) -> set[int]:
        ids = [fragment.id for group in self.groups for fragment in group.old_fragments]
        removed = set(ids)
        if len(removed) < len(ids) or any(not group.old_fragments for group in self.groups):
            raise InvalidInputError(
                f"The groups of the rewrite do not each replace fragments of their own: {ids}.",
                hint="Plan the compaction again.",
            )
        if not removed <= base.fragments_by_id.keys():
            raise missing_fragments(removed - base.fragments_by_id.keys())
        return removed

    def _new_fragments(self, head: pb.ManifestHead) -> list[pb.DataFragment]:
        fragments = [fragment for group in self.groups for fragment in group.new_fragments]
        check_new(fragments, head)
        return fragments

    def _id_groups(self, added: Sequence[pb.DataFragment]) -> Groups:
        """The groups as sets of ids, now that the new fragments have theirs."""
        ids = iter(added)
        return [
            (
                BitMap(fragment.id for fragment in group.old_fragments),
                BitMap(next(ids).id for _ in group.new_fragments),
            )
            for group in self.groups
        ]

    def _indices(self, base: Manifest, groups: Groups) -> list[pb.IndexMetadata]:
        remapped = {index.old_id.uuid: index for index in self.rewritten_indices}
        if len(remapped) < len(self.rewritten_indices):
            raise InvalidInputError("The rewrite remaps one index twice.", hint="Plan the compaction again.")
        return [
            _followed(index, remapped.get(index.uuid.uuid), self._groups_for(index, groups), base.has_stable_row_ids)
            if base.has_stable_row_ids or not self.reuses_carefully or follows_reuse(index)
            else _left_behind(index, groups)
            for index in base.indices
        ]

    def _groups_for(self, index: pb.IndexMetadata, groups: Groups) -> Groups:
        """The groups as this index sees them: one that it covers in part leads it nowhere."""
        covered = covered_fragments(index)
        if not self.mixes_coverage or covered is None:
            return groups
        return [
            (old, new) if old <= covered or covered.isdisjoint(old) else (old & covered, BitMap())
            for old, new in groups
        ]


def _left_behind(index: pb.IndexMetadata, groups: Groups) -> pb.IndexMetadata:
    covered = covered_fragments(index)
    if covered is None or is_system(index):
        return index
    return with_coverage(index, without_rewritten(covered, groups))


def _followed(
    index: pb.IndexMetadata, remapped: RewrittenIndex | None, groups: Groups, has_row_ids: bool
) -> pb.IndexMetadata:
    """The index after the rewrite: remapped, following by row id, or left to what it knew."""
    covered = covered_fragments(index)
    if remapped is not None:
        if covered is None:
            raise InvalidInputError(
                f"Index {index.name!r} does not say which fragments it covers, so it cannot be remapped.",
                hint="Drop and create the index again.",
            )
        return _renamed(with_coverage(index, following_rewrite(covered, groups)), remapped)
    if covered is None or not has_row_ids:
        return index
    after = without_rewritten(covered, groups) if finds_addresses(index) else following_rewrite(covered, groups)
    return index if after == covered else with_coverage(index, after)


def _renamed(index: pb.IndexMetadata, remapped: RewrittenIndex) -> pb.IndexMetadata:
    index = copied(index)
    index.uuid.CopyFrom(remapped.new_id)
    del index.files[:]
    index.files.extend(remapped.new_index_files)
    return index
