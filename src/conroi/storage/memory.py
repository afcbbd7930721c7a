"""In-memory tables on the RAM disk, and temporary folders that belong to one process."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Generator

from conroi.errors import CorruptionError, InvalidInputError
from conroi.storage.local_folders import LocalFolder

_RAM_DISK = "/dev/shm"  # noqa: S108  # mkdtemp makes a folder in it that is ours alone
_PREFIX = "conroi-memory-"
_one_at_a_time = threading.Lock()
_home: str | None = None


def memory_folder(name: str) -> str:
    """The folder for `memory://name`; the same name gives the same folder within this process."""
    parts = name.strip("/").split("/")
    if any(part in ("", ".", "..", ALIVE) for part in parts):
        raise InvalidInputError("A memory:// URI needs a name", hint="such as memory://orders")
    return os.path.join(_home_folder(), *parts)


def ram_disk() -> str:
    """A folder on the RAM disk; where there is none, the one for temporary files."""
    return _RAM_DISK if os.access(_RAM_DISK, os.W_OK) else tempfile.gettempdir()


def _home_folder() -> str:
    global _home
    with _one_at_a_time:
        if _home is None:
            _home = process_folder(_PREFIX, ram_disk())
        return _home


@contextlib.contextmanager
def scratch_folder() -> Generator[str]:
    """A folder on the RAM disk for the length of one piece of work."""
    folder = tempfile.mkdtemp(prefix="scratch-", dir=_home_folder())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


ALIVE = ".alive"
"""The file with the lock."""


def process_folder(prefix: str, parent: str | None = None) -> str:
    """A new folder of this process; those that killed processes left under the same prefix are removed."""
    parent = parent or tempfile.gettempdir()
    _remove_left_behind(parent, prefix)
    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    _mark_alive(folder)
    atexit.register(_remove, folder, os.getpid())
    return folder


def _mark_alive(folder: str) -> None:
    """Hold a lock for as long as this process lives; it gets its name when it is held, never before."""
    file = os.open(f"{folder}/{ALIVE}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.rename(f"{folder}/{ALIVE}.new", f"{folder}/{ALIVE}")


def _remove_left_behind(parent: str, prefix: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(prefix):
                _remove_if_dead(os.path.join(parent, name))


def _remove_if_dead(home: str) -> None:
    # Everyone may make a folder of such a name there: what another user made is not looked into.
    with contextlib.suppress(OSError, CorruptionError):
        if os.lstat(home).st_uid != os.getuid():
            return
        folder, name = os.path.split(home)
        file = LocalFolder(f"{folder}/{name}", folder).open_file(ALIVE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(home, ignore_errors=True)
        finally:
            os.close(file)


def _remove(folder: str, owner: int) -> None:
    # A forked child that ends must not take its parent's files with it.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
