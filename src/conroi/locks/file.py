"""Commit lock on a local file, for storage without conditional writes and writers on one machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Generator

from conroi.environment import SYSTEM, Environment
from conroi.errors import InvalidInputError, TooMuchContention
from conroi.storage.local_folders import READ_WRITE, LocalFolder, store_error

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02


class FileLock:
    """One holder at a time, over all threads and processes that name the same file.

    The lock ends with the process that holds it, also by `kill -9`, so a crashed writer blocks no other. The file
    stays; its content says who held the lock last. Waiting ends after `timeout_s` seconds with TooMuchContention (None
    waits for ever). A link, a FIFO or a device in place of the file is refused; below `root`, if one is given, so are
    links in place of folders. Use it as a commit lock, for conroi and pylance alike:

    >>> import tempfile
    >>> lock = FileLock(tempfile.mkdtemp() + "/orders.lock", timeout_s=10)
    >>> with lock(7):
    ...     print("only one of us is here")
    only one of us is here
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout_s: float | None = 30.0,
        environment: Environment = SYSTEM,
        root: str | None = None,
    ) -> None:
        self.path: str = os.path.abspath(os.path.expanduser(os.fspath(path)))
        folder, self._name = os.path.split(self.path)
        self._folder = LocalFolder(folder, root)
        self.timeout_s = timeout_s
        self._environment = environment
        self._held = threading.local()

    def __repr__(self) -> str:
        return f"FileLock({self.path!r}, timeout_s={self.timeout_s})"

    def __reduce__(self) -> tuple[type[FileLock], tuple[str], dict[str, float | None]]:
        return FileLock, (self.path,), {"timeout_s": self.timeout_s}

    def __setstate__(self, state: dict[str, float | None]) -> None:
        self.timeout_s = state["timeout_s"]

    @contextlib.contextmanager
    def __call__(self, version: int = 0) -> Generator[None]:
        """Hold the lock while inside; every version of the table shares the one lock."""
        if getattr(self._held, "is_mine", False):
            raise InvalidInputError(
                f"This thread holds the lock {self.path} already", hint="leave it before taking it again"
            )
        file = self._open()
        try:
            self._wait_for(file, version)
            self._held.is_mine = True
            try:
                self._sign(file)
                yield
            finally:
                self._held.is_mine = False
                # Unlocked, not only closed: a forked child may still have the file open.
                fcntl.flock(file, fcntl.LOCK_UN)
        finally:
            os.close(file)

    def holder(self) -> str | None:
        """The last holder ("pid 4711 on host"), which may have released the lock since; None if it was never taken."""
        with contextlib.suppress(OSError):
            file = self._folder.open_file(self._name)
            try:
                return os.pread(file, 200, 0).decode("utf-8", "replace").strip() or None
            finally:
                os.close(file)
        return None

    def _open(self) -> int:
        try:
            return self._folder.open_file(self._name, READ_WRITE)
        except FileNotFoundError:
            raise InvalidInputError(
                f"The folder of the lock {self.path} does not exist", hint="create it first"
            ) from None
        except OSError as error:
            raise store_error(error, "open the lock", self.path, self.path) from error

    def _wait_for(self, file: int, version: int) -> None:
        started, pause = self._environment.monotonic(), _FIRST_PAUSE_S
        while not _try_lock(file):
            waited = self._environment.monotonic() - started
            if self.timeout_s is not None and waited >= self.timeout_s:
                raise self._too_long(waited, version)
            self._environment.sleep(self._environment.uniform(pause / 2, pause))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _too_long(self, waited: float, version: int) -> TooMuchContention:
        return TooMuchContention(
            f"Waited {waited:.1f} s for the commit lock {self.path}, last held by {self.holder() or 'unknown'}",
            version=version or None,
            hint="nothing was committed; try again, or raise timeout_s",
        )

    def _sign(self, file: int) -> None:
        # The signature only informs waiting processes; a failure to write it must not fail the commit.
        # A file that has another name, too, is not ours alone.
        with contextlib.suppress(OSError):
            if os.fstat(file).st_nlink != 1:
                return
            os.truncate(file, 0)
            os.pwrite(file, f"pid {os.getpid()} on {os.uname().nodename}".encode(), 0)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
