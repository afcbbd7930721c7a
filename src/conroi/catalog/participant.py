"""Request of a multi-table commit, and its participants: one table's change each, rebased, built, staged, and finalized
once published.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from conroi.catalog.catalog import Catalog, SnapshotKey, snapshot_key
from conroi.catalog.names import SEPARATOR, parents, shown
from conroi.catalog.preconditions import Expectation, ListingExpectation, TagsExpectation
from conroi.catalog.rows import Amendment, Row, new_lock_id
from conroi.catalog.state import Changes, CommitMetadata, LakeState, joined_properties
from conroi.catalog.store import Dependencies, Published, Task
from conroi.commit.change import Change, CommitResult, Plan
from conroi.commit.pending import Built, Pending
from conroi.environment import Moment, earliest, moment
from conroi.errors import (
    AlreadyExistsError,
    ConroiError,
    IncompatibleConflict,
    RetryableConflict,
)
from conroi.operations import Append
from conroi.retry_policy import PUBLICATION_RETRIES, PUBLICATION_TIMEOUT_S
from conroi.snapshots.external_manifest import ExternalManifest
from conroi.snapshots.pin import Pin, finalize, forked, refuse_cleanup, staged_pin
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_transaction
from conroi.storage.parallel import ProcessLock, later
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


def check_request(request: PublishRequest, state: LakeState, catalog: Catalog) -> None:
    """Check the preconditions of a publication on this state, but for names; raises the conflict."""
    for expectation in request.expects:
        expectation.check(state, catalog.version_of, catalog.operations_between)
    if request.listing is not None:
        request.listing.check(state)
    for tags in request.tags:
        tags.check()
    for amendment in request.amendments:
        amendment.check(state.table(amendment.object_id))
    for object_id, row in request.unchanged.items():
        if state.rows.get(object_id) != row:
            raise RetryableConflict(
                f"A concurrent publication changed {shown(object_id)!r}, on which this one depends.",
                hint="Run the work again.",
            )


def dependencies_of(request: PublishRequest, changes: Changes) -> Dependencies:
    """Read set of a publication of these changes: what Publishing.check_at and Publishing.build look at."""
    return Dependencies(
        frozenset(_objects(request, changes)),
        listing=request.listing is not None,
        everything=_depends_on_folders(request) or _removes_namespaces(request),
    )


def _objects(request: PublishRequest, changes: Changes) -> Iterator[str]:
    for wanted in request.tables:
        yield wanted.object_id
        if wanted.was is not None:
            yield wanted.was
    for expectation in request.expects:
        yield expectation.object_id
    for amendment in request.amendments:
        yield amendment.object_id
    yield from request.rows
    yield from request.leaving
    yield from request.unchanged
    for object_id, row in changes.items():
        yield object_id
        if row is not None and SEPARATOR in object_id:
            yield from parents(object_id)


def _depends_on_folders(request: PublishRequest) -> bool:
    """Whether a folder is brought in that no other table of the lake may have."""
    return any(
        row is not None and row.is_table and object_id not in request.base.rows
        for object_id, row in request.rows.items()
    )


def _removes_namespaces(request: PublishRequest) -> bool:
    """Whether a namespace is removed, which must be empty."""
    leaving = {*request.leaving, *(object_id for object_id, row in request.rows.items() if row is None)}
    found = (request.base.rows.get(object_id) for object_id in leaving)
    return any(row is not None and not row.is_table for row in found)


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
        self.pending = Pending(wanted.files, wanted.change)
        self._now = wanted.row
        """Its row in the state that the publication is for."""
        self._built_on: Snapshot | None = None
        self._built_at: Moment | None = None
        self._is_staged = False
        self.is_taken = False
        """Whether the next final name was found to exist already."""
        self.moved = False
        """Whether a concurrent commit changed this table."""
        self._new_lock: int | None = None
        self._shared: CommitResult | None = None
        self._sharing = ProcessLock()

    # ------------------------------------------------------------------------ concurrent commits

    def catch_up(self, state: LakeState) -> None:
        """Rebase over the version that the lake now has of this table, or raise the conflict."""
        self.moved = False
        if self.is_new:
            return
        self._now = row = self._row(state)
        snapshot, seen = self._catalog.snapshot(row), self.pending.seen
        if snapshot is seen:
            return
        assert seen is not None, "only a new table has no base"
        if snapshot.version > seen.version:
            self._refuse_repaired(row, seen)
            self.pending.catch_up(snapshot.located, snapshot)
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
                base_version=self.pending.base_version,
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
                base_version=self.pending.base_version,
                hint="Nothing was committed. Look at lake.history() for who did it.",
            )
        if row is self.wanted.row:
            return row
        if row.incarnation != self.wanted.row.incarnation:
            raise RetryableConflict(
                f"The table {shown(self.wanted.was)!r} was dropped and created again concurrently.",
                table=shown(self.wanted.was),
                base_version=self.pending.base_version,
                hint="Run the work again in a new transaction, if it is meant for the new table.",
            )
        if not row.continues(self.wanted.row):
            raise RetryableConflict(
                f"A merge brought another line of versions of the table {shown(self.wanted.was)!r} while this work was "
                "done.",
                table=shown(self.wanted.was),
                version=None if row.pin is None else row.pin.version,
                base_version=self.pending.base_version,
                hint="Run the work again in a new transaction; lake.run(function) does that for you.",
            )
        return row

    # ------------------------------------------------------------------------ group commit

    @property
    def is_plain_append(self) -> bool:
        """Whether it only adds rows, so that it can become one Append with those of other threads."""
        change, plan = self.pending.change, self.pending.plan
        is_free = plan.guard is None and not plan.must_not_move and not change.is_strict and not change.is_detached
        is_append = isinstance(plan.staged.operation, Append) and not plan.staged.unwritten
        return is_free and is_append and self.wanted.was == self.wanted.object_id

    def is_current(self, state: LakeState) -> bool:
        """Whether what is staged is the next version of the table in this state, too."""
        return self.is_new or self._row(state) == self._now

    def check_append(self, state: LakeState) -> None:
        """Rebase, and raise the conflict, before the append is joined with others."""
        self.catch_up(state)
        self.pending.next_fragments()

    @classmethod
    def of_appends(cls, catalog: Catalog, state: LakeState, appends: Sequence[Participant]) -> Participant:
        """Appends of several threads to one table as one, built on this state: the rows of each in one run."""
        pending, first = [each.pending for each in appends], appends[0].pending
        fragments = tuple(fragment for each in pending for fragment in each.next_fragments())
        base = first.seen
        assert base is not None, "only a new table has no base"
        change = Change(
            Plan(replace(first.plan.staged, operation=Append(fragments=fragments), base=base.manifest)),
            base,
            uuid=str(catalog.environment.new_uuid()),
            uuid_is_fresh=True,
            properties=joined_properties([each.change.properties for each in pending]),
            begun_at=earliest([each.change.begun_at for each in pending]),
        )
        joined = cls(catalog, replace(appends[0].wanted, change=change))
        joined.catch_up(state)
        joined.build()
        return joined

    def joined(self, joined: Participant, attempts: int) -> CommitResult:
        """The result of an append that was published as a part of this one; all but one are told that they share it."""
        result, is_first = joined.published_once(attempts)
        if is_first and not self._objects.is_local:
            finalize_later(self._catalog, joined)
        rebased_over = tuple(sorted(self.pending.rebased_over))
        return replace(result, attempts=attempts, rebased_over=rebased_over, is_shared=not is_first)

    def recovered(self, row: Row | None, attempts: int) -> CommitResult:
        """The result of a publication that was found in the history."""
        if row is None or row.pin is None or ("_pin" in self.__dict__ and row.pin == self._pin):
            return self.published(attempts)
        return recovered(self._catalog, row, attempts, tuple(sorted(self.pending.rebased_over)))

    def published_once(self, attempts: int) -> tuple[CommitResult, bool]:
        """The result, and whether this is the first call; it may come from any thread."""
        with self._sharing:
            is_first = self._shared is None
            self._shared = self._shared or self.published(attempts)
            return self._shared, is_first

    # ------------------------------------------------------------------------ our turn

    def get_ready(self) -> None:
        """Write early what will hardly change any more, while waiting for our turn."""
        if self._built_at is None:
            self.pending.write_first_transaction()

    def build(self) -> None:
        """Build the next manifest, unless the one that is staged still fits."""
        environment, seen = self._catalog.environment, self.pending.seen
        is_built = self._built_at is not None and self._built_on is seen
        if is_built and is_recent_for_files(environment, self._built_at):
            return
        started = moment(environment)
        self._built = built = self.pending.build_next()
        refuse_cleanup(built.file.manifest, self.name)
        self._pin = staged_pin(built.located, built.transaction.uuid, environment)
        self._built_on, self._built_at = seen, started
        self._is_staged = False

    def tasks(self) -> list[Task]:
        """What must be written before the publication; in any order."""
        tasks: list[Task] = [self._probe]
        seen = self.pending.seen
        if seen is not None and self._catalog.branch is not None:
            tasks.append(partial(self._catalog.fork, self.wanted.row, seen))
        if seen is not None and not seen.is_final and not self._catalog.is_final(self.wanted.row, self._pin_of(seen)):
            tasks.append(partial(self._finalize_before, seen))
        if not self._is_staged:
            built = self._built
            tasks.append(partial(self._objects.put_unique, self._pin.manifest, built.data))
            tasks.append(partial(self.pending.write_transaction, built.transaction, built.encoded_transaction))
        return tasks

    def staged(self) -> None:
        """All tasks are done."""
        self._is_staged = True
        self.pending.confirm(self._built)

    def _probe(self) -> None:
        self.is_taken = self._objects.head(self._built.located.path) is not None

    def _finalize_before(self, seen: Snapshot) -> None:
        """Finalize a version before the next one is published, so that readers by path see no gap."""
        pin = self._pin_of(seen)
        future = self._catalog.finalizing.get(snapshot_key(self.wanted.row, pin))
        if future is None or not future.result():
            finalize(self._objects, pin, self._catalog.environment)

    def _pin_of(self, seen: Snapshot) -> Pin:
        return Pin(seen.version, seen.located.path, _uuid_of(seen))

    def pinned_row(self) -> Row:
        """The row of this table after the publication."""
        now = self._now
        if now.lock is None:  # the first version of a table that others made, or of one on a branch
            self._new_lock = self._new_lock or new_lock_id(self._catalog.environment)
            now = now.with_lock(self._new_lock)
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
        return self.pending.landed(snapshot, attempts)

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


def recovered(catalog: Catalog, row: Row, attempts: int, rebased_over: tuple[int, ...] = ()) -> CommitResult:
    """The result of a commit, read back from the version that the row pins."""
    snapshot = catalog.snapshot(row)
    transaction = load_transaction(catalog.objects_of(row), snapshot)
    assert transaction is not None, "every version of ours has its transaction"
    return CommitResult(snapshot, transaction, attempts, rebased_over)


class Finalizable(Protocol):
    """A table of a publication whose manifest gets its final name after the commit."""

    @property
    def key(self) -> SnapshotKey: ...

    def finalize(self) -> bool: ...


def finalize_later(catalog: Catalog, participant: Finalizable) -> None:
    """Finalize in the background."""
    finalizing = catalog.finalizing
    finalizing[participant.key] = running = later(participant.finalize)
    running.when_done(lambda: finalizing.pop(participant.key, None))
