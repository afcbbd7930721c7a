"""In-memory tables (`memory://`): folders on the RAM disk that end with the process, since pylance must open them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Generator

from conroi.errors import InvalidInputError
from conroi.stores.process_folders import ALIVE, process_folder

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


def _home_folder() -> str:
    global _home
    with _one_at_a_time:
        if _home is None:
            parent = _RAM_DISK if os.access(_RAM_DISK, os.W_OK) else tempfile.gettempdir()
            _home = process_folder(_PREFIX, parent)
        return _home


@contextlib.contextmanager
def scratch_folder() -> Generator[str]:
    """A folder on the RAM disk for the length of one piece of work."""
    folder = tempfile.mkdtemp(prefix="scratch-", dir=_home_folder())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
