"""Injected dependencies: clock, sleep, randomness and ids, so that any race can be replayed from a seed."""

from __future__ import annotations

import random
import sys
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol


class Environment(Protocol):
    """Clock, sleep, randomness and unique ids."""

    def now_ns(self) -> int:
        """Wall clock, nanoseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Monotonic clock, in seconds. It should include the time in which the machine is suspended."""
        ...

    def sleep(self, seconds: float) -> None:
        """Pause this thread."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A random number between the two."""
        ...

    def random_u64(self) -> int:
        """Sixty-four random bits."""
        ...

    def new_uuid(self) -> uuid.UUID:
        """A unique id."""
        ...


class SystemEnvironment:
    """The real clock, sleep and randomness."""

    def __init__(self) -> None:
        self._chance = random.SystemRandom()

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds on a steady clock that counts the time of suspend, where there is one.

        `time.monotonic()` stops with the machine. Linux has CLOCK_BOOTTIME; on macOS CLOCK_MONOTONIC counts suspend.
        """
        return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        return self._chance.uniform(low, high)

    def random_u64(self) -> int:
        return self._chance.getrandbits(64)

    def new_uuid(self) -> uuid.UUID:
        return uuid.uuid4()


_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC if sys.platform == "darwin" else None)

SYSTEM: Environment = SystemEnvironment()


class Moment(NamedTuple):
    """A point in time by both clocks, from which `seconds_since` measures."""

    steady_s: float
    wall_ns: int


def earliest(moments: Sequence[Moment | None]) -> Moment | None:
    """The earliest of these, by both clocks; None if one is not known."""
    known = [each for each in moments if each is not None]
    if len(known) < len(moments):
        return None
    return Moment(min(each.steady_s for each in known), min(each.wall_ns for each in known))


LONG_AGO = Moment(float("-inf"), 0)
"""Before everything."""


def utc_time(ns: int) -> datetime:
    """Nanoseconds since 1970 as a time; what is beyond all calendars is the last moment, or the first."""
    try:
        return datetime.fromtimestamp(ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC) if ns > 0 else datetime.min.replace(tzinfo=UTC)


def moment(environment: Environment) -> Moment:
    """Now, by both clocks."""
    return Moment(environment.monotonic(), environment.now_ns())


def seconds_since(environment: Environment, then: Moment) -> float:
    """An upper bound of the time since `then`: the larger of what the two clocks say.

    For every decision of the kind "so little time has passed that this cannot have been collected". A monotonic clock
    may have stopped while the machine was suspended, and a wall clock may have been set back; each then understates the
    time, and the other one does not. A wall clock that was set forward overstates it, which costs a request.
    """
    return max(environment.monotonic() - then.steady_s, (environment.now_ns() - then.wall_ns) / 1e9)
