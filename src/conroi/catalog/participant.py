"""Request of a multi-table commit, and its participants: one table's change each, rebased, built, staged, and finalized
once published.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from conroi.catalog.catalog import Catalog, SnapshotKey, snapshot_key
from conroi.catalog.names import shown
from conroi.catalog.preconditions import Expectation, ListingExpectation, TagsExpectation
from conroi.catalog.rows import Amendment, Row, new_lock_id
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.catalog.store import Published, Task
from conroi.commit.change import Change, CommitResult
from conroi.commit.pending import Built, Pending
from conroi.environment import Moment, moment
from conroi.errors import (
    AlreadyExistsError,
    ConroiError,
    IncompatibleConflict,
    RetryableConflict,
)
from conroi.retry_policy import PUBLICATION_RETRIES, PUBLICATION_TIMEOUT_S
from conroi.snapshots.external_manifest import ExternalManifest
from conroi.snapshots.pin import Pin, finalize, forked, refuse_cleanup, staged_pin
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.versions.folder import ManifestRef
from conroi.versions.retention import is_recent_for_files, is_recent_for_versions

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableChange:
    """Requested change of one table."""

    object_id: str
    """Its name after the publication."""
    was: str | None
    """Its name at the base; None for a new table."""
    files: TableStorage
    change: Change | None
    """None if other software has already built the next manifest."""
    row: Row
    """Its row at the base, or the row that it is to get."""
    foreign: ExternalManifest | None = None
    """The next manifest, if other software has built it."""


@dataclass(frozen=True)
class PublishRequest:
    """A publication request: all changes and preconditions."""

    base: LakeState
    tables: Sequence[TableChange] = ()
    rows: Mapping[str, Row | None] = field(default_factory=dict[str, "Row | None"])
    """Rows without a new version: names that are registered or renamed, None for those dropped."""
    as_they_are: frozenset[str] = frozenset()
    """Of those rows, the ones that are published unchanged, even if the table was changed concurrently."""
    unchanged: Mapping[str, Row | None] = field(default_factory=dict[str, "Row | None"])
    """Precondition: these rows must be unchanged at the publication."""
    leaving: frozenset[str] = frozenset()
    """Names whose tables are dropped or renamed; other tables may get these names in the same publication."""
    expects: Sequence[Expectation] = ()
    listing: ListingExpectation | None = None
    tags: Sequence[TagsExpectation] = ()
    amendments: Sequence[Amendment] = ()
    notes: CommitMetadata = field(default_factory=CommitMetadata)
    uuid: str = ""
    retries: int = PUBLICATION_RETRIES
    timeout_s: float = PUBLICATION_TIMEOUT_S
    """Seconds after which no further attempt is made."""


@dataclass(frozen=True)
class PublishResult:
    """The result of a publication."""

    version: int
    tables: Mapping[str, CommitResult]
    """By object id."""
    attempts: int
    earlier: Published | None = None
    """The earlier publication with the same idempotency key, if this one was a no-op."""


class Participant:
    """One table in one publication."""

    _built: Built
    """The next manifest, once it is built."""
    _pin: Pin
    """Its place in the lake: a staged name of its own."""

    def __init__(self, catalog: Catalog, wanted: TableChange) -> None:
        self.wanted = wanted
        self.is_new = wanted.was is None
        self.name = shown(wanted.object_id)
        self._objects = wanted.files.objects
        self._catalog = catalog
        assert wanted.change is not None, "what is built already is no part of this kind"
        self._pending = Pending(wanted.files, wanted.change)
        self._now = wanted.row
        """Its row in the state that the publication is for."""
        self._built_on: Snapshot | None = None
        self._built_at: Moment | None = None
        self._is_staged = False
        self.is_taken = False
        """Whether the next final name was found to exist already."""
        self.moved = False
        """Whether a concurrent commit changed this table."""

    # ------------------------------------------------------------------------ concurrent commits

    def catch_up(self, state: LakeState) -> None:
        """Rebase over the version that the lake now has of this table, or raise the conflict."""
        self.moved = False
        if self.is_new:
            return
        self._now = row = self._row(state)
        snapshot, seen = self._catalog.snapshot(row), self._pending.seen
        if snapshot is seen:
            return
        assert seen is not None, "only a new table has no base"
        if snapshot.version > seen.version:
            self._refuse_repaired(row, seen)
            self._pending.catch_up(snapshot.located, snapshot)
            self.moved = True
        elif row.pin is not None and snapshot.version == seen.version and _uuid_of(snapshot) != _uuid_of(seen):
            raise forked(self._objects, row.pin)  # another commit has the number of the version that we read by path
        elif row.pin is not None and snapshot.version < seen.version:
            raise RetryableConflict(
                f"The lake went back to version {snapshot.version} of the table.",
                table=self.name,
                version=snapshot.version,
                base_version=seen.version,
                hint="Run the work again in a new transaction.",
            )

    def _refuse_repaired(self, row: Row, seen: Snapshot) -> None:
        """A repaired table cannot be rebased over: the version numbers in between belong to the out-of-band writer."""
        if seen.version < row.repaired_in:
            raise RetryableConflict(
                f"The table was repaired in version {row.repaired_in}, after an out-of-band write by its path.",
                table=self.name,
                version=row.repaired_in,
                base_version=self._pending.base_version,
                hint="Run the work again in a new transaction; lake.run(function) does that for you.",
            )

    def taken(self) -> tuple[Row, ManifestRef]:
        """Our next final name is taken: the table and the version that is to be adopted first."""
        if self.is_new:
            raise AlreadyExistsError(
                f"The folder of the new table {self.name!r} has a table in it already.",
                table=self.name,
                hint="lake.register(name, folder) adds an existing table to the lake; or choose another name.",
            )
        return self._now, self._built.located

    def _row(self, state: LakeState) -> Row:
        """The current row of this table; NotFoundError if it was dropped, renamed or created again."""
        assert self.wanted.was is not None
        row = state.table(self.wanted.was)
        if row is None:
            raise IncompatibleConflict(
                f"The table {shown(self.wanted.was)!r} was dropped or renamed while this work was done.",
                table=shown(self.wanted.was),
                base_version=self._pending.base_version,
                hint="Nothing was committed. Look at lake.history() for who did it.",
            )
        if row is self.wanted.row:
            return row
        if row.incarnation != self.wanted.row.incarnation:
            raise RetryableConflict(
                f"The table {shown(self.wanted.was)!r} was dropped and created again concurrently.",
                table=shown(self.wanted.was),
                base_version=self._pending.base_version,
                hint="Run the work again in a new transaction, if it is meant for the new table.",
            )
        if not row.continues(self.wanted.row):
            raise RetryableConflict(
                f"A merge brought another line of versions of the table {shown(self.wanted.was)!r} while this work was "
                "done.",
                table=shown(self.wanted.was),
                version=None if row.pin is None else row.pin.version,
                base_version=self._pending.base_version,
                hint="Run the work again in a new transaction; lake.run(function) does that for you.",
            )
        return row

    # ------------------------------------------------------------------------ our turn

    def get_ready(self) -> None:
        """Write early what will hardly change any more, while waiting for our turn."""
        if self._built_at is None:
            self._pending.write_first_transaction()

    def build(self) -> None:
        """Build the next manifest, unless the one that is staged still fits."""
        environment, seen = self._catalog.environment, self._pending.seen
        is_built = self._built_at is not None and self._built_on is seen
        if is_built and is_recent_for_files(environment, self._built_at):
            return
        started = moment(environment)
        self._built = built = self._pending.build_next()
        refuse_cleanup(built.file.manifest, self.name)
        self._pin = staged_pin(built.located, built.transaction.uuid, environment)
        self._built_on, self._built_at = seen, started
        self._is_staged = False

    def tasks(self) -> list[Task]:
        """What must be written before the publication; in any order."""
        tasks: list[Task] = [self._probe]
        seen = self._pending.seen
        if seen is not None and self._catalog.branch is not None:
            tasks.append(partial(self._catalog.fork, self.wanted.row, seen))
        if seen is not None and not seen.is_final:
            tasks.append(partial(self._finalize_before, seen))
        if not self._is_staged:
            built = self._built
            tasks.append(partial(self._objects.put_unique, self._pin.manifest, built.data))
            tasks.append(partial(self._pending.write_transaction, built.transaction, built.encoded_transaction))
        return tasks

    def staged(self) -> None:
        """All tasks are done."""
        self._is_staged = True
        self._pending.confirm(self._built)

    def _probe(self) -> None:
        self.is_taken = self._objects.head(self._built.located.path) is not None

    def _finalize_before(self, seen: Snapshot) -> None:
        """Finalize a version before the next one is published, so that readers by path see no gap."""
        pin = Pin(seen.version, seen.located.path, _uuid_of(seen))
        future = self._catalog.finalizing.get(snapshot_key(self.wanted.row, pin))
        if future is None or not future.result():
            finalize(self._objects, pin, self._catalog.environment)

    def pinned_row(self) -> Row:
        """The row of this table after the publication."""
        now = self._now
        if now.lock is None:  # the first version of a table that others made, or of one on a branch
            now = now.with_lock(new_lock_id(self._catalog.environment))
        return now.pinned_at(self._pin, self.wanted.object_id)

    # ------------------------------------------------------------------------ published

    def published(self, attempts: int) -> CommitResult:
        """The result, once the lake has published it. It is finalized now, or in the background."""
        snapshot = self._finalized() if self._objects.is_local else None
        if snapshot is None:
            pin, built = self._pin, self._built
            staged = ManifestRef(pin.version, pin.manifest, built.located.naming)
            snapshot = Snapshot(built.file.manifest, staged, built.file.transaction, is_final=False)
            snapshot = self._catalog.keep(self.wanted.row, pin, snapshot)
        return self._pending.landed(snapshot, attempts)

    def finalize(self) -> bool:
        """Put the manifest under its final name; False if that is impossible, which the next writer detects."""
        return self._finalized() is not None

    def _finalized(self) -> Snapshot | None:
        """The version under its final name; None if it cannot get that."""
        try:
            # After a while others may have made it final and collected it: the staged file says so by being gone.
            is_recent = is_recent_for_versions(self._catalog.environment, self._built_at)
            finalize(self._objects, self._pin, self._catalog.environment, self._built.data if is_recent else None)
        except ConroiError as error:
            _log.warning("version %d of %s is published but not final: %s", self._pin.version, self.name, error)
            return None
        return self._catalog.keep(self.wanted.row, self._pin, self._built.snapshot)

    @property
    def key(self) -> SnapshotKey:
        """The key by which other threads find a running finalization."""
        return snapshot_key(self.wanted.row, self._pin)


def _uuid_of(snapshot: Snapshot) -> str:
    return snapshot.manifest.head.transaction_file.partition("-")[2].removesuffix(".txn")
