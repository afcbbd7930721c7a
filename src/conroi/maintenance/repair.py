"""Repair after crashes and out-of-band writes: the lake is brought in line with its tables' folders."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from conroi import operations
from conroi.catalog.catalog import Catalog
from conroi.catalog.names import shown
from conroi.catalog.participant import PublishRequest
from conroi.catalog.preconditions import Expectation, refuse_duplicate_keys
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import Row
from conroi.catalog.state import CommitMetadata
from conroi.catalog.tables import LakeTableStorage, table_files
from conroi.commit.change import Change, Plan
from conroi.commit.pending import Built, Pending
from conroi.conflicts import Staged, facts
from conroi.errors import (
    ConflictError,
    ConroiError,
    CorruptionError,
    DuplicateKeyError,
    ExpectedVersionMismatch,
    ForkedTableError,
    IncompatibleConflict,
)
from conroi.format.transaction import Transaction
from conroi.operations import Append, Delete, Operation, Overwrite, Restore, Update, UpdateConfig
from conroi.snapshots.deletions import affected_rows
from conroi.snapshots.external_manifest import ExternalManifest, read_final
from conroi.snapshots.pin import Pin, finalize, staged_pin
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_transaction

_log = logging.getLogger(__name__)

ROUNDS = 10
"""Maximum number of attempts to repair a table under concurrent out-of-band writes."""


def repair(catalog: Catalog, object_id: str, *, discard: bool = False) -> bool:
    """Repair a diverged table; False if it has not diverged. With `discard` only the lake's side continues."""
    for attempt in range(ROUNDS):
        row = catalog.row(object_id, catalog.state())
        if not _is_forked(catalog, row):
            return attempt > 0
        try:
            _Repair(catalog, row).publish(discard=discard)
        except ExpectedVersionMismatch:
            _log.info("%s was repaired concurrently by another process", shown(object_id))
    raise IncompatibleConflict(
        f"The table {shown(object_id)!r} is written by its path faster than it can be repaired.",
        table=shown(object_id),
        hint="Stop the writers by path, and call mend() again.",
    )


def _is_forked(catalog: Catalog, row: Row) -> bool:
    """Whether the pinned version cannot be finalized; if it was only late, it is finalized now."""
    if row.pin is None:
        return False
    try:
        finalize(catalog.objects_of(row), row.pin, catalog.environment)
    except ForkedTableError:
        return True
    return False


@dataclass(frozen=True)
class _Repair:
    catalog: Catalog
    row: Row

    def publish(self, *, discard: bool) -> None:
        """Publish the version in which the two histories join, unless the lake has moved on."""
        mine, foreign = self.catalog.snapshot(self.row), self._foreign()
        merged = mine if discard else self._replayed(mine, foreign)
        pending = self._next_version(merged, mine.version, foreign[-1].snapshot)
        built = pending.build_next()
        pin = self._stage(pending, built)
        if self._files.objects.head(built.located.path) is not None:
            return  # another out-of-band write: try again
        Publishing(self.catalog, self._request(pin, foreign, discard=discard)).run()
        try:
            finalize(self._files.objects, pin, self.catalog.environment, built.data)
        except ForkedTableError:
            _log.warning("%s was written by its path again while it was repaired", shown(self.row.object_id))
        except ConroiError as error:  # it is published: the next writer finalizes it
            _log.warning("%s is repaired, but not final yet: %s", shown(self.row.object_id), error)

    def _foreign(self) -> list[ExternalManifest]:
        """The out-of-band commits, from the version that the lake has too."""
        found: list[ExternalManifest] = []
        pin = self._pin
        while (each := read_final(self._files.objects, pin.version + len(found), pin.final.naming)) is not None:
            found.append(each)
        if not found:
            raise CorruptionError(
                f"Version {pin.version} of the table was taken by path and is gone again.",
                table=shown(self.row.object_id),
                version=pin.version,
                hint="Call mend() again.",
            )
        return found

    def _replayed(self, mine: Snapshot, foreign: list[ExternalManifest]) -> Snapshot:
        transaction = load_transaction(self._files.objects, mine)
        assert transaction is not None, "every version of ours has its transaction"
        before = self.catalog.final_version(self.row, mine.version - 1)
        is_repair = self.row.repaired_in == mine.version
        return Replay(self._files, mine, transaction, before, is_repair=is_repair).all(foreign)

    def _next_version(self, merged: Snapshot, version: int, last: Snapshot) -> Pending:
        """The new version: the merged table, numbered above the last out-of-band version."""
        head = merged.manifest.editable_head()
        head.version = version
        restored = Snapshot(merged.manifest.changed(head=head), merged.located)
        plan = Plan(Staged(Restore(version), last.manifest), restored=restored)
        return Pending(self._files, Change(plan, last, uuid=str(self.catalog.environment.new_uuid())))

    def _stage(self, pending: Pending, built: Built) -> Pin:
        objects = self._files.objects
        pin = staged_pin(built.located, built.transaction.uuid, self.catalog.environment)
        objects.put(pin.manifest, built.data)
        pending.write_transaction(built.transaction, built.encoded_transaction)
        return pin

    def _request(self, pin: Pin, foreign: list[ExternalManifest], *, discard: bool) -> PublishRequest:
        row = self.row.pinned_at(pin).repaired_at(pin.version)
        versions = ", ".join(str(each.version) for each in foreign)
        what = "leave out" if discard else "bring in"
        notes = CommitMetadata(f"mend {shown(row.object_id)}: {what} what was written past the lake as {versions}")
        expected = Expectation(row.object_id, self._pin.version, self.row.incarnation, seen=self.row)
        return PublishRequest(self.catalog.known_state(), rows={row.object_id: row}, expects=[expected], notes=notes)

    @property
    def _pin(self) -> Pin:
        assert self.row.pin is not None
        return self.row.pin

    @property
    def _files(self) -> LakeTableStorage:
        return table_files(self.catalog, self.row)


