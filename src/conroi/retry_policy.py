"""Retry of a user function after conflicts."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

from conroi.commit.execution import checked_retries
from conroi.commit.fairness import pause_s
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
UNLIMITED = sys.maxsize
"""The number of retries where only a deadline counts."""


def checked_timeout(timeout: float) -> float:
    """A number of seconds, 0 or more."""
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_number or not 0 <= timeout <= threading.TIMEOUT_MAX:
        raise InvalidInputError(f"timeout={timeout!r} is not a number of seconds.", hint="Give 0 or more.")
    return float(timeout)


class Budget:
    """Retry budget: a number of retries, a deadline, or both."""

    def __init__(self, environment: Environment, retries: int | None, timeout: float | None) -> None:
        self._environment = environment
        self._started = environment.monotonic()
        self._timeout_s = None if timeout is None else checked_timeout(timeout)
        self.left = (DEFAULT_RETRIES if timeout is None else UNLIMITED) if retries is None else checked_retries(retries)
        """Remaining retries."""
        self.attempts = 0

    @property
    def timeout_s(self) -> float | None:
        """The remaining time, in seconds; None without a deadline."""
        waited = self._environment.monotonic() - self._started
        return None if self._timeout_s is None else max(0.0, self._timeout_s - waited)

    def spend(self, conflict: ConroiError) -> bool:
        """Count a failed attempt; whether another one is allowed."""
        self.attempts += 1
        self.left -= 1 + (conflict.conflicts if isinstance(conflict, TooMuchContention) else 0)
        return may_run_again(conflict) and self.left >= 0 and self.timeout_s != 0.0


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
