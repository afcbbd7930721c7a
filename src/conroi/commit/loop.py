"""The one commit loop.

heads   what others committed since our base
rebase  our operation over each of theirs, oldest first; or say why not
build   the next manifest, and write the transaction file
put     the manifest, if its name is free; taken? go round again. Answer lost? look before re-sending
"""

from __future__ import annotations

import logging

from conroi import operations
from conroi.commit.backoff import pause_s
from conroi.commit.baton import Baton
from conroi.commit.change import DEFAULT_OPTIONS, Change, CommitOptions, CommitResult
from conroi.commit.deletions import load_deletions, write_deletions
from conroi.commit.detached import detached_version
from conroi.commit.files import TableFiles
from conroi.commit.putting import Putting
from conroi.commit.snapshot import Snapshot, load_only_transaction, load_snapshot, load_transaction
from conroi.commit.turns import WRITER_PROPERTY
from conroi.conflicts import Outcome, Rebase, Verdict, Winner, are_unrelated, vector_key
from conroi.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptionError,
    ExpectedVersionMismatch,
    IncompatibleConflict,
    NotFoundError,
    RetryableConflict,
    TooMuchContention,
)
from conroi.format.flags import require_writable
from conroi.format.manifest_file import ManifestFile, lay_out
from conroi.format.naming import TRANSACTIONS_DIR, ManifestNaming
from conroi.format.transaction import Transaction, encode_transaction
from conroi.operations import Operation, Step
from conroi.stores.versions import Located
from conroi.version import WRITER

_log = logging.getLogger(__name__)


def commit(files: TableFiles, change: Change, options: CommitOptions = DEFAULT_OPTIONS) -> CommitResult:
    """Make the change the table's next version, whatever others committed meanwhile, or raise what forbids it."""
    return _Commit(files, change, options).run()