REPLAYED_IN_A_ROW = (Append, Delete, Update, UpdateConfig)
"""Operations that may be among several out-of-band commits: their fragment references are known."""


class Replay:
    """The lake's version of a table, and the out-of-band changes of the version before it."""

    def __init__(
        self, files: TableStorage, mine: Snapshot, transaction: Transaction, before: Snapshot, *, is_repair: bool
    ) -> None:
        """`is_repair`: the lake's version is itself a repair, which diverged before it was final."""
        self._is_repair = is_repair
        self._files = files
        self._mine = mine
        self._transaction = transaction
        self._before = before

    def all(self, foreign: Sequence[ExternalManifest]) -> Snapshot:
        """The table with the changes of both sides; IncompatibleConflict if they are not compatible."""
        merged, base = self._mine, self._before
        for each in foreign:
            merged = self._explained(each, base, merged, is_alone=len(foreign) == 1)
            base = each.snapshot
        return merged

    def _explained(self, foreign: ExternalManifest, base: Snapshot, merged: Snapshot, *, is_alone: bool) -> Snapshot:
        operation = operations.of(foreign.transaction)
        if isinstance(operation, Overwrite | Restore):
            raise self._refusal(foreign, "It replaced all rows, so nothing of the lake's version would be left.")
        if not is_alone and not self._can_be_one_of_many(operation):
            raise self._refusal(foreign, "It is one of several, and it names what only exists past the lake.")
        try:
            return self._on_top(foreign, operation, base, merged)
        except (ConflictError, DuplicateKeyError) as error:
            raise self._refusal(foreign, error.message) from error

    def _on_top(self, foreign: ExternalManifest, operation: Operation, base: Snapshot, merged: Snapshot) -> Snapshot:
        affected = affected_rows(self._files.objects, operation, base.manifest)
        staged = Staged(operation, base.manifest, affected_rows=affected)
        change = Change(Plan(staged), base, uuid=str(self._files.environment.new_uuid()))
        pending = Pending(self._files, change)
        if self._is_repair and isinstance(operation, Append):
            pending.seen = merged  # a repair is a Restore, but it took nothing back of what is below the append
        else:
            pending.rebase_over(merged, self._transaction)
        built = pending.build_next()
        snapshot = Snapshot(built.file.manifest, built.located, built.file.transaction, is_final=False, is_private=True)
        refuse_duplicate_keys(self._files, merged, ExternalManifest(snapshot, foreign.transaction, foreign.pin))
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

    def _refusal(self, foreign: ExternalManifest, why: str) -> IncompatibleConflict:
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
