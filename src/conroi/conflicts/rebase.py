"""Rebase: carry a staged operation over a concurrent commit, including compactions of the same fragments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyroaring import BitMap

from conroi.conflicts.facts import Staged
from conroi.conflicts.matrix import verdict_on
from conroi.conflicts.reason import COMPATIBLE, ConcurrentCommit, Reason, Verdict
from conroi.conflicts.row_merge import (
    Meeting,
    Merged,
    VectorKey,
    check_overlay,
    merge_row_changes,
    replace_system_indices,
    vector_key,
)
from conroi.conflicts.rules import Outcome
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations import CreateIndex, DataOverlay, Rewrite
from conroi.operations.base import copied
from conroi.operations.fragments import next_fragment_id, numbered
from conroi.operations.indices import covered_fragments, finds_addresses


@dataclass(frozen=True)
class Rebase:
    """A staged operation, with the result of the conflict checks so far."""

    staged: Staged
    """Adjusted as far as that needed no file."""
    contested: Mapping[int, ConcurrentCommit] = field(default_factory=dict[int, ConcurrentCommit])
    """Fragments whose rows must be compared, each with the last commit that changed it."""
    repairs: tuple[Reason, ...] = ()
    """The adjustments, and why they were necessary."""
    refusal: Verdict | None = None
    """The first verdict that is a conflict."""

    @property
    def verdict(self) -> Verdict:
        """The verdict so far."""
        if self.refusal is not None:
            return self.refusal
        return Verdict(Outcome.REBASED, self.repairs[-1]) if self.repairs else COMPATIBLE

    def over(self, winner: ConcurrentCommit) -> Rebase:
        """This rebase after one more concurrent commit."""
        if self.refusal is not None:
            return self
        verdict = verdict_on(self.staged, winner)
        if not verdict.outcome.lands:
            return replace(self, refusal=verdict)
        if verdict.reason is None:
            return self
        return replace(
            self,
            staged=self.staged if verdict.operation is None else replace(self.staged, operation=verdict.operation),
            contested={**self.contested, **dict.fromkeys(verdict.contested, winner)},
            repairs=(*self.repairs, verdict.reason),
        )

    def over_all(self, winners: Iterable[ConcurrentCommit]) -> Rebase:
        """This rebase after these commits, oldest first."""
        rebase = self
        for winner in winners:
            rebase = rebase.over(winner)
        return rebase

    def needs(self, head: Manifest) -> tuple[pb.DataFragment, ...]:
        """The fragments, at my base or at the newest version, whose deletion vectors `merge` needs."""
        newest = [head.fragments_by_id.get(number) for number in sorted(self.staged.unwritten.union(self.contested))]
        oldest: list[pb.DataFragment] = []
        if isinstance(self.staged.operation, Rewrite | DataOverlay):
            oldest = [self.staged.base.fragments_by_id[number] for number in sorted(self.contested)]
        wanted = {vector_key(f): f for f in (*oldest, *newest) if f is not None and f.HasField("deletion_file")}
        return tuple(wanted.values())

    def merge(self, head: Manifest, vectors: Mapping[VectorKey, BitMap]) -> Merged:
        """The operation on top of the newest version, given the vectors that `needs` asked for, by `vector_key`."""
        meeting = Meeting(self.staged, self.verdict, self.contested, head, vectors)
        if self.refusal is not None:
            return Merged(self.refusal, self.staged.base.version)
        if isinstance(self.staged.operation, CreateIndex):
            return replace_system_indices(meeting)
        if not self.contested and not self.staged.unwritten:
            return meeting.unchanged()
        if isinstance(self.staged.operation, Rewrite):
            return translate_rewrite(meeting)
        return check_overlay(meeting) if isinstance(self.staged.operation, DataOverlay) else merge_row_changes(meeting)


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


@dataclass(frozen=True, slots=True)
class Source:
    """One old fragment of a compaction."""

    physical_rows: int
    deleted_before: BitMap
    """The offsets that were deleted when the compaction read the fragment; these rows were not copied."""
    deleted_since: BitMap
    """The offsets that were deleted or moved while it was copying."""

    @property
    def copied_rows(self) -> int:
        return self.physical_rows - len(self.deleted_before)


def translate_deletions(sources: Sequence[Source], new_rows: Sequence[int]) -> tuple[BitMap, ...]:
    """For each new fragment, given by its number of rows, the offsets of the rows that were deleted meanwhile.

    >>> translate_deletions([Source(4, BitMap([0]), BitMap([2])), Source(2, BitMap(), BitMap([1]))], [3, 2])
    (BitMap([1]), BitMap([1]))
    """
    copied = sum(source.copied_rows for source in sources)
    if copied != sum(new_rows):
        raise InvalidInputError(
            f"The compaction says that it keeps every row, but it read {copied} and wrote {sum(new_rows)}.",
            hint="Stage it without rewrite_keeps_order; then it is run again when it meets a deletion.",
        )
    places = _places_in_run(sources)
    ends = np.cumsum(np.asarray(new_rows, np.int64))
    cuts = np.searchsorted(places, ends)
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    pieces = np.split(places, cuts[:-1]) if len(ends) else []
    return tuple(
        BitMap((piece - start).astype(np.uint32)) for piece, start in zip(pieces, starts.tolist(), strict=True)
    )


def _places_in_run(sources: Sequence[Source]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The rows deleted meanwhile, by their place in the run of all copied rows, ascending."""
    places: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = [np.empty(0, np.int64)]
    start = 0
    for source in sources:
        before = np.asarray(source.deleted_before.to_array(), np.int64)
        since = np.asarray((source.deleted_since - source.deleted_before).to_array(), np.int64)
        # Rows that were not copied do not count: a row moves up by as many as lie before it.
        places.append(start + since - np.searchsorted(before, since))
        start += source.copied_rows
    return np.concatenate(places)
