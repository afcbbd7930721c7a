"""Grace period of garbage collection: the minimum age of a version or file before it may be collected.

The period is a constant that writers and collectors on all machines share, so it needs no coordination. No option makes
a collector delete anything younger. So a commit that took less than half of the period needs no check that its files
and versions still exist; a slower one checks. Durations are compared, never the clocks of two machines: a writer
measures its own duration, a collector compares the timestamps that the storage gave to files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ages:
    """The grace periods, in seconds."""

    version_s: float = 60.0
    """Versions: seconds since they were superseded by another."""
    file_s: float = 3600.0
    """Unreferenced files: seconds since they were written."""


_current = Ages()


def ages() -> Ages:
    """The grace periods of this process."""
    return _current


@contextlib.contextmanager
def other_ages(version_s: float, file_s: float) -> Generator[None]:
    """For tests: other grace periods. Every process that writes or collects must use the same."""
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
    """For tests: local files are as old as their modification time, which can be set."""
    global _has_settable_times
    before, _has_settable_times = _has_settable_times, True
    try:
        yield
    finally:
        _has_settable_times = before
