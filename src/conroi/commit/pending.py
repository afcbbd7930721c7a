"""A pending commit of one table: its change, rebased over concurrent commits and built into the next manifest.

`rebase_over` rebases it over one concurrent commit; `build_next` creates the manifest of the next version. Files are
written only if they may exist before the version is visible. Making the version visible is left to the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from conroi import operations
from conroi.commit.change import Change, CommitResult, detached_version
from conroi.commit.fairness import Turns
from conroi.commit.gc_safety import refuse_collected_between, refuse_collected_files, refuse_unless_retained
from conroi.conflicts import ConcurrentCommit, Outcome, Reason, Rebase, Verdict, are_unrelated, vector_key
from conroi.conflicts.facts import new_fragments
from conroi.environment import moment
from conroi.errors import (
    ConflictError,
    CorruptionError,
    ExpectedVersionMismatch,
    IncompatibleConflict,
    InvalidInputError,
    NotFoundError,
    RetryableConflict,
)
from conroi.format.fields import fields_by_path, never_null_and_missing
from conroi.format.flags import require_writable
from conroi.format.lance_pb2 import DataFragment
from conroi.format.manifest import check_transaction_fits
from conroi.format.manifest_file import ManifestFile, lay_out
from conroi.format.naming import version_after
from conroi.format.on_disk import BASE_PROPERTY, TRANSACTIONS_DIR, WRITER_PROPERTY
from conroi.format.transaction import Transaction, encode_transaction
from conroi.operations import Operation, Step
from conroi.snapshots.deletions import load_deletions, write_deletions
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_only_transaction, load_snapshot, load_transaction
from conroi.storage.parallel import together
from conroi.version import WRITER
from conroi.versions.folder import ManifestRef
from conroi.versions.retention import is_recent_for_files, is_recent_for_versions

READ_AT_ONCE = 32
"""Number of concurrent versions that are read in parallel."""


@dataclass(frozen=True, slots=True)
class Built:
    """The manifest of the next version, before its put: its bytes, their content, and its location."""

    located: ManifestRef
    data: bytes
    file: ManifestFile
    transaction: Transaction
    encoded_transaction: bytes

    @property
    def snapshot(self) -> Snapshot:
        """The version, once it is committed."""
        return Snapshot(self.file.manifest, self.located, self.file.transaction)


class Pending:
    """One change to one table. `seen` is the newest version that it has been rebased over."""

    def __init__(self, files: TableStorage, change: Change) -> None:
        self.files = files
        self.turns = files.kept(Turns)
        self.change = change
        self.plan = change.plan
        self._must_not_move = change.is_strict or change.plan.must_not_move
        self.seen = change.base
        self.base_version = 0 if change.base is None else change.base.version
        self.rebased_over: list[int] = []
        self._rebase = Rebase(change.plan.staged)
        self._winners: list[ConcurrentCommit] = []
        self._not_rebased_over: list[tuple[Snapshot, Transaction | None]] = []
        """Versions that were read, but not rebased over yet."""
        self._passed: tuple[ManifestRef, Transaction] | None = None
        """The newest version, if only its transaction was read: it is loaded when a manifest is built on it."""
        self._made: tuple[Operation, Transaction, bytes] | None = None
        """The transaction as last written, with its operation."""
        self._attempt_files: list[str] = []
        self._orphans: list[str] = []
        self._written_transactions: set[str] = set()
        self._detached_version: int | None = None
        self._confirmed_at = change.begun_at
        """Time up to which all our files are known to exist."""

    # ------------------------------------------------------------------ concurrent commits

    def catch_up(self, newest: ManifestRef, known: Snapshot | None = None) -> None:
        """Check and rebase over every version up to this one; `known` is a version that was read already."""
        if self.read(newest, known) is None:
            self.check()
            self.rebase()

    def read(self, newest: ManifestRef, known: Snapshot | None = None) -> Snapshot | None:
        """Read every version after `seen`; returns our own, if an earlier put of ours succeeded."""
        new = range(self.newest_read.version + 1, newest.version + 1)
        for first in new[::READ_AT_ONCE]:
            some = [
                newest if version == newest.version else self.located(version)
                for version in new[first - new.start : first - new.start + READ_AT_ONCE]
            ]
            loaded = self._loaded_together(some, known)
            for located in some:
                if located not in loaded and self._passes_over(located, is_newest=located == newest):
                    continue
                snapshot = loaded.get(located) or self._load(located)
                transaction = load_transaction(self.files.objects, snapshot)
                if transaction is not None:
                    if transaction.uuid == self.change.uuid:
                        return snapshot
                    self.turns.saw(snapshot.version, transaction, snapshot.timestamp_ns)
                self._not_rebased_over.append((snapshot, transaction))
                self._passed = None
        return None

    def check(self) -> None:
        """Preconditions on the versions that were read: strict and expect refuse any, an idempotency key its own."""
        for snapshot, transaction in self._not_rebased_over:
            if self.change.once is not None and transaction is not None:
                self.change.once.refuse_repeated(snapshot.version, transaction)
            if self._must_not_move and transaction is not None:
                raise self._moved(snapshot, transaction)

    def rebase(self) -> None:
        """Rebase over the versions that were read, oldest first, or raise the conflict."""
        if not self._not_rebased_over and self._passed is None:
            return
        assert self.seen is not None
        before = self.seen
        for snapshot, transaction in self._not_rebased_over:
            self.rebase_over(snapshot, transaction)
        self._not_rebased_over.clear()
        if not is_recent_for_versions(self.files.environment, self.change.begun_at):
            refuse_collected_between(self.files, before)

    def _loaded_together(self, some: Sequence[ManifestRef], known: Snapshot | None) -> dict[ManifestRef, Snapshot]:
        """Read these versions in parallel, where each takes a request, so that a writer does not fall behind by
        reading.

        On local disk they are read when they are needed, often only in part.
        """
        loaded = {} if known is None else {known.located: known}
        missing = [located for located in some if located not in loaded]
        if self.files.objects.is_local or not missing:
            return loaded

        def load(located: ManifestRef) -> None:
            loaded[located] = self._load(located)

        together([partial(load, located) for located in missing], is_local=False)
        return loaded

    def rebase_over(self, snapshot: Snapshot, transaction: Transaction | None) -> None:
        """Conflict check and rebase over this version, the next after `seen`; raises the conflict."""
        if transaction is None:
            raise CorruptionError(
                f"Version {snapshot.version} has no transaction, inside or beside it, so nothing can be checked "
                "against it.",
                table=self.files.root,
                version=snapshot.version,
                hint="Start again from the newest version.",
            )
        self.rebased_over.append(snapshot.version)
        mine = self.plan.staged.operation.name
        if self.plan.guard is not None or not are_unrelated(mine, transaction.operation_name):
            winner = ConcurrentCommit.of(snapshot.manifest, transaction, operations.of(transaction))
            self._winners.append(winner)
            self._rebase = self._rebase.over(winner)
            self._refuse_conflict(self._rebase.verdict, snapshot.version)
        self.seen = snapshot

    def _passes_over(self, located: ManifestRef, *, is_newest: bool) -> bool:
        """Whether this version is unrelated to our change, by its transaction alone.

        The newest one is wanted whole when our manifest is built, so it is passed over only on local disk: there a
        second look is cheap, and of most versions that a writer sees before its turn nothing else is ever needed.
        """
        if is_newest and not self.files.objects.is_local:
            return False
        if self.plan.guard is not None or self.change.once is not None or self._must_not_move:
            return False
        try:
            transaction = load_only_transaction(self.files.objects, located)
        except NotFoundError:
            return False
        if transaction is None or transaction.uuid == self.change.uuid:
            return False
        if not are_unrelated(self.plan.staged.operation.name, transaction.operation_name):
            return False
        self.rebased_over.append(located.version)
        self.turns.saw(located.version, transaction)
        if is_newest:
            self._passed = located, transaction
        return True

    def _load_passed(self, located: ManifestRef, transaction: Transaction) -> None:
        """Load the newest version, of which only this transaction was read."""
        snapshot = self._load(located)
        check_transaction_fits(snapshot.manifest, transaction)
        self.turns.timed(snapshot.version, snapshot.timestamp_ns)
        self.seen, self._passed = snapshot, None

    def _load(self, located: ManifestRef) -> Snapshot:
        try:
            return load_snapshot(self.files.objects, located)
        except NotFoundError:
            raise RetryableConflict(
                f"Version {located.version} was collected before this commit could be checked against it.",
                table=self.files.root,
                version=located.version,
                base_version=self.base_version,
                hint="Run the work again on the newest version.",
            ) from None

    def _moved(self, snapshot: Snapshot, transaction: Transaction) -> ExpectedVersionMismatch:
        return ExpectedVersionMismatch(
            f"You asked that the table stay at version {self.base_version}, but {snapshot.writer} committed "
            f"{transaction.operation_name} as version {snapshot.version}.",
            table=self.files.root,
            expected=self.base_version,
            actual=snapshot.version,
            hint="Look at what changed and run it again. To go ahead regardless, leave out strict and expect, or "
            'pass if_moved="win" to overwrite() and restore().',
        )

    def _refuse_conflict(self, verdict: Verdict, version: int) -> None:
        kinds: dict[Outcome, type[ConflictError]] = {
            Outcome.RETRYABLE: RetryableConflict,
            Outcome.INCOMPATIBLE: IncompatibleConflict,
        }
        kind = kinds.get(verdict.outcome)
        if kind is None:
            return
        reason = verdict.reason
        raise kind(
            "The commit was refused." if reason is None else f"{reason.what_happened} {reason.why}",
            table=self.files.root,
            version=version,
            base_version=self.base_version,
            hint=None if reason is None else reason.hint,
            reason=reason,
        )

    # ------------------------------------------------------------------------ our turn

    def build_next(self) -> Built:
        """Check and build the version after `seen`; its transaction file is not written yet."""
        if self._passed is not None:
            self._load_passed(*self._passed)
        seen, staged = self.seen, self.plan.staged
        if self.change.is_detached:
            self._detached_version = detached_version(seen, self.files)
        if seen is not None:
            require_writable(seen.manifest.head)
            if self.plan.guard is not None:
                self.plan.guard(seen, self._winners)
            if seen is not self.change.base:
                self._refuse_changed_columns(seen)
        located = self.located(self.next_version)
        needs_head = bool(staged.unwritten) or isinstance(staged.operation, operations.CreateIndex)
        try:
            if seen is None or (seen is self.change.base and not needs_head):
                operation, read_version = staged.operation, self.base_version
            else:
                operation, read_version = self._rebased(seen)
            transaction, encoded = self._transaction(operation, read_version)
            data, file = self._lay_out(located.version, transaction, operation, encoded)
        except InvalidInputError as error:
            if seen is None or self.change.base is None or seen.version == self.change.base.version:
                raise
            raise RetryableConflict(  # it was right on its base, so concurrent commits made it wrong
                f"Concurrent commits changed what this work was planned on. {error.message}",
                table=self.files.root,
                version=seen.version,
                base_version=self.base_version,
                hint="Run the work again on the newest version.",
            ) from error
        if seen is None:
            require_writable(file.manifest.head)
        return Built(located, data, file, transaction, encoded)

    def _refuse_changed_columns(self, seen: Snapshot) -> None:
        """Conflict: rows were written for other columns than the table has now, so some values would read as null.

        That is so for a column that was concurrently replaced by one of the same name, and for a new non-nullable one.
        """
        base = self.change.base
        if base is None or base.manifest.fields == seen.manifest.fields:
            return
        fragments = new_fragments(self.plan.staged.operation)
        written = {number for fragment in fragments for file in fragment.files for number in file.fields}
        before, now = fields_by_path(base.manifest.fields), fields_by_path(seen.manifest.fields)
        kept = {field.id for field in now.values()}
        gone = [path for path, field in before.items() if field.id in written - kept and path in now]
        missing = {name for each in fragments for name in never_null_and_missing(each, seen.manifest.fields)}
        if gone or missing:
            winner = self._winners[-1] if self._winners else None
            theirs = "Project" if winner is None else winner.operation.name
            mine = self.plan.staged.operation.name
            rule, names = ("rows/column-gone", gone) if gone else ("columns/nulls", sorted(missing))
            reason = Reason(rule=rule, mine=mine, theirs=theirs, names=tuple(names), winner=winner)
            self._refuse_conflict(Verdict(Outcome.RETRYABLE, reason), seen.version)

    def next_fragments(self) -> Sequence[DataFragment]:
        """What an append adds to the version after `seen`, after the checks of `build_next`."""
        seen = self.seen
        assert seen is not None, "only a new table has no base"
        require_writable(seen.manifest.head)
        if seen is not self.change.base:
            self._refuse_changed_columns(seen)
        return new_fragments(self.plan.staged.operation)

    def write_first_transaction(self) -> None:
        """Write the transaction file early, as it is without concurrent commits, so that the put need not wait for it.

        Not for one that is made on the newest version, whichever that will be.
        """
        if self.change.base is not None and not self.plan.staged.unwritten and not self._written_transactions:
            self.write_transaction(*self._transaction(self.plan.staged.operation, self.base_version))

    def write_transaction(self, transaction: Transaction, encoded: bytes) -> None:
        """Write the transaction file, once."""
        if transaction.file_name not in self._written_transactions:
            put = self.files.objects.put_unique if self.change.uuid_is_fresh else self.files.objects.put
            put(f"{TRANSACTIONS_DIR}/{transaction.file_name}", encoded)
            self._written_transactions.add(transaction.file_name)

    def confirm(self, built: Built) -> None:
        """Right before the put, after the transaction file was written: verify that nothing it needs was collected."""
        if self.plan.restored is not None:
            refuse_unless_retained(self.files, self.plan.restored)
        now = moment(self.files.environment)
        if is_recent_for_files(self.files.environment, self._confirmed_at):
            return
        self.files.objects.put(f"{TRANSACTIONS_DIR}/{built.transaction.file_name}", built.encoded_transaction)
        bases = built.file.manifest.head.base_paths
        is_given = self.change.begun_at is None
        refuse_collected_files(self.files, built.transaction, self.seen, bases, is_given=is_given)
        self._confirmed_at = now

    def _transaction(self, operation: Operation, read_version: int) -> tuple[Transaction, bytes]:
        if self._made is not None and self._made[0] is operation and self._made[1].read_version == read_version:
            return self._made[1], self._made[2]
        # A repaired operation counts as made on a newer version; history() still says what it was rebased over.
        made_on = {} if read_version == self.base_version else {BASE_PROPERTY: str(self.base_version)}
        transaction = operations.transaction(
            operation,
            read_version=read_version,
            uuid=self.change.uuid,
            properties={**self.change.properties, WRITER_PROPERTY: self.turns.me, **made_on},
        )
        self._made = operation, transaction, encode_transaction(transaction)
        return self._made[1], self._made[2]

    def _rebased(self, seen: Snapshot) -> tuple[Operation, int]:
        """Our operation rebased on `seen`, and its new base version.

        Deletion vectors that concurrent commits changed too are merged into new files.
        """
        needed = self._rebase.needs(seen.manifest)
        vectors = {vector_key(f): load_deletions(self.files.objects, seen.manifest, f) for f in needed}
        merged = self._rebase.merge(seen.manifest, vectors)
        self._refuse_conflict(merged.verdict, seen.version)
        self._orphans.extend(self._attempt_files)
        written = write_deletions(self.files, merged.vectors_to_write, seen.version, as_bitmap=True)
        self._attempt_files = [path for _, path in written.values()]
        operation = merged.operation({fragment: file for fragment, (file, _) in written.items()})
        return operation, merged.read_version

    def _lay_out(
        self, version: int, transaction: Transaction, operation: Operation, encoded: bytes
    ) -> tuple[bytes, ManifestFile]:
        change, plan = self.change, self.plan
        step = Step(
            version=version,
            restored=None if plan.restored is None else plan.restored.manifest,
            source=None if plan.cloned is None else plan.cloned.manifest,
            read=None if change.base is None else change.base.manifest,
        )
        # Never before the previous version: clocks of different hosts differ.
        earliest_ns = 0 if self.seen is None else self.seen.timestamp_ns + 1
        try:
            manifest = operations.build(
                None if self.seen is None else self.seen.manifest,
                transaction,
                operation,
                step,
                timestamp_ns=max(self.files.environment.now_ns(), earliest_ns),
                writer_version=WRITER,
            )
        except InvalidInputError as error:
            if not self.rebased_over:
                raise
            raise self._outdated(error) from error
        return lay_out(manifest, encoded)

    def _outdated(self, error: InvalidInputError) -> RetryableConflict:
        """The conflict of a change that was valid on its base, but not on the concurrent versions since."""
        return RetryableConflict(
            f"The commits since version {self.base_version} are not compatible with this change: {error.message}",
            table=self.files.root,
            version=None if self.seen is None else self.seen.version,
            base_version=self.base_version,
            hint="Run the work again on the newest version.",
        )

    # ----------------------------------------------------------------------- the facts

    def located(self, version: int) -> ManifestRef:
        """The location of a version of this table under its final name."""
        naming = self.change.new_table_naming if self.seen is None else self.seen.located.naming
        return ManifestRef(version, naming.path(version), naming)

    @property
    def newest_read(self) -> ManifestRef:
        """The newest version that was read, rebased over or not."""
        if self._passed is not None:
            return self._passed[0]
        newest = self._not_rebased_over[-1][0] if self._not_rebased_over else self.seen
        assert newest is not None, "the first version of a table has nothing to catch up with"
        return newest.located

    @property
    def next_version(self) -> int:
        """The version number of the next attempt."""
        if self._detached_version is not None:
            return self._detached_version
        if self.seen is None:
            return 1 if self.plan.cloned is None else self.plan.cloned.version
        return version_after(self.seen.version)

    def landed(self, snapshot: Snapshot, attempts: int) -> CommitResult:
        """The result of a successful commit."""
        if self._made is not None and snapshot.inline_transaction is self._made[2]:
            transaction = self._made[1]
        else:  # an earlier attempt succeeded
            found = load_transaction(self.files.objects, snapshot)
            assert found is not None, "every version of ours has its transaction"
            transaction = found
        self.turns.saw(snapshot.version, transaction, snapshot.timestamp_ns)
        return CommitResult(snapshot, transaction, attempts, tuple(sorted(self.rebased_over)), tuple(self._orphans))
