"""Optimistic concurrency control: the one commit loop, of a table in a folder, of a lake and of a SQL store.

heads     read the newest state of the store; under contention, when it is our turn
check     all preconditions, of tables that are written and of tables that were only read
rebase    each table's change over the commits since its base; raise a conflict where that is impossible
build     the next manifest of each table, and write what may exist before the commit is visible, in parallel
put       one compare-and-swap. Lost: next attempt. Response lost: read back before sending again
finalize  each table's manifest under its final name; a table in a folder was put under it
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from conroi.commit.fairness import LONGEST_PAUSE_S, SLACK, PriorityToken, Turns
from conroi.environment import Environment
from conroi.errors import TooMuchContention, VersionExpired
from conroi.retry_policy import Budget, pause_s
from conroi.storage.parallel import together

NEEDED_ROUNDS = 2
"""A starving writer asks the others to yield for this multiple of its last attempt's duration."""

LOSSES_BEFORE_LOOKING = 2
"""Number of lost races after which the newest state is looked up in any case: we may be far behind."""

LOOKS_PER_TURN = 2
"""Polls of a writer whose turn is next, for the expected duration of the turn before it."""

Done = TypeVar("Done")
Result_co = TypeVar("Result_co", covariant=True)


class Commit(Protocol[Done, Result_co]):
    """One commit to one store: its tables, and the newest state of the store that it has seen.

    `Done` is a commit that exists: this one, or an earlier one with the same idempotency key.
    """

    environment: Environment
    turns: Turns
    retries: int
    timeout_s: float | None
    """Time limit in seconds, however many retries are left."""
    is_local: bool
    may_skip_turns: bool
    """Whether a lost attempt costs less than waiting for a writer that is not running just now."""

    @property
    def token(self) -> PriorityToken:
        """Priority token of this commit; asked for only under contention."""
        ...

    def in_turn(self) -> AbstractContextManager[object]:
        """Serialize the attempts of the threads of one client."""
        ...

    def is_head_known(self) -> bool:
        """Whether the first attempt skips the look-up of the newest state: its put detects a newer one."""
        ...

    def heads(self) -> Done | None:
        """Read the newest state; returns this commit, if an earlier put of it succeeded, or one with its key."""
        ...

    def get_ready(self) -> None:
        """Do what can be done before our turn, without a request where that takes time."""
        ...

    def has_moved(self, versions: int) -> bool:
        """Whether this many commits came after the state; asked only where that costs nothing."""
        ...

    def check(self) -> None: ...

    def rebase(self) -> None: ...

    def build(self) -> list[Callable[[], object]]:
        """Build the commit; returns what is to be written before the put, in any order."""
        ...

    def put(self) -> Done | None:
        """Make the commit visible by compare-and-swap; None if a concurrent commit was faster."""
        ...

    def refuse_expired(self, error: VersionExpired) -> None:
        """A version of the state was collected: raise, unless the store has a newer state by now."""
        ...

    def conflicts(self) -> int:
        """Number of retries that the lost attempt counts for: 0 if it lost to a commit to other tables."""
        ...

    def contention(self, budget: Budget) -> TooMuchContention:
        """The error when no retries are left."""
        ...

    def finalize(self, done: Done, attempts: int) -> Result_co:
        """The result of a commit that is visible. A failure from here on must not raise a conflict."""
        ...

    def release(self) -> None:
        """Release the priority token, however the commit ended."""
        ...


def run(commit: Commit[Done, Result_co]) -> Result_co:
    """Commit, or raise the conflict."""
    monotonic = commit.environment.monotonic
    began = monotonic()
    budget: Budget | None = None  # a commit that wins its first race needs none
    done: Done | None = None
    has_paused = False
    try:
        while done is None:
            round_started = monotonic()
            with commit.in_turn():
                is_known = not has_paused and budget is not None and budget.attempts < LOSSES_BEFORE_LOOKING
                done = _heads(commit, is_first=budget is None, is_known=is_known)
                attempt_started = monotonic()
                if done is None:
                    done = _attempt(commit)
                    commit.turns.took(monotonic() - attempt_started)
            if done is None:
                attempt_s = monotonic() - attempt_started
                done = _catch_up(commit)  # a conflict with the concurrent commit is the better error
                budget = budget or Budget(commit.environment, commit.retries, commit.timeout_s, began)
                if done is None and not budget.lose(commit.conflicts()):
                    raise commit.contention(budget)
                if done is None:
                    has_paused = _back_off(commit, budget.attempts, attempt_s, monotonic() - round_started)
        return commit.finalize(done, 1 if budget is None else budget.attempts + 1)
    finally:
        commit.release()


def _heads(commit: Commit[Done, object], *, is_first: bool, is_known: bool) -> Done | None:
    """Read the newest state; under contention, when it is our turn. Advisory only: the put decides who wins.

    `is_known`: the commit that won the last race was read just now. Where a look takes a request, and there is only one
    other writer, that will do.
    """
    turns = commit.turns
    if is_first and commit.is_head_known():
        return None
    if is_known and not commit.is_local and not turns.is_crowded():
        return None
    done = commit.heads()
    if done is not None or not turns.is_contended() or commit.token.is_mine:
        return done
    commit.get_ready()
    places = turns.places_before(may_skip=commit.may_skip_turns and is_first and commit.is_local)
    done = _wait_for_turn(commit, places)
    has_waited = commit.token.give_way(turns.place_s()) or places > 0
    turns.is_awaited = False
    return commit.heads() if done is None and has_waited else done


def _wait_for_turn(commit: Commit[Done, object], places: int) -> Done | None:
    """Wait until the writers before us have committed, or for as long as that should take.

    On local disk, where looking costs nothing, each of their commits is read while the next one is awaited.
    """
    turns, environment = commit.turns, commit.environment
    turn_s = turns.place_s()
    until = environment.monotonic() + SLACK * places * turn_s
    while places and environment.monotonic() < until:
        if not commit.is_local:
            environment.sleep(places * turn_s)
            break
        if not commit.has_moved(1):
            next_in_turn_s = min(turn_s / LOOKS_PER_TURN, LONGEST_PAUSE_S)
            environment.sleep((places - 1) * turn_s if places > 1 else next_in_turn_s)
            continue
        if places == 1:
            break
        done = commit.heads()
        if done is not None:
            return done
        places = turns.places_to_wait()
    return None


def _attempt(commit: Commit[Done, object]) -> Done | None:
    """Check, rebase, build and put on the newest state seen; None if a concurrent commit was faster."""
    try:
        commit.check()
        commit.rebase()
        tasks = commit.build()
        if commit.turns.is_look_due():
            tasks.append(lambda: commit.turns.look(commit.token))
        together(tasks, is_local=commit.is_local)
        return commit.put()
    except VersionExpired as error:
        commit.refuse_expired(error)
        return None


def _catch_up(commit: Commit[Done, object]) -> Done | None:
    """After a lost race: check and rebase over the concurrent commit."""
    done = commit.heads()
    if done is not None:
        return done
    try:
        commit.check()
        commit.rebase()
    except VersionExpired as error:
        commit.refuse_expired(error)
    return None


def _back_off(commit: Commit[Any, object], lost: int, attempt_s: float, round_s: float) -> bool:
    """After several lost races ask for the priority token; without it, pause for a random time. Whether it paused."""
    turns, environment = commit.turns, commit.environment
    commit.token.ask(turns.losses(lost), NEEDED_ROUNDS * round_s, turns.place_s())
    pause = 0.0 if commit.token.is_mine else pause_s(environment, lost, attempt_s)
    if pause:
        environment.sleep(pause)
    return pause > 0.0
