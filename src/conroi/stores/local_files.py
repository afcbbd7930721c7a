"""Local file primitives, each with as few system calls as possible."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets

_OURS = secrets.token_hex(8)  # another host may have a process of the same number
_number = itertools.count()


def temporary_name() -> str:
    """A name for a file that no other writer has, and that no reader takes for a manifest."""
    return f".tmp_conroi_{_OURS}_{os.getpid()}_{next(_number)}"


def read(file: int, start: int, length: int) -> bytes:
    """Up to `length` bytes from `start`."""
    data = os.pread(file, length, start)
    while len(data) < length:  # a single read ends at about 2 GiB
        more = os.pread(file, length - len(data), start + len(data))
        if not more:
            break
        data += more
    return data


def write(file: int, data: bytes) -> None:
    """All of the bytes."""
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])


def unlink(name: str, folder: int) -> None:
    """Remove a file that may be gone already; a leftover is no failure."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