class _Commit:
    """One run of the loop. `seen` is the newest version that our operation has been rebased over."""

    def __init__(self, files: TableFiles, change: Change, options: CommitOptions) -> None:
        self.files = files
        self.change = change
        self.options = options
        self.seen = change.base
        self.rebase = Rebase(change.staged)
        self.baton = change.baton or Baton(files.objects, files.environment, files.turns.me)
        self.made: tuple[Operation, Transaction, bytes] | None = None
        """The transaction as last written down, with the operation it is of."""
        self.met: list[int] = []
        self.winners: list[Winner] = []
        self.attempt_files: list[str] = []
        self.orphans: list[str] = []
        self.written_transactions: set[str] = set()
        self.detached_version: int | None = None
        self.putting = Putting(files, change.uuid)

    def run(self) -> CommitResult:
        try:
            return self._run()
        finally:
            if self.change.baton is None:
                self.baton.pass_on()

    def _run(self) -> CommitResult:
        environment = self.files.environment
        started = environment.monotonic()
        self._write_first_transaction()
        attempt = 0
        for attempt in range(1, self.options.retries + 2):
            mine = self._take_turn(is_first=attempt == 1)
            if mine is not None:
                return self._landed(mine, attempt)
            attempt_started = environment.monotonic()
            landed = self._attempt()
            now = environment.monotonic()
            self.files.turns.took(now - attempt_started)
            if landed is not None:
                return self._landed(landed, attempt)
            if self.options.timeout_s is not None and now - started > self.options.timeout_s:
                break
            if attempt <= self.options.retries:
                self._lose(attempt, now - attempt_started)
        mine = self._catch_up()  # what beat us last may forbid our change, and that is then the better answer
        if mine is not None:
            return self._landed(mine, attempt)
        raise self._contention(attempt)

    def _lose(self, attempt: int, attempt_s: float) -> None:
        self.baton.ask(attempt)
        if not self.baton.is_mine:
            self.files.environment.sleep(pause_s(self.files.environment, attempt, attempt_s))

    # ------------------------------------------------------------------ what others did

    def _take_turn(self, *, is_first: bool) -> Snapshot | None:
        """Catch up with what others committed; where many write, until it is our turn."""
        turns = self.files.turns
        if is_first and self.change.base_is_fresh and not self._is_local and not turns.is_contended():
            return None  # spare the request: the put will tell
        mine = self._catch_up()
        if mine is not None or self.seen is None or self.change.is_detached or self.baton.is_mine:
            return mine
        if not turns.is_contended():
            return None
        places = turns.places_to_wait()
        if places:
            turns.wait(places, self._has_moved if self._is_local else None)
        self.baton.give_way(turns.turn_s())
        return self._catch_up()

    @property
    def _is_local(self) -> bool:
        return self.files.objects.is_local

    def _has_moved(self, versions: int) -> bool:
        """Whether others have committed so many versions since we last caught up."""
        assert self.seen is not None
        return self.files.objects.head(self._naming.path(self.seen.version + versions)) is not None

    def _catch_up(self) -> Snapshot | None:
        """Rebase over every version after `seen`; our own, if an earlier put of ours did land."""
        if self.seen is None or self.change.is_detached:
            return None
        latest = self.files.versions.latest()
        newest = self.seen.version if latest is None else latest.version
        for version in range(self.seen.version + 1, newest + 1):
            if version < newest and self._passes_over(version):
                continue
            snapshot = self._load(version)
            transaction = load_transaction(self.files.objects, snapshot)
            if transaction is not None and transaction.uuid == self.change.uuid:
                return snapshot
            self._meet(snapshot, transaction)
            self.seen = snapshot
        return None

    def _passes_over(self, version: int) -> bool:
        """Whether this version, which is not the newest, has nothing to do with us; its transaction alone can tell."""
        if self.change.guard is not None or self.change.must_not_move:
            return False
        try:
            transaction = load_only_transaction(self.files.objects, self._located(version))
        except NotFoundError:
            return False
        if transaction is None or transaction.uuid == self.change.uuid:
            return False
        if not are_unrelated(self.change.staged.operation.name, transaction.operation_name):
            return False
        self.met.append(version)
        self.files.turns.saw(version, transaction)
        return True

    def _write_first_transaction(self) -> None:
        """As long as nobody committed since our base: it is then out of the way when it is our turn."""
        if self.change.base is not None:
            self._write_transaction(*self._transaction(self.change.staged.operation, self._base_version))

    def _load(self, version: int) -> Snapshot:
        assert self.seen is not None
        if self.putting.taken is not None and self.putting.taken.version == version:
            return self.putting.taken  # read already, when our put found its name taken
        naming = self.seen.naming
        try:
            return load_snapshot(self.files.objects, Located(version, naming.path(version), naming))
        except NotFoundError:
            raise RetryableConflict(
                f"Version {version} was collected before this commit could be checked against it.",
                table=self.files.root,
                version=version,
                base_version=self._base_version,
                hint="Run the work again on the newest version.",
            ) from None

    def _located(self, version: int) -> Located:
        return Located(version, self._naming.path(version), self._naming)

    def _meet(self, snapshot: Snapshot, transaction: Transaction | None) -> None:
        if transaction is None:
            raise CorruptionError(
                f"Version {snapshot.version} has no transaction, inside or beside it, so nothing can be checked "
                "against it.",
                table=self.files.root,
                version=snapshot.version,
                hint="Start again from the newest version.",
            )
        if self.change.must_not_move:
            raise ExpectedVersionMismatch(
                f"You asked that the table stay at version {self._base_version}, but {snapshot.writer} committed "
                f"{transaction.operation_name} as version {snapshot.version}.",
                table=self.files.root,
                expected=self._base_version,
                actual=snapshot.version,
                hint="Look at what changed and run it again. To go ahead regardless, leave out strict and expect, or "
                'pass if_moved="win" to overwrite() and restore().',
            )
        self.met.append(snapshot.version)
        self.files.turns.saw(snapshot.version, transaction)
        mine = self.change.staged.operation.name
        if self.change.guard is None and are_unrelated(mine, transaction.operation_name):
            return  # the common case, many appends: do not even unpack theirs
        winner = Winner.of(snapshot.manifest, transaction, operations.of(transaction))
        self.winners.append(winner)
        self.rebase = self.rebase.over(winner)
        self._refuse_conflict(self.rebase.verdict, snapshot.version)

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
            base_version=self._base_version,
            hint=None if reason is None else reason.hint,
            reason=reason,
        )

    # ------------------------------------------------------------------------ our turn

    def _attempt(self) -> Snapshot | None:
        """Build on `seen` and put; None if somebody else was there first."""
        seen = self.seen
        if self.change.is_detached:
            self.detached_version = detached_version(seen, self.files)
        if seen is not None:
            require_writable(seen.manifest.head)
            if self.change.guard is not None:
                self.change.guard(seen, self.winners)
        operation, read_version = self._rebased(seen)
        transaction, encoded = self._transaction(operation, read_version)
        data, file = self._build(transaction, operation, encoded)
        self._write_transaction(transaction, encoded)
        snapshot = self.putting.put(self._located(self._next_version), data, file)
        if snapshot is None and seen is None:
            raise AlreadyExistsError(
                f"There is a table at {self.files.root} already.",
                table=self.files.root,
                hint="Open it with conroi.open_table(uri), or choose another path.",
            )
        return snapshot

    def _transaction(self, operation: Operation, read_version: int) -> tuple[Transaction, bytes]:
        if self.made is not None and self.made[0] is operation and self.made[1].read_version == read_version:
            return self.made[1], self.made[2]
        transaction = operations.transaction(
            operation,
            read_version=read_version,
            uuid=self.change.uuid,
            properties={**self.change.properties, WRITER_PROPERTY: self.files.turns.me},
        )
        self.made = operation, transaction, encode_transaction(transaction)
        return self.made[1], self.made[2]

    def _rebased(self, seen: Snapshot | None) -> tuple[Operation, int]:
        """Our operation on top of `seen`, and the version it then counts as made on.

        Deletion vectors that others changed too are merged into new files.
        """
        if seen is None:
            return self.change.staged.operation, 0
        needed = self.rebase.needs(seen.manifest)
        vectors = {vector_key(f): load_deletions(self.files.objects, seen.manifest, f) for f in needed}
        merged = self.rebase.merge(seen.manifest, vectors)
        self._refuse_conflict(merged.verdict, seen.version)
        self.orphans.extend(self.attempt_files)
        written = write_deletions(self.files, merged.vectors_to_write, seen.version, as_bitmap=True)
        self.attempt_files = [path for _, path in written.values()]
        operation = merged.operation({fragment: file for fragment, (file, _) in written.items()})
        return operation, merged.read_version

    def _build(self, transaction: Transaction, operation: Operation, encoded: bytes) -> tuple[bytes, ManifestFile]:
        change = self.change
        step = Step(
            version=self._next_version,
            restored=None if change.restored is None else change.restored.manifest,
            source=None if change.cloned is None else change.cloned.manifest,
            read=None if change.base is None else change.base.manifest,
        )
        manifest = operations.build(
            None if self.seen is None else self.seen.manifest,
            transaction,
            operation,
            step,
            timestamp_ns=self._timestamp_ns(),
            writer_version=WRITER,
        )
        return lay_out(manifest, encoded)

    def _timestamp_ns(self) -> int:
        """Now, but never before the version it follows: clocks of different hosts differ."""
        now = self.files.environment.now_ns()
        return now if self.seen is None else max(now, self.seen.timestamp_ns + 1)

    def _write_transaction(self, transaction: Transaction, encoded: bytes) -> None:
        if transaction.file_name not in self.written_transactions:
            self.files.objects.put(f"{TRANSACTIONS_DIR}/{transaction.file_name}", encoded)
            self.written_transactions.add(transaction.file_name)

    # ----------------------------------------------------------------------- the facts

    @property
    def _base_version(self) -> int:
        return 0 if self.change.base is None else self.change.base.version

    @property
    def _next_version(self) -> int:
        if self.detached_version is not None:
            return self.detached_version
        if self.seen is None:
            return 1 if self.change.cloned is None else self.change.cloned.version
        return self.seen.version + 1

    @property
    def _naming(self) -> ManifestNaming:
        return self.change.new_table_naming if self.seen is None else self.seen.naming

    def _landed(self, snapshot: Snapshot, attempts: int) -> CommitResult:
        self.files.versions.saw(snapshot.located)
        if self.made is not None and snapshot.inline_transaction is self.made[2]:
            transaction = self.made[1]
        else:  # it was an earlier attempt that landed
            found = load_transaction(self.files.objects, snapshot)
            assert found is not None, "every version of ours has its transaction"
            transaction = found
        self.files.turns.saw(snapshot.version, transaction)
        _log.debug("committed version %d of %s in %d attempts", snapshot.version, self.files.root, attempts)
        return CommitResult(snapshot, transaction, attempts, tuple(self.met), tuple(self.orphans))

    def _contention(self, attempts: int) -> TooMuchContention:
        return TooMuchContention(
            f"{attempts} attempts to commit lost to other writers; nothing was committed.",
            table=self.files.root,
            version=None if self.seen is None else self.seen.version,
            base_version=self._base_version,
            attempts=attempts,
            hint="Allow more retries, write bigger batches, or use an insert lock.",
        )
