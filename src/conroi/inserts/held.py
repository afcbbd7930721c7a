"""Held-lock interface: the operations on an acquired insert lock, for every kind of lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class LockInfo:
    """One holder of an insert lock, or one waiter."""

    table: str
    host: str
    pid: int
    since: datetime
    is_waiting: bool = False

    @property
    def holder(self) -> str:
        """Host and process, as text."""
        return f"process {self.pid} on {self.host}"

    def __str__(self) -> str:
        does = "waits for" if self.is_waiting else "holds"
        return f"{self.holder} {does} the insert lock of {self.table!r} since {self.since:%Y-%m-%d %H:%M:%S %Z}"


class Held(Protocol):
    """An acquired lock."""

    def confirm(self) -> None:
        """Raise InsertInterrupted if the lock is known to be lost; sends no request."""
        ...

    def release(self) -> None:
        """Release the lock; idempotent."""
        ...


class Cancellation:
    """Lets one thread cancel another one's wait for a lock."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self.is_cancelled = False

    def when_cancelled(self, stop: Callable[[], None] | None) -> None:
        """Set the function that ends the wait; None when it is over."""
        with self._guard:
            self._stop = stop
            if self.is_cancelled and stop is not None:
                stop()

    def cancel(self) -> None:
        """End the wait."""
        with self._guard:
            self.is_cancelled = True
            if self._stop is not None:
                self._stop()


class Backend(Protocol):
    """A kind of lock."""

    def hold(self, lock: int, table: str, wait_s: float | None, cancellation: Cancellation) -> Held:
        """Acquire the lock of this id; LockTimeout after `wait_s` seconds, None waits forever."""
        ...

    def listing(self, tables: Mapping[int, str]) -> list[LockInfo]:
        """Holders and waiters of the locks of these ids."""
        ...


class NoLock:
    """Null object for lakes without locks."""

    def confirm(self) -> None:
        """There is nothing to lose."""

    def release(self) -> None:
        """There is nothing to let go."""


class NoLocks:
    """Local mode: acquires no lock and opens no connection."""

    def hold(self, lock: int, table: str, wait_s: float | None, cancellation: Cancellation) -> Held:  # noqa: ARG002
        return NoLock()

    def listing(self, tables: Mapping[int, str]) -> list[LockInfo]:  # noqa: ARG002
        return []
