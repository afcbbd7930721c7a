"""Retry policy: how often and how long a commit, a verb or a user function is tried again, and the random back-off."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

from conroi.environment import SYSTEM, Environment
from conroi.errors import (
    ConroiError,
    ExpectedVersionMismatch,
    InvalidInputError,
    LockTimeout,
    RetryableConflict,
    TooMuchContention,
)

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_RETRIES = 10
"""Default number of retries of a user function, of lake.run() and of the work of a verb."""
COMMIT_RETRIES = 20
"""Default number of retries of a table's commit after a lost race."""
PUBLICATION_RETRIES = 5
"""Default number of retries of a lake's commit after a concurrent commit to the same table."""
PUBLICATION_TIMEOUT_S = 30.0
"""Default time limit of a lake's retries, in seconds; begin(timeout=…) overrides it."""
UNLIMITED = sys.maxsize
"""The number of retries where only a deadline counts."""
FREE_RETRIES = 2
"""Number of retries without a pause: most races are lost to one other writer that has already finished."""
MOST_DOUBLINGS = 5
LONGEST_S = 2.0
"""Upper bound of a pause, in seconds. Only desynchronizes racing writers: a slow attempt does not justify a longer
pause.
"""


def pause_s(environment: Environment, lost_attempts: int, attempt_s: float) -> float:
    """The pause before the next attempt, in seconds: random, with exponential back-off."""
    if lost_attempts <= FREE_RETRIES:
        return 0.0
    doublings = min(lost_attempts - FREE_RETRIES, MOST_DOUBLINGS)
    return environment.uniform(0.0, min(attempt_s * (1 << doublings), LONGEST_S))


def checked_retries(retries: int) -> int:
    """Validate a number of retries."""
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(
            f"retries={retries!r} is not a number of retries.",
            hint="Give 0 to fail at once, or how often to try again.",
        )
    return retries


def checked_timeout(timeout: float) -> float:
    """A number of seconds, 0 or more."""
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_number or not 0 <= timeout <= threading.TIMEOUT_MAX:
        raise InvalidInputError(f"timeout={timeout!r} is not a number of seconds.", hint="Give 0 or more.")
    return float(timeout)


class Budget:
    """Retry budget: a number of retries, a deadline, or both; `began` is a time of the monotonic clock."""

    def __init__(
        self, environment: Environment, retries: int | None, timeout: float | None, began: float | None = None
    ) -> None:
        self._environment = environment
        self._started = environment.monotonic() if began is None else began
        self._timeout_s = None if timeout is None else checked_timeout(timeout)
        self.left = (DEFAULT_RETRIES if timeout is None else UNLIMITED) if retries is None else checked_retries(retries)
        """Remaining retries."""
        self.attempts = 0
        self.conflicts = 0

    @property
    def waited_s(self) -> float:
        return self._environment.monotonic() - self._started

    @property
    def timeout_s(self) -> float | None:
        """The remaining time, in seconds; None without a deadline."""
        return None if self._timeout_s is None else max(0.0, self._timeout_s - self.waited_s)

    def lose(self, conflicts: int) -> bool:
        """Count a lost attempt that had this many conflicts; whether another one is allowed."""
        self.attempts += 1
        self.conflicts += conflicts
        self.left -= conflicts
        return self.left >= 0 and self.timeout_s != 0.0

    def spend(self, conflict: ConroiError) -> bool:
        """Count a failed attempt; whether another one is allowed."""
        more = conflict.conflicts if isinstance(conflict, TooMuchContention) else 0
        return self.lose(1 + more) and may_run_again(conflict)


def may_run_again(conflict: ConroiError) -> bool:
    """Whether the error is only a lost race, so that a new transaction may succeed."""
    if isinstance(conflict, ExpectedVersionMismatch):
        return conflict.is_retryable
    if isinstance(conflict, TooMuchContention):
        return not isinstance(conflict, LockTimeout)
    return isinstance(conflict, RetryableConflict)


@overload
def retry(function: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def retry(
    *, retries: int = DEFAULT_RETRIES, environment: Environment = SYSTEM
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def retry(
    function: Callable[P, T] | None = None, /, *, retries: int = DEFAULT_RETRIES, environment: Environment = SYSTEM
) -> Callable[P, T] | Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: call a function again after a RetryableConflict, and after no other error.

    The function should open its tables inside, so that each call sees the newest version.

    >>> import conroi
    >>> made = conroi.create_table("memory://retry-example", [{"id": 1, "n": 1}])
    >>> @conroi.retry
    ... def double() -> conroi.Table:
    ...     table = conroi.open_table("memory://retry-example")
    ...     highest = max(table.to_arrow()["n"].to_pylist())
    ...     return table.update({"n": str(2 * highest)}, where="id = 1", retries=0)
    >>> double().to_arrow()["n"].to_pylist()
    [2]
    """
    if function is not None:
        return _retried(function, DEFAULT_RETRIES, environment)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"retries={retries!r} is not a number of retries.", hint="Give 0 or more.")
    return lambda wrapped: _retried(wrapped, retries, environment)


def _retried(function: Callable[P, T], retries: int, environment: Environment) -> Callable[P, T]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for attempt in range(1, retries + 1):
            started = environment.monotonic()
            try:
                return function(*args, **kwargs)
            except RetryableConflict as conflict:
                _log.info("%s: attempt %d, trying again (%s)", function.__qualname__, attempt, conflict.message)
                environment.sleep(pause_s(environment, attempt, environment.monotonic() - started))
        return function(*args, **kwargs)

    return call
