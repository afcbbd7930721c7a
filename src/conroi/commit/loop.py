"""Optimistic concurrency control: the commit loop of one table in a folder.

heads   read the versions that were committed since our base
rebase  our operation over each of them, oldest first; raise a conflict where that is impossible
build   the next manifest, and write the transaction file
put     the manifest, put-if-absent. Name taken: next attempt. Response lost: read back before sending again
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from conroi.commit.attempt import Pending
from conroi.commit.change import DEFAULT_OPTIONS, Change, CommitOptions, CommitResult
from conroi.commit.conditional_put import Putting
from conroi.commit.fairness import PriorityToken, Turns, pause_s
from conroi.errors import AlreadyExistsError, CommitStateUnknown, ConroiError, TooMuchContention
from conroi.snapshots.snapshot import Snapshot
from conroi.snapshots.table_storage import TableStorage
from conroi.storage.parallel import together

_log = logging.getLogger(__name__)

NEEDED_ROUNDS = 2
"""A starving writer asks the others to yield for this multiple of its last attempt's duration."""


def commit(files: TableStorage, change: Change, options: CommitOptions = DEFAULT_OPTIONS) -> CommitResult:
    """Commit the change as the table's next version, rebased over concurrent commits, or raise the conflict."""
    files.refuse_past()
    if files.publisher is not None and not change.is_detached:
        return files.publisher.publish(files, change, options)
    return _Commit(files, change, options).run()


class _Commit:
    """One run of the loop."""

    def __init__(self, files: TableStorage, change: Change, options: CommitOptions) -> None:
        self.files = files
        self.change = change
        self.options = options
        self.pending = Pending(files, change)
        self.baton = change.baton or PriorityToken(files.objects, files.environment, files.kept(Turns).me)
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
        self.pending.write_first_transaction()
        attempt = 0
        for attempt in range(1, self.options.retries + 2):
            round_started = environment.monotonic()
            mine = self._take_turn(is_first=attempt == 1)
            if mine is not None:
                return self._landed(mine, attempt)
            attempt_started = environment.monotonic()
            landed = self._attempt()
            now = environment.monotonic()
            self.files.kept(Turns).took(now - attempt_started)
            if landed is not None:
                return self._landed(landed, attempt)
            if self.options.timeout_s is not None and now - started > self.options.timeout_s:
                break
            if attempt <= self.options.retries:
                self._lose(attempt, now - attempt_started, now - round_started)
        mine = self._catch_up()  # a conflict with the last concurrent commit is the better error
        if mine is not None:
            return self._landed(mine, attempt)
        raise self._contention(attempt)

    def _lose(self, attempt: int, attempt_s: float, round_s: float) -> None:
        turns = self.files.kept(Turns)
        self.baton.ask(turns.losses(attempt), NEEDED_ROUNDS * round_s, turns.place_s())
        if not self.baton.is_mine:
            self.files.environment.sleep(pause_s(self.files.environment, attempt, attempt_s))

    # ------------------------------------------------------------------ what others did

    def _take_turn(self, *, is_first: bool) -> Snapshot | None:
        """Catch up with concurrent commits; under contention, until it is our turn."""
        turns = self.files.kept(Turns)
        if is_first and self.change.base_is_fresh and not self._is_local and not turns.is_contended():
            return None  # skip the request: the put detects a newer version
        mine = self._catch_up()
        if mine is not None or self.pending.seen is None or self.change.is_detached or self.baton.is_mine:
            return mine
        if not turns.is_contended():
            return None
        places = self._places_to_wait(is_first=is_first)
        if places:
            turns.wait(places, self._has_moved if self._is_local else None)
        self.baton.give_way(turns.place_s())
        turns.is_awaited = False
        return self._catch_up()

    def _places_to_wait(self, *, is_first: bool) -> int:
        """How many other writers to let commit first; 0 if that wait was done before the work.

        With more writers than processors most of them are not running, and the next in turn may be one of those. Then
        an occasional lost race costs less than waiting. Only a writer that had its turn just now lets another one
        through.
        """
        turns = self.files.kept(Turns)
        if turns.works_in_vain():
            return 0
        if is_first and self._is_local and turns.are_many():
            return int(turns.is_ahead())
        return turns.places_to_wait()

    @property
    def _is_local(self) -> bool:
        return self.files.objects.is_local

    def _has_moved(self, versions: int) -> bool:
        """Whether this many versions were committed since we last caught up."""
        assert self.pending.seen is not None
        located = self.pending.located(self.pending.seen.version + versions)
        return self.files.objects.head(located.path) is not None

    def _catch_up(self) -> Snapshot | None:
        """Rebase over every new version; returns our own, if an earlier put of ours succeeded."""
        if self.pending.seen is None or self.change.is_detached:
            return None
        latest = self.files.versions.latest()
        return None if latest is None else self.pending.catch_up(latest, self.putting.taken)

    # ------------------------------------------------------------------------ our turn

    def _attempt(self) -> Snapshot | None:
        """Build on the newest seen version and put; None if a concurrent writer was faster."""
        is_new = self.pending.seen is None
        built = self.pending.build()
        tasks: list[Callable[[], None]] = [
            partial(self.pending.write_transaction, built.transaction, built.encoded_transaction)
        ]
        if self.files.kept(Turns).is_look_due():
            tasks.append(self._look_for_waiting)
        together(tasks, is_local=self._is_local)
        self.pending.confirm(built)
        snapshot = self.putting.put(built.located, built.data, built.file)
        if snapshot is None and is_new and self.putting.taken is not None:
            raise AlreadyExistsError(
                f"There is a table at {self.files.root} already.",
                table=self.files.root,
                hint="Open it with conroi.open_table(uri), or choose another path.",
            )
        return snapshot

    def _look_for_waiting(self) -> None:
        self.files.kept(Turns).is_awaited = self.baton.is_held()

    def _landed(self, snapshot: Snapshot, attempts: int) -> CommitResult:
        _log.debug("committed version %d of %s in %d attempts", snapshot.version, self.files.root, attempts)
        try:
            return self.pending.landed(snapshot, attempts)
        except ConroiError as error:  # the commit has succeeded: a failure from here on must not raise
            raise CommitStateUnknown(
                f"Version {snapshot.version} is committed, but could not be read back: {error.message}",
                table=self.files.root,
                version=snapshot.version,
                transaction_uuid=self.change.uuid,
                hint="Look for the transaction id in history() before doing the work again.",
            ) from error

    def _contention(self, attempts: int) -> TooMuchContention:
        seen = self.pending.seen
        return TooMuchContention(
            f"{attempts} attempts to commit lost to other writers; nothing was committed.",
            table=self.files.root,
            version=None if seen is None else seen.version,
            base_version=self.pending.base_version,
            attempts=attempts,
            hint="Allow more retries, write bigger batches, or use an insert lock.",
        )
