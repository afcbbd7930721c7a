"""Temporary folders of one process: removed when it ends, or by the next process if it was killed.

A process holds a file lock in its folder for as long as it lives. The next process that creates such a folder removes
those whose lock is free, and never one whose lock is held.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile

from conroi.errors import CorruptionError
from conroi.stores.local_folders import LocalFolder

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
