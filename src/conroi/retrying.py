"""Running your own function again when others commit first."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

from conroi.commit.backoff import pause_s
from conroi.environment import SYSTEM, Environment
from conroi.errors import InvalidInputError, RetryableConflict

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_RETRIES = 10


@overload
def retry(function: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def retry(
    *, retries: int = DEFAULT_RETRIES, environment: Environment = SYSTEM
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def retry(
    function: Callable[P, T] | None = None, /, *, retries: int = DEFAULT_RETRIES, environment: Environment = SYSTEM
) -> Callable[P, T] | Callable[[Callable[P, T]], Callable[P, T]]:
    """Call a function again after a RetryableConflict, and after nothing else.

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
