"""Commit of one table: in its own folder, or through the catalog that manages it.

A table in a folder is a catalog of one. Its state is its newest version, and the put creates the next manifest under
its final name: nothing is staged, nothing is finalized.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from conroi import operations
from conroi.commit.change import Change, CommitResult
from conroi.commit.conditional_put import Putting
from conroi.commit.fairness import PriorityToken
from conroi.commit.loop import Commit, run
from conroi.commit.pending import Built, Pending
from conroi.conflicts import ConcurrentCommit, Reason
from conroi.errors import (
    AlreadyExistsError,
    CommitStateUnknown,
    ConflictError,
    ConroiError,
    ExpectedVersionMismatch,
    TooMuchContention,
    VersionExpired,
)
from conroi.retry_policy import COMMIT_RETRIES, Budget
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_snapshot, load_transaction

_log = logging.getLogger(__name__)


class FolderCommit(Pending):
    """One commit: see conroi.commit.loop. The pending change of the table is the whole commit."""

    timeout_s: float | None = None
    may_skip_turns = True
    in_turn = contextlib.nullcontext

    def __init__(self, files: TableStorage, change: Change, retries: int) -> None:
        super().__init__(files, change)
        self.environment = files.environment
        self.token = change.priority_token or PriorityToken(files.objects, files.environment, self.turns.me)
        self.retries = retries
        self.is_local = files.objects.is_local
        self._putting = Putting(files, change.uuid)
        self._built: Built | None = None

    def is_head_known(self) -> bool:
        if self.seen is None or self.change.is_detached:
            return True  # a new table or a detached version has no line of versions to catch up with
        # Without retries a lost race would be an error where a rebase is possible, and on local disk to look is cheap.
        may_lose = self.retries > 0 or not self.is_local
        return self.change.base_is_fresh and may_lose and not self.turns.is_contended()

    def heads(self) -> Snapshot | None:
        seen, taken = self.seen, self._putting.taken
        if seen is None or self.change.is_detached:
            return None
        self.write_first_transaction()
        if taken is not None and taken.version > seen.version:  # the winner of our last race, which the put has read
            return self.read(taken.located, taken)
        newest = self.files.versions.latest()
        return None if newest is None else self.read(newest)

    def get_ready(self) -> None:
        self.check()
        self.rebase()

    def has_moved(self, versions: int) -> bool:
        located = self.located(self.newest_read.version + versions)
        return self.files.objects.head(located.path) is not None

    def build(self) -> list[Callable[[], object]]:
        self._built = built = self.build_next()
        tasks: list[Callable[[], object]] = [
            partial(self.write_transaction, built.transaction, built.encoded_transaction)
        ]
        if self.change.once is not None:
            tasks.append(partial(self.change.once.will_try, built.located.version))
        return tasks

    def put(self) -> Snapshot | None:
        built = self._built
        assert built is not None, "build() comes first"
        self.confirm(built)
        snapshot = self._putting.put(built.located, built.data, built.file)
        if snapshot is None and self.seen is None and self._putting.taken is not None:
            raise AlreadyExistsError(
                f"There is a table at {self.files.root} already.",
                table=self.files.root,
                hint="Open it with conroi.open_table(uri), or choose another path.",
            )
        return snapshot

    def refuse_expired(self, error: VersionExpired) -> None:
        raise error

    def conflicts(self) -> int:
        return 1

    def contention(self, budget: Budget) -> TooMuchContention:
        return TooMuchContention(
            f"{budget.attempts} attempts to commit lost to other writers; nothing was committed.",
            table=self.files.root,
            version=None if self.seen is None else self.newest_read.version,
            base_version=self.base_version,
            attempts=budget.attempts,
            hint="Allow more retries, write bigger batches, or use an insert lock.",
        )

    def finalize(self, done: Snapshot, attempts: int) -> CommitResult:
        _log.debug("committed version %d of %s in %d attempts", done.version, self.files.root, attempts)
        self.files.remember(done)
        try:
            return self.landed(done, attempts)
        except ConroiError as error:
            raise CommitStateUnknown(
                f"Version {done.version} is committed, but could not be read back: {error.message}",
                table=self.files.root,
                version=done.version,
                transaction_uuid=self.change.uuid,
                hint="Look for the transaction id in history() before doing the work again.",
            ) from error

    def release(self) -> None:
        if self.change.priority_token is None:  # a verb that may be executed again keeps it until it ends
            self.token.pass_on()


class TableResults(Protocol):
    """The result of a commit to a catalog."""

    @property
    def tables(self) -> Mapping[str, CommitResult]: ...


class ManagedStorage(TableStorage, ABC):
    """Storage of a table whose versions are committed with the state of a catalog."""

    is_managed = True
    object_id: str

    @abstractmethod
    def committing(self, change: Change, retries: int) -> Commit[Any, TableResults]:
        """The commit of one change to this table alone."""


def commit(files: TableStorage, change: Change, retries: int = COMMIT_RETRIES) -> CommitResult:
    """Commit the change as the table's next version, rebased over concurrent commits, or raise the conflict."""
    files.refuse_past()
    try:
        if isinstance(files, ManagedStorage) and not change.is_detached:
            return run(files.committing(change, retries)).tables[files.object_id]
        return run(FolderCommit(files, change, retries))
    except (ExpectedVersionMismatch, TooMuchContention) as error:
        attribute(files, error, change.plan.staged.operation.name)
        raise


RULES: dict[type[ConflictError], str] = {
    ExpectedVersionMismatch: "table/moved",
    TooMuchContention: "table/contended",
}


def attribute(files: TableStorage, error: ConflictError, mine: str = "") -> None:
    """Conflict attribution: add author and time of the concurrent commit; `mine` is the operation that lost."""
    if error.reason is None and error.version is not None and error.version > (error.base_version or 0):
        with contextlib.suppress(ConroiError):  # the error that is on its way is the one to be told
            error.reason = _reason(files, error, error.version, mine)


def _reason(files: TableStorage, error: ConflictError, version: int, mine: str) -> Reason | None:
    located = files.versions.locate(version)
    if located is None:
        return None
    snapshot = load_snapshot(files.objects, located)
    transaction = load_transaction(files.objects, snapshot)
    if transaction is None:
        return None
    winner = ConcurrentCommit.of(snapshot.manifest, transaction, operations.of(transaction))
    return Reason(rule=RULES[type(error)], mine=mine, theirs=winner.operation.name, winner=winner)
