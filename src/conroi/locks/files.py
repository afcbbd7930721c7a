"""Insert locks as file locks in the lake's folder, for the processes of one machine."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from conroi.environment import Environment
from conroi.errors import LockTimeout, TooMuchContention
from conroi.locks.held import Cancellation, LockInfo
from conroi.stores.file_lock import FileLock
from conroi.stores.local_folders import LocalFolder
from conroi.stores.local_names import store_error

_SIGNED = re.compile(r"pid (\d+) on (.*)")


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
        signed = _SIGNED.fullmatch(self._file(lock, 0).holder() or "")
        if signed is None:
            return None
        since = datetime.fromtimestamp(os.lstat(path).st_mtime, UTC)
        return LockInfo(table, signed[2], int(signed[1]), since)

    def _file(self, lock: int, wait_s: float | None) -> FileLock:
        return FileLock(self._path(lock), timeout_s=wait_s, environment=self._environment, root=self._root)

    def _path(self, lock: int) -> str:
        return os.path.join(self._folder, f"{lock}.lock")
