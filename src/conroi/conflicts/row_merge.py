"""The end of a rebase of row changes: which rows conflict, and which deletion vectors must be written. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyroaring import BitMap

from conroi.conflicts import facts
from conroi.conflicts.catalog import CATALOG
from conroi.conflicts.facts import Staged
from conroi.conflicts.reason import ConcurrentCommit, Reason, Verdict
from conroi.conflicts.rules.overlays import rows_covered_in
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations import CreateIndex, DataOverlay, Delete, Update
from conroi.operations.base import Operation, copied
from conroi.operations.indices import FRAGMENT_REUSE, MEM_WAL

_SAMPLE_ROWS = 5


@dataclass(frozen=True)
class Merged:
    """A rebased operation, before the deletion files that it needs are written."""

    verdict: Verdict
    """Check this first: rows in common make it retryable."""
    read_version: int
    """The base version that its transaction records."""
    vectors_to_write: Mapping[int, BitMap] = field(default_factory=dict[int, BitMap])
    """By fragment id, the deletion vectors to write, each as a new `.bin` file made on the newest version."""
    with_files: Callable[[Mapping[int, pb.DeletionFile]], Operation] | None = None

    def operation(self, deletion_files: Mapping[int, pb.DeletionFile]) -> Operation:
        """The operation to commit, given the files that were written for `vectors_to_write`."""
        if self.with_files is None:
            raise InvalidInputError("The operation was refused, so there is nothing to commit.", hint="See `verdict`.")
        for number, vector in self.vectors_to_write.items():
            if number not in deletion_files or deletion_files[number].num_deleted_rows != len(vector):
                raise InvalidInputError(
                    f"The deletion file for fragment {number} is missing or does not have its {len(vector)} rows.",
                    hint="Write every vector of vectors_to_write, and hand over what was written.",
                )
        return self.with_files(deletion_files)


@dataclass(frozen=True)
class Meeting:
    """The input of the merge of row changes."""

    staged: Staged
    verdict: Verdict
    contested: Mapping[int, ConcurrentCommit]
    head: Manifest
    vectors: Mapping[VectorKey, BitMap]

    def deleted_at_head(self, fragment: int) -> BitMap:
        return deleted_rows(self.head.fragments_by_id[fragment], self.vectors)

    def deleted_at_base(self, fragment: int) -> BitMap:
        return deleted_rows(self.staged.base.fragments_by_id[fragment], self.vectors)

    def unchanged(self, operation: Operation | None = None) -> Merged:
        """No file has to be written."""
        result = self.staged.operation if operation is None else operation
        return Merged(self.verdict, _read_version(self), with_files=lambda _files: result)

    def refused(self, rule: str, rows: Mapping[int, BitMap]) -> Merged:
        """A finding about these rows, by fragment."""
        fragments = tuple(sorted(rows))
        winner = self.contested[fragments[-1]]
        sample = [(number, row) for number in fragments for row in rows[number][:_SAMPLE_ROWS]]
        reason = Reason(
            rule=rule,
            mine=self.staged.operation.name,
            theirs=winner.operation.name,
            fragments=fragments,
            rows=sum(len(found) for found in rows.values()),
            sample=tuple(sample[:_SAMPLE_ROWS]),
            winner=winner,
        )
        return Merged(Verdict(CATALOG[rule].outcome, reason), _read_version(self))


def _read_version(meeting: Meeting) -> int:
    """Row changes count as based on the newest version once they were compared with it."""
    moves = isinstance(meeting.staged.operation, Delete | Update | DataOverlay)
    return meeting.head.version if moves else meeting.staged.base.version


def missing(meeting: Meeting) -> dict[int, BitMap]:
    """Contested fragments that the newest version does not have."""
    return {number: BitMap() for number in meeting.contested if number not in meeting.head.fragments_by_id}


def merge_row_changes(meeting: Meeting) -> Merged:
    """Merge my deleted and moved rows with those at the newest version; a fragment without live rows is removed."""
    affected = facts.affected_rows(meeting.staged) or {}
    if gone := missing(meeting):
        return meeting.refused("rows/fragment-gone", gone)
    changed = meeting.staged.unwritten.union(meeting.contested)
    deleted = {number: meeting.deleted_at_head(number) for number in changed}
    if same := _common(deleted, affected):
        return meeting.refused("rows/same-rows", same)
    if facts.rewrites_columns(meeting.staged.operation):
        return meeting.unchanged(_with_newer_deletions(meeting))
    joined = {number: rows | affected.get(number, BitMap()) for number, rows in deleted.items()}
    emptied = frozenset(number for number, rows in joined.items() if _is_all(meeting, number, rows))
    to_write = {number: rows for number, rows in joined.items() if number not in emptied}
    return Merged(
        meeting.verdict,
        _read_version(meeting),
        to_write,
        lambda files: _patched(meeting.staged.operation, {n: files[n] for n in to_write}, emptied),
    )


def _common(one: Mapping[int, BitMap], other: Mapping[int, BitMap]) -> dict[int, BitMap]:
    return {number: rows & other[number] for number, rows in one.items() if number in other and rows & other[number]}


def _is_all(meeting: Meeting, number: int, rows: BitMap) -> bool:
    return len(rows) == meeting.head.fragments_by_id[number].physical_rows


def _with_newer_deletions(meeting: Meeting) -> Operation:
    """My new column files with the list of deleted rows as it is now: not a file has to be written."""
    newest = meeting.head.fragments_by_id
    return _patched(meeting.staged.operation, {n: newest[n].deletion_file for n in meeting.contested}, frozenset())


def _patched(operation: Operation, deletion_files: Mapping[int, pb.DeletionFile], emptied: frozenset[int]) -> Operation:
    """The operation with other deletion files, and with the emptied fragments among the removed ones."""
    if not isinstance(operation, Delete | Update):
        raise InvalidInputError(
            f"A {operation.name} has no deletion files to change.",
            hint="Only a Delete or an Update can be given new ones.",
        )
    updated = tuple(
        _with_deletions(fragment, deletion_files.get(fragment.id))
        for fragment in operation.updated_fragments
        if fragment.id not in emptied
    )
    gone = sorted(emptied)
    if isinstance(operation, Delete):
        return replace(
            operation, updated_fragments=updated, deleted_fragment_ids=(*operation.deleted_fragment_ids, *gone)
        )
    return replace(operation, updated_fragments=updated, removed_fragment_ids=(*operation.removed_fragment_ids, *gone))


def _with_deletions(fragment: pb.DataFragment, file: pb.DeletionFile | None) -> pb.DataFragment:
    if file is None:
        return fragment
    patched = copied(fragment)
    patched.deletion_file.CopyFrom(file)
    return patched


def check_overlay(meeting: Meeting) -> Merged:
    """An overlay stays valid as long as no row under it was moved."""
    overlay = meeting.staged.operation
    if gone := missing(meeting):
        return meeting.refused("rows/fragment-gone", gone)
    if not isinstance(overlay, DataOverlay):
        return meeting.unchanged()
    moved = {n: meeting.deleted_at_head(n) - meeting.deleted_at_base(n) for n in meeting.contested}
    covered = {number: rows_covered_in(overlay, number) for number in meeting.contested}
    same = _common(moved, covered)
    return meeting.refused("overlay/rows-moved", same) if same else meeting.unchanged()


def replace_system_indices(meeting: Meeting) -> Merged:
    """There is only one of each system index, so mine replaces the existing one."""
    operation = meeting.staged.operation
    if not isinstance(operation, CreateIndex):
        return meeting.unchanged()
    names = {index.name for index in operation.new_indices} & {FRAGMENT_REUSE, MEM_WAL}
    known = {index.uuid.uuid for index in operation.removed_indices}
    replaced = tuple(i for i in meeting.head.indices if i.name in names and i.uuid.uuid not in known)
    if not replaced:
        return meeting.unchanged()
    return meeting.unchanged(replace(operation, removed_indices=(*operation.removed_indices, *replaced)))


VectorKey = tuple[int, int, int, int]
"""Fragment id, read version, random id and base id: what makes a deletion file the one it is."""


def vector_key(fragment: pb.DataFragment) -> VectorKey:
    """The name under which the deletion vector of this state of a fragment is handed over."""
    file = fragment.deletion_file
    return fragment.id, file.read_version, file.id, file.base_id if file.HasField("base_id") else -1


def deleted_rows(fragment: pb.DataFragment, vectors: Mapping[VectorKey, BitMap]) -> BitMap:
    """The deleted rows of this state of a fragment; none if it has no deletion file."""
    return vectors[vector_key(fragment)] if fragment.HasField("deletion_file") else BitMap()
