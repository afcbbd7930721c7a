"""Time, sleep, randomness and ids, handed in, so that any race can be replayed from a seed."""

from __future__ import annotations

import random
import time
import uuid
from typing import Protocol


class Environment(Protocol):
    """What the outside world gives: a clock, a pause, chance, and names nobody else has."""

    def now_ns(self) -> int:
        """Wall clock, nanoseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """A clock that never goes back, in seconds."""
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
        """An id that nobody else has."""
        ...


class SystemEnvironment:
    """The real world."""

    def __init__(self) -> None:
        self._chance = random.SystemRandom()

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        return self._chance.uniform(low, high)

    def random_u64(self) -> int:
        return self._chance.getrandbits(64)

    def new_uuid(self) -> uuid.UUID:
        return uuid.uuid4()


SYSTEM: Environment = SystemEnvironment()
