"""How young is too young to be collected: what writers and collectors of all machines rely on without asking.

A version or a file that is younger than this is never collected, whatever a collector is told. So a writer that was
quicker than half of it need not look whether somebody collected what it leans on: nobody can have. One that took longer
looks. Durations are compared, never clocks of two machines: a writer measures its own, a collector compares times that
the storage gave to files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ages:
    """The shortest ages, in seconds."""

    version_s: float = 60.0
    """Versions: from when they were followed by another."""
    file_s: float = 3600.0
    """Files that no version refers to: from when they were written."""


_current = Ages()


def ages() -> Ages:
    """The ages that hold in this process."""
    return _current


@contextlib.contextmanager
def other_ages(version_s: float, file_s: float) -> Generator[None]:
    """For tests that cannot wait: every process that writes or collects must be inside of one, with the same ages."""
    global _current
    before, _current = _current, Ages(version_s, file_s)
    try:
        yield
    finally:
        _current = before


_has_settable_times = False


def changed_ns(found: os.stat_result) -> int:
    """When a local file was last changed, by the clock of its file system.

    Not its modification time: `cp -a`, `rsync -a` and archives set that to the age of the original, so a file that
    arrived a moment ago would look old. The change time cannot be set. The later of both, for file systems that keep
    no change time.
    """
    return found.st_mtime_ns if _has_settable_times else max(found.st_ctime_ns, found.st_mtime_ns)


@contextlib.contextmanager
def settable_times() -> Generator[None]:
    """For tests that cannot wait: local files are as old as their modification time says, which can be set."""
    global _has_settable_times
    before, _has_settable_times = _has_settable_times, True
    try:
        yield
    finally:
        _has_settable_times = before
