"""Replay of out-of-band commits on top of the versions that the lake published instead."""

from __future__ import annotations

from collections.abc import Sequence

from conroi import operations
from conroi.catalog.foreign_keys import refuse_duplicate_keys
from conroi.commit.change import Change
from conroi.commit.deletions import affected_rows
from conroi.commit.files import TableFiles
from conroi.commit.foreign import ForeignManifest
from conroi.commit.pending import Pending
from conroi.commit.snapshot import Snapshot
from conroi.conflicts import Staged, facts
from conroi.errors import ConflictError, DuplicateKeyError, IncompatibleConflict
from conroi.format.transaction import Transaction
from conroi.operations import Append, Delete, Operation, Overwrite, Restore, Update, UpdateConfig

REPLAYED_IN_A_ROW = (Append, Delete, Update, UpdateConfig)
"""Operations that may be among several out-of-band commits: their fragment references are known."""


class Replay:
    """The lake's version of a table, and the out-of-band changes of the version before it."""

    def __init__(self, files: TableFiles, mine: Snapshot, transaction: Transaction, before: Snapshot) -> None:
        self._files = files
        self._mine = mine
        self._transaction = transaction
        self._before = before

    def all(self, foreign: Sequence[ForeignManifest]) -> Snapshot:
        """The table with the changes of both sides; IncompatibleConflict if they are not compatible."""
        merged, base = self._mine, self._before
        for each in foreign:
            merged = self._explained(each, base, merged, is_alone=len(foreign) == 1)
            base = each.snapshot
        return merged

    def _explained(self, foreign: ForeignManifest, base: Snapshot, merged: Snapshot, *, is_alone: bool) -> Snapshot:
        operation = operations.of(foreign.transaction)
        if isinstance(operation, Overwrite | Restore):
            raise self._refusal(foreign, "It replaced all rows, so nothing of the lake's version would be left.")
        if not is_alone and not self._can_be_one_of_many(operation):
            raise self._refusal(foreign, "It is one of several, and it names what only exists past the lake.")
        try:
            return self._on_top(foreign, operation, base, merged)
        except (ConflictError, DuplicateKeyError) as error:
            raise self._refusal(foreign, error.message) from error

    def _on_top(self, foreign: ForeignManifest, operation: Operation, base: Snapshot, merged: Snapshot) -> Snapshot:
        affected = affected_rows(self._files.objects, operation, base.manifest)
        staged = Staged(operation, base.manifest, affected_rows=affected)
        change = Change(staged, base, uuid=str(self._files.environment.new_uuid()))
        pending = Pending(self._files, change)
        pending.meet(merged, self._transaction)
        built = pending.build()
        snapshot = Snapshot(built.file.manifest, built.located, built.file.transaction, is_final=False, is_private=True)
        refuse_duplicate_keys(self._files, merged, ForeignManifest(snapshot, foreign.transaction, foreign.pin))
        return snapshot

    def _can_be_one_of_many(self, operation: Operation) -> bool:
        """Whether all fragments that it changes existed before the two histories diverged.

        Later ones have one number in the folder and another one in the lake.
        """
        if not isinstance(operation, REPLAYED_IN_A_ROW):
            return False
        if not isinstance(operation, Delete | Update):
            return True
        return facts.modified_fragments(operation) <= self._before.manifest.fragments_by_id.keys()

    def _refusal(self, foreign: ForeignManifest, why: str) -> IncompatibleConflict:
        version, mine = foreign.version, self._mine.version
        return IncompatibleConflict(
            f"{foreign.transaction.operation_name}, which was committed by path as version {version}, cannot be "
            f"put on top of the lake's version {mine}. {why}",
            table=self._files.root,
            version=version,
            base_version=mine,
            hint=f"Look at it with lance.dataset(path, version={version}). lake.mend(name, discard=True) goes on from "
            "the lake's version; the other stays readable under its number, to bring in by hand what is needed.",
        )
