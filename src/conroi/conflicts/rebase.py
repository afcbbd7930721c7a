"""Rebase of a staged operation over the commits since its base.

Three steps, so that all I/O stays with the caller:

1. `rebase = Rebase(staged).over(winner)` for each newer commit, oldest first. Stop if `rebase.verdict` is a conflict.
2. `rebase.needs(head)` names the fragments whose deletion vectors must be read.
3. `merged = rebase.merge(head, vectors)` compares rows. If it succeeds, write `merged.vectors_to_write` as files,
   and call `merged.operation(files)` for the operation to commit on top of `head`.

A `Rebase` is an immutable value: if the put loses to yet another commit, continue from it with that commit, and repeat
2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyroaring import BitMap

from conroi.conflicts.matrix import meet
from conroi.conflicts.merging import Meeting, Merged, check_overlay, merge_row_changes, replace_system_indices
from conroi.conflicts.outcome import Outcome
from conroi.conflicts.reason import COMPATIBLE, Reason, Verdict, Winner
from conroi.conflicts.recompaction import translate_rewrite
from conroi.conflicts.staged import Staged
from conroi.conflicts.vectors import VectorKey, vector_key
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations import CreateIndex, DataOverlay, Rewrite


@dataclass(frozen=True)
class Rebase:
    """A staged operation, with the result of the conflict checks so far."""

    staged: Staged
    """Adjusted as far as that needed no file."""
    contested: Mapping[int, Winner] = field(default_factory=dict[int, Winner])
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

    def over(self, winner: Winner) -> Rebase:
        """This rebase after one more concurrent commit."""
        if self.refusal is not None:
            return self
        verdict = meet(self.staged, winner)
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

    def over_all(self, winners: Iterable[Winner]) -> Rebase:
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
