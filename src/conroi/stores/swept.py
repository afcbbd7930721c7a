"""Sweep watermark of garbage collection: unreferenced files older than this time may have been deleted.

Before it reads which files pending commits need, a collector writes a record to `_conroi/swept/`: files written before
this time, in the storage's own clock, may be gone. A long-running writer first writes its transaction and then reads
the watermark. So either the collector sees which files the writer needs, or the writer sees that they may be gone.
"""

from __future__ import annotations

from conroi.stores.objects import Objects

SWEPT_DIR = "_conroi/swept"
_DIGITS = 20


def swept_until_ns(objects: Objects) -> int:
    """Files that are older than this may be gone; 0 if there was no sweep. One request."""
    return max(_moments(objects), default=0)


def note_sweep(objects: Objects, until_ns: int) -> None:
    """Record that older unreferenced files are about to be deleted."""
    objects.put(_path(until_ns), b"{}")
    objects.delete([_path(moment) for moment in _moments(objects) if moment < until_ns])


def _path(until_ns: int) -> str:
    return f"{SWEPT_DIR}/{until_ns:0{_DIGITS}d}"


def _moments(objects: Objects) -> list[int]:
    names = [path.rpartition("/")[2] for path in objects.list_names(SWEPT_DIR)]
    return [int(name) for name in names if len(name) == _DIGITS and name.isascii() and name.isdecimal()]
