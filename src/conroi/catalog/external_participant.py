"""Participant of a multi-table commit whose next manifest was built by other software.

It cannot be rebased here. Either it is the very next version, or it is refused and its writer rebases it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NoReturn

from conroi.catalog.catalog import Catalog, SnapshotKey, snapshot_key
from conroi.catalog.names import shown
from conroi.catalog.participant import TableChange
from conroi.catalog.preconditions import refuse_duplicate_keys
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.catalog.store import Task
from conroi.commit.change import CommitResult
from conroi.environment import moment
from conroi.errors import (
    ConroiError,
    CorruptionError,
    ExpectedVersionMismatch,
    IncompatibleConflict,
    InvalidInputError,
    RetryableConflict,
)
from conroi.snapshots.external_manifest import ExternalManifest, without_gained_coverage
from conroi.snapshots.pin import Pin, finalize
from conroi.snapshots.snapshot import Snapshot
from conroi.storage.objects import Objects
from conroi.versions.folder import ManifestRef
from conroi.versions.retention import is_recent_for_files

_log = logging.getLogger(__name__)

CREATIONS = ("Overwrite", "Clone")
"""Operations that create a table, when they are made on version 0."""


class ExternalParticipant:
    """The table of an external manifest in a publication."""

    def __init__(self, catalog: Catalog, wanted: TableChange, foreign: ExternalManifest) -> None:
        self.wanted = wanted
        self.is_taken = False
        self.moved = False
        self._catalog = catalog
        self._foreign = foreign
        self._before: Row | None = None
        self._is_checked = False
        self._is_final = not foreign.pin.is_staged
        self._begun_at = moment(catalog.environment)

    @property
    def is_new(self) -> bool:
        return self.wanted.was is None

    @property
    def name(self) -> str:
        return shown(self.wanted.object_id)

    # ------------------------------------------------------------------------ concurrent commits

    def catch_up(self, state: LakeState) -> None:
        """It must be the very next version of the table."""
        self._before = None if self.is_new else self._row(state)
        current = 0 if self._before is None else current_version(self._catalog, self._before)
        if current + 1 != self._foreign.version:
            raise not_the_next(self.name, self._foreign.version, current)
        self._refuse_late_creation(current)

    def _refuse_late_creation(self, current: int) -> None:
        """A table is created in two steps: a manifest that was built for a new table must not replace later versions.

        Lance does not report that an Overwrite lost a race, so it is checked here.
        """
        transaction = self._foreign.transaction
        if current and not transaction.read_version and transaction.operation_name in CREATIONS:
            raise RetryableConflict(
                f"The table {self.name!r} was created by another client in the meantime; it has version {current}.",
                table=self.name,
                version=current,
                base_version=0,
                hint="Open the table, and append to it, or overwrite it in a new transaction.",
            )

    def is_current(self, state: LakeState) -> bool:
        """Whether it is the next version of the table in this state, too."""
        return self.is_new or self._row(state) == self._before

    def _row(self, state: LakeState) -> Row:
        assert self.wanted.was is not None
        row = state.table(self.wanted.was)
        if row is None or row.incarnation != self.wanted.row.incarnation:
            raise IncompatibleConflict(
                f"The table {shown(self.wanted.was)!r} was dropped or created again concurrently.",
                table=shown(self.wanted.was),
                hint="Nothing was committed. Look at lake.history() for who did it.",
            )
        if not row.continues(self.wanted.row):
            raise RetryableConflict(
                f"A merge brought another line of versions of the table {shown(self.wanted.was)!r} meanwhile.",
                table=shown(self.wanted.was),
                hint="Open the table again, and make the change on its newest version.",
            )
        return row

    def taken(self) -> NoReturn:
        """An out-of-band writer took its final name, so its writer must rebase."""
        raise RetryableConflict(
            f"Version {self._foreign.version} of the table was written past the lake meanwhile.",
            table=self.name,
            version=self._foreign.version,
            base_version=self._foreign.version - 1,
            hint="Rebase over it, and ask for the next version.",
        )

    # ------------------------------------------------------------------------ our turn

    def get_ready(self) -> None:
        """Others built it."""

    def build(self) -> None:
        """Nothing to build; its effect on the table is validated, once."""
        if self._is_checked or not self._foreign.pin.is_staged:
            return
        base = None if self._before is None else head_of(self._catalog, self._before)
        if base is not None and base.naming is not self._foreign.snapshot.naming:
            raise InvalidInputError(
                f"The table names its manifests by the scheme {base.naming.value}.",
                table=self.name,
                hint="Stage the manifest under a name of the same scheme.",
            )
        refuse_duplicate_keys(self.wanted.files, base, self._foreign)
        if base is not None:
            self._foreign = without_gained_coverage(self._objects, base, self._foreign)
        self._is_checked = True

    def tasks(self) -> list[Task]:
        tasks: list[Task] = [self._probe]
        before = self._before
        if before is not None and before.pin is not None:
            tasks.append(lambda: make_final(self._catalog, before))
            if self._catalog.branch is not None:
                tasks.append(lambda: self._catalog.fork(before, self._catalog.snapshot(before)))
        return tasks

    def staged(self) -> None:
        """Other software staged it; if that was long ago, it may have been collected."""
        pin = self._foreign.pin
        may_be_gone = pin.is_staged and not is_recent_for_files(self._catalog.environment, self._begun_at)
        if may_be_gone and self._objects.head(pin.manifest) is None:
            raise RetryableConflict(
                f"The staged manifest {pin.manifest} was collected before it could be published.",
                table=self.name,
                version=pin.version,
                hint="Stage it again, and ask for the version again.",
            )

    def _probe(self) -> None:
        pin = self._foreign.pin
        self.is_taken = pin.is_staged and self._objects.head(pin.final.path) is not None

    def pinned_row(self) -> Row:
        return (self._before or self.wanted.row).pinned_at(self._foreign.pin)

    # ------------------------------------------------------------------------ published

    def published(self, attempts: int) -> CommitResult:
        """The result; it is finalized before its writer gets the response."""
        self._catalog.keep(self.wanted.row, self._foreign.pin, self._foreign.snapshot)
        snapshot = self._foreign.final_snapshot if self.finalize() else self._foreign.snapshot
        return CommitResult(snapshot, self._foreign.transaction, attempts, ())

    def recovered(self, row: Row | None, attempts: int) -> CommitResult:  # noqa: ARG002
        """The result of a publication that was found in the history: the manifest was built by others."""
        return self.published(attempts)

    def finalize(self) -> bool:
        if self._is_final:
            return True
        try:
            finalize(self._objects, self._foreign.pin, self._catalog.environment)
        except ConroiError as error:
            _log.warning("version %d of %s is published but not final: %s", self._foreign.version, self.name, error)
            return False
        self._catalog.keep(self.wanted.row, self._foreign.pin, self._foreign.final_snapshot)
        self._is_final = True
        return True

    @property
    def key(self) -> SnapshotKey:
        return snapshot_key(self.wanted.row, self._foreign.pin)

    @property
    def _objects(self) -> Objects:
        return self.wanted.files.objects


def refuse_taken(catalog: Catalog, row: Row, version: int) -> None:
    """The requested version must not exist."""
    current = current_version(catalog, row)
    if version <= current:
        raise not_the_next(shown(row.object_id), version, current)


def not_the_next(table: str, version: int, current: int) -> ExpectedVersionMismatch:
    return ExpectedVersionMismatch(
        f"Version {version} of table {table!r} cannot be created: the lake has {current}.",
        table=table,
        expected=version - 1,
        actual=current,
        hint="Rebase over the existing versions, and request the next one.",
        is_retryable=True,
    )


def current_version(catalog: Catalog, row: Row) -> int:
    """The newest version that the lake has of the table; 0 for one that is only declared."""
    return catalog.version_of(row)


def head_of(catalog: Catalog, row: Row) -> Snapshot | None:
    """That version, loaded; None for a table that is only declared."""
    return catalog.snapshot(row) if current_version(catalog, row) else None


def make_final(catalog: Catalog, row: Row) -> ManifestRef:
    """The location of the table's pinned version under its final name; it is finalized now if it was not."""
    pin: Pin | None = row.pin
    if pin is None:
        raise CorruptionError("A table that is not managed has no pinned version.", hint="Publish to it first.")
    snapshot = catalog.snapshot(row)
    if not snapshot.is_final:
        under_way = catalog.finalizing.get(snapshot_key(row, pin))
        if under_way is None or not under_way.result():
            finalize(catalog.objects_of(row), pin, catalog.environment)
        catalog.keep(row, pin, replace(snapshot, located=pin.final, is_final=True))
    return pin.final
