"""Back ends of insert locks: their interface, lock files on one machine, and no locks at all."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from conroi.environment import Environment
from conroi.errors import LockTimeout, TooMuchContention
from conroi.locks.file import FileLock
from conroi.storage.local_folders import LocalFolder, store_error


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


_FILE_SIGNATURE = re.compile(r"pid (\d+) on (.*)")


class HeldFile:
    """Ours until it is closed, or the process ends."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack

    def confirm(self) -> None:
        """No-op: the system does not revoke a file lock."""

    def release(self) -> None:
        self._stack.close()


class FileLocks:
    """The locks in a folder, a file for each table."""

    def __init__(self, root: str, folder: str, environment: Environment) -> None:
        self._root = root
        self._inside = folder
        self._folder = f"{root}/{folder}"
        self._environment = environment

    def hold(self, lock: int, table: str, wait_s: float | None, cancellation: Cancellation) -> HeldFile:  # noqa: ARG002
        try:
            LocalFolder(self._root).make_folder(self._inside)
        except OSError as error:
            raise store_error(error, "make the folder", self._inside, self._root) from error
        stack = contextlib.ExitStack()
        try:
            stack.enter_context(self._file(lock, wait_s)())
        except TooMuchContention:
            found = self._info(lock, table)
            raise LockTimeout(
                f"Waited {wait_s:g} s for the insert lock of {table!r}; "
                f"{'its holder left just now' if found is None else f'{found.holder} holds it since {found.since}'}.",
                table=table,
                holder=None if found is None else found.holder,
                held_since=None if found is None else found.since,
                hint="Nothing was inserted; try again, or wait longer with wait_s.",
            ) from None
        return HeldFile(stack)

    def listing(self, tables: Mapping[int, str]) -> list[LockInfo]:
        """Holders only: files do not show waiters."""
        infos: list[LockInfo] = []
        for lock, table in tables.items():
            if os.path.lexists(self._path(lock)):
                try:
                    with self._file(lock, 0)():
                        continue
                except TooMuchContention:
                    found = self._info(lock, table)
                infos += [] if found is None else [found]
        return infos

    def _info(self, lock: int, table: str) -> LockInfo | None:
        path = self._path(lock)
        signed = _FILE_SIGNATURE.fullmatch(self._file(lock, 0).holder() or "")
        if signed is None:
            return None
        since = datetime.fromtimestamp(os.lstat(path).st_mtime, UTC)
        return LockInfo(table, signed[2], int(signed[1]), since)

    def _file(self, lock: int, wait_s: float | None) -> FileLock:
        return FileLock(self._path(lock), timeout_s=wait_s, environment=self._environment, root=self._root)

    def _path(self, lock: int) -> str:
        return os.path.join(self._folder, f"{lock}.lock")
