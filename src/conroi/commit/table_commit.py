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

from conroi.commit.attribution import attribute
from conroi.commit.change import DEFAULT_OPTIONS, Change, CommitOptions, CommitResult
from conroi.commit.conditional_put import Putting
from conroi.commit.fairness import PriorityToken, Turns
from conroi.commit.loop import Commit, run
from conroi.commit.pending import Built, Pending
from conroi.errors import (
    AlreadyExistsError,
    CommitStateUnknown,
    ConroiError,
    ExpectedVersionMismatch,
    TooMuchContention,
    VersionExpired,
)
from conroi.retry_policy import Budget
from conroi.snapshots.snapshot import Snapshot
from conroi.snapshots.table_storage import TableStorage

_log = logging.getLogger(__name__)

_AT_ONCE = contextlib.nullcontext()


class FolderCommit:
    """One commit: see conroi.commit.loop."""

    may_skip_turns = True

    def __init__(self, files: TableStorage, change: Change, options: CommitOptions) -> None:
        self.environment = files.environment
        self.turns = files.kept(Turns)
        self.token = change.baton or PriorityToken(files.objects, files.environment, self.turns.me)
        self.options = options
        self.is_local = files.objects.is_local
        self._files = files
        self._change = change
        self._pending = Pending(files, change)
        self._putting = Putting(files, change.uuid)
        self._built: Built | None = None

    def in_turn(self) -> contextlib.nullcontext[None]:
        return _AT_ONCE

    def is_head_known(self) -> bool:
        if self._pending.seen is None or self._change.is_detached:
            return True  # a new table or a detached version has no line of versions to catch up with
        # Without retries a lost race would be an error where a rebase is possible, and on local disk to look is cheap.
        may_lose = self.options.retries > 0 or not self.is_local
        return self._change.base_is_fresh and may_lose and not self.turns.is_contended()

    def heads(self) -> Snapshot | None:
        seen, taken = self._pending.seen, self._putting.taken
        if seen is None or self._change.is_detached:
            return None
        self._pending.write_first_transaction()
        if taken is not None and taken.version > seen.version:  # the winner of our last race, which the put has read
            return self._pending.read(taken.located, taken)
        newest = self._files.versions.latest()
        return None if newest is None else self._pending.read(newest)

    def get_ready(self) -> None:
        self.check()
        self.rebase()

    def has_moved(self, versions: int) -> bool:
        assert self._pending.seen is not None
        located = self._pending.located(self._pending.seen.version + versions)
        return self._files.objects.head(located.path) is not None

    def check(self) -> None:
        self._pending.check()

    def rebase(self) -> None:
        self._pending.rebase()

    def build(self) -> list[Callable[[], object]]:
        self._built = built = self._pending.build()
        tasks: list[Callable[[], object]] = [
            partial(self._pending.write_transaction, built.transaction, built.encoded_transaction)
        ]
        if self._change.once is not None:
            tasks.append(partial(self._change.once.will_try, built.located.version))
        return tasks

    def put(self) -> Snapshot | None:
        built = self._built
        assert built is not None, "build() comes first"
        self._pending.confirm(built)
        snapshot = self._putting.put(built.located, built.data, built.file)
        if snapshot is None and self._pending.seen is None and self._putting.taken is not None:
            raise AlreadyExistsError(
                f"There is a table at {self._files.root} already.",
                table=self._files.root,
                hint="Open it with conroi.open_table(uri), or choose another path.",
            )
        return snapshot

    def refuse_expired(self, error: VersionExpired) -> None:
        raise error

    def conflicts(self) -> int:
        return 1

    def contention(self, budget: Budget) -> TooMuchContention:
        seen = self._pending.seen
        return TooMuchContention(
            f"{budget.attempts} attempts to commit lost to other writers; nothing was committed.",
            table=self._files.root,
            version=None if seen is None else seen.version,
            base_version=self._pending.base_version,
            attempts=budget.attempts,
            hint="Allow more retries, write bigger batches, or use an insert lock.",
        )

    def finalize(self, done: Snapshot, attempts: int) -> CommitResult:
        _log.debug("committed version %d of %s in %d attempts", done.version, self._files.root, attempts)
        self._files.remember(done)
        try:
            return self._pending.landed(done, attempts)
        except ConroiError as error:
            raise CommitStateUnknown(
                f"Version {done.version} is committed, but could not be read back: {error.message}",
                table=self._files.root,
                version=done.version,
                transaction_uuid=self._change.uuid,
                hint="Look for the transaction id in history() before doing the work again.",
            ) from error

    def release(self) -> None:
        if self._change.baton is None:  # a verb that may be executed again keeps it until it ends
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
    def committing(self, change: Change, options: CommitOptions) -> Commit[Any, TableResults]:
        """The commit of one change to this table alone."""


def commit(files: TableStorage, change: Change, options: CommitOptions = DEFAULT_OPTIONS) -> CommitResult:
    """Commit the change as the table's next version, rebased over concurrent commits, or raise the conflict."""
    files.refuse_past()
    try:
        if isinstance(files, ManagedStorage) and not change.is_detached:
            return run(files.committing(change, options)).tables[files.object_id]
        return run(FolderCommit(files, change, options))
    except (ExpectedVersionMismatch, TooMuchContention) as error:
        attribute(files, error, change.staged.operation.name)
        raise
