"""Repair of a diverged table: one for which the lake and an out-of-band writer created the same version.

The lake's version and the other one stay as they are. The two histories join in one new version with a number above
both, so that no final name is used twice. Its transaction is a Restore, which conflicts with everything, because a
writer that started from either side must read the table again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from conroi.catalog.catalog import Catalog, LakeTableFiles, table_files
from conroi.catalog.expectations import Expectation
from conroi.catalog.names import shown
from conroi.catalog.publishing import LakePublisher, Order, Publishing
from conroi.catalog.records import Notes
from conroi.catalog.rows import Row
from conroi.commit.change import Change
from conroi.commit.foreign import ForeignManifest, read_final
from conroi.commit.pending import Built, Pending
from conroi.commit.pins import Pin, finalize, staged_path
from conroi.commit.snapshot import Snapshot, load_transaction
from conroi.conflicts import Staged
from conroi.errors import (
    ConroiError,
    CorruptionError,
    ExpectedVersionMismatch,
    ForkedTableError,
    IncompatibleConflict,
)
from conroi.maintenance.replaying import Replay
from conroi.operations import Restore

_log = logging.getLogger(__name__)

ROUNDS = 10
"""Maximum number of attempts to repair a table under concurrent out-of-band writes."""


def mend(catalog: Catalog, object_id: str, *, discard: bool = False) -> bool:
    """Repair a diverged table; False if it has not diverged. With `discard` only the lake's side continues."""
    for attempt in range(ROUNDS):
        row = catalog.row(object_id, catalog.state())
        if not _is_forked(catalog, row):
            return attempt > 0
        try:
            _Mending(catalog, row).publish(discard=discard)
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
class _Mending:
    catalog: Catalog
    row: Row

    def publish(self, *, discard: bool) -> None:
        """Publish the version in which the two histories join, unless the lake has moved on."""
        mine, foreign = self.catalog.snapshot(self.row), self._foreign()
        merged = mine if discard else self._replayed(mine, foreign)
        pending = self._meeting(merged, mine.version, foreign[-1].snapshot)
        built = pending.build()
        pin = self._stage(pending, built)
        if self._files.objects.head(built.located.path) is not None:
            return  # another out-of-band write: try again
        Publishing(self.catalog, self._order(pin, foreign, discard=discard)).run()
        try:
            finalize(self._files.objects, pin, self.catalog.environment, built.data)
        except ForkedTableError:
            _log.warning("%s was written by its path again while it was repaired", shown(self.row.object_id))
        except ConroiError as error:  # it is published: the next writer finalizes it
            _log.warning("%s is repaired, but not final yet: %s", shown(self.row.object_id), error)

    def _foreign(self) -> list[ForeignManifest]:
        """The out-of-band commits, from the version that the lake has too."""
        found: list[ForeignManifest] = []
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

    def _replayed(self, mine: Snapshot, foreign: list[ForeignManifest]) -> Snapshot:
        transaction = load_transaction(self._files.objects, mine)
        assert transaction is not None, "every version of ours has its transaction"
        before = self.catalog.final_version(self.row, mine.version - 1)
        return Replay(self._files, mine, transaction, before).all(foreign)

    def _meeting(self, merged: Snapshot, version: int, last: Snapshot) -> Pending:
        """The new version: the merged table, numbered above the last out-of-band version."""
        head = merged.manifest.editable_head()
        head.version = version
        restored = Snapshot(merged.manifest.changed(head=head), merged.located)
        change = Change(
            Staged(Restore(version), last.manifest),
            last,
            uuid=str(self.catalog.environment.new_uuid()),
            restored=restored,
        )
        return Pending(self._files, change)

    def _stage(self, pending: Pending, built: Built) -> Pin:
        objects = self._files.objects
        path = staged_path(built.located, str(self.catalog.environment.new_uuid()))
        objects.put(path, built.data)
        pending.write_transaction(built.transaction, built.encoded_transaction)
        return Pin(built.located.version, path, built.transaction.uuid)

    def _order(self, pin: Pin, foreign: list[ForeignManifest], *, discard: bool) -> Order:
        row = self.row.pinned_at(pin).mended_at(pin.version)
        versions = ", ".join(str(each.version) for each in foreign)
        what = "leave out" if discard else "bring in"
        notes = Notes(f"mend {shown(row.object_id)}: {what} what was written past the lake as {versions}")
        expected = Expectation(row.object_id, self._pin.version, self.row.incarnation, seen=self.row)
        return Order(self.catalog.known_state(), rows={row.object_id: row}, expects=[expected], notes=notes)

    @property
    def _pin(self) -> Pin:
        assert self.row.pin is not None
        return self.row.pin

    @property
    def _files(self) -> LakeTableFiles:
        return table_files(self.catalog, self.row, LakePublisher(self.catalog))
