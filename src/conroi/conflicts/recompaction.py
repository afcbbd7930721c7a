"""Last step of a rebase for a compaction: rows that were deleted concurrently are deleted in its copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyroaring import BitMap

from conroi.conflicts.merging import Meeting, Merged
from conroi.conflicts.translate import Source, translate_deletions
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.operations import Rewrite
from conroi.operations.base import copied
from conroi.operations.fragments import next_fragment_id, numbered
from conroi.operations.indices import covered_fragments, finds_addresses

Group = pb.Transaction.Rewrite.Group


def translate_rewrite(meeting: Meeting) -> Merged:
    """Delete, in the new fragments, the rows that were concurrently deleted or moved in the old ones."""
    rewrite = meeting.staged.operation
    if not isinstance(rewrite, Rewrite):
        return meeting.unchanged()
    groups = _numbered(rewrite, meeting)
    deleted = {number: rows for group in groups for number, rows in _deleted_in(group, meeting).items() if rows}
    emptied = frozenset(new.id for group in groups for new in group.new_fragments if _is_all(new, deleted))
    kept = [group for group in (_without(group, emptied, meeting) for group in groups) if group.old_fragments]
    if problem := _problem(rewrite, kept, emptied, meeting):
        return meeting.refused(problem, {number: BitMap() for number in meeting.contested})
    to_write = {number: rows for number, rows in deleted.items() if number not in emptied}
    return Merged(
        meeting.verdict,
        meeting.staged.base.version,
        to_write,
        lambda files: replace(
            rewrite,
            groups=tuple(_with_deletions(group, {n: files[n] for n in to_write}) for group in kept),
            is_numbered=True,
        ),
    )


def _numbered(rewrite: Rewrite, meeting: Meeting) -> list[Group]:
    """The groups with an id for every new fragment: the name of a deletion file has it."""
    new = iter(
        numbered(
            [fragment for group in rewrite.groups for fragment in group.new_fragments],
            next_fragment_id(meeting.head.head),
        )
    )
    return [
        Group(old_fragments=group.old_fragments, new_fragments=[next(new) for _ in group.new_fragments])
        for group in rewrite.groups
    ]


def _deleted_in(group: Group, meeting: Meeting) -> dict[int, BitMap]:
    """By new fragment, the rows that were deleted concurrently."""
    if all(old.id not in meeting.contested for old in group.old_fragments):
        return {}
    sources = [_source(old.id, meeting) for old in group.old_fragments]
    rows = translate_deletions(sources, [new.physical_rows for new in group.new_fragments])
    return dict(zip((new.id for new in group.new_fragments), rows, strict=True))


def _source(number: int, meeting: Meeting) -> Source:
    fragment = meeting.staged.base.fragments_by_id[number]
    if number not in meeting.contested:
        # No concurrent change: only the number of copied rows matters.
        return Source(fragment.physical_rows, _any_rows(fragment.deletion_file.num_deleted_rows), BitMap())
    before = meeting.deleted_at_base(number)
    if number in meeting.head.fragments_by_id:
        return Source(fragment.physical_rows, before, meeting.deleted_at_head(number))
    return Source(fragment.physical_rows, before, BitMap(range(fragment.physical_rows)))


def _any_rows(count: int) -> BitMap:
    return BitMap(range(count))


def _is_all(new: pb.DataFragment, deleted: Mapping[int, BitMap]) -> bool:
    return len(deleted.get(new.id, ())) == new.physical_rows


def _without(group: Group, emptied: frozenset[int], meeting: Meeting) -> Group:
    """The group without old fragments that are gone already, and without new ones that have no row left."""
    return Group(
        old_fragments=[old for old in group.old_fragments if old.id in meeting.head.fragments_by_id],
        new_fragments=[new for new in group.new_fragments if new.id not in emptied],
    )


def _problem(rewrite: Rewrite, kept: Sequence[Group], emptied: frozenset[int], meeting: Meeting) -> str | None:
    if not kept:
        return "rewrite/nothing-left"
    # A rebuilt index, or the fragment-reuse index, points into every new fragment, so none of them may vanish.
    if emptied and (rewrite.rewritten_indices or rewrite.fragment_reuse_index is not None):
        return "rewrite/indexed"
    return "rewrite/index-straddles" if _straddled(rewrite, kept, meeting) else None


def _straddled(rewrite: Rewrite, kept: Sequence[Group], meeting: Meeting) -> bool:
    """Whether an index that follows the rows has stopped covering some, but not all, fragments of a group."""
    is_deferred = rewrite.fragment_reuse_index is not None
    # The fragment-reuse index was written for the groups as they were.
    groups = [BitMap(old.id for old in group.old_fragments) for group in (rewrite.groups if is_deferred else kept)]
    remapped = {index.old_id.uuid for index in rewrite.rewritten_indices}
    by_row_id = meeting.head.has_stable_row_ids
    for index in meeting.head.indices:
        covered = covered_fragments(index)
        follows = is_deferred or index.uuid.uuid in remapped or (by_row_id and not finds_addresses(index))
        if covered is not None and follows and any(covered & ids and not ids <= covered for ids in groups):
            return True
    return False


def _with_deletions(group: Group, files: Mapping[int, pb.DeletionFile]) -> Group:
    changed = copied(group)
    for new in changed.new_fragments:
        if new.id in files:
            if new.HasField("deletion_file"):
                raise InvalidInputError(
                    f"The new fragment {new.id} of a compaction has deleted rows already.",
                    hint="Plan the compaction again, and write only the rows that are to stay.",
                )
            new.deletion_file.CopyFrom(files[new.id])
    return changed
