"""Retention metadata: the expiry watermark, expired versions, versions being collected, and grace periods."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterable, Sequence, Set
from dataclasses import dataclass
from enum import Enum

from conroi.environment import Environment, Moment, seconds_since
from conroi.errors import CorruptionError, NotFoundError
from conroi.format.json import decode_document, encode_document
from conroi.format.on_disk import COLLECTED_DIR, EXPIRED_DIR, RESTORING_DIR
from conroi.storage.objects import Objects

_DIGITS = 20

Ranges = list[tuple[int, int]]


class Fate(Enum):
    """Retention status of a version."""

    STAYS = "stays"
    """Retained."""
    GOING = "going"
    """A collector has announced its deletion."""
    GONE = "gone"
    """A collector has deleted it."""


class VersionCollected(Exception):
    """Internal: a version was created under a name that had been used and collected. It is a result, not a failure."""

    def __init__(self, path: str, *, is_certain: bool) -> None:
        super().__init__(f"{path} was collected before")
        self.path = path
        self.is_certain = is_certain
        """False: this process was paused so long that its own version may have been collected since."""


def watermark(objects: Objects) -> int:
    """The newest version that was, or is just being, collected; 0 if none ever was. One request; none on local disk
    where nothing was ever collected."""
    return max(_notes(objects), default=(0, ""))[0]


def fate(objects: Objects, version: int) -> Fate:
    """Retention status of a version: one request if it is above the watermark, else one more for each record."""
    found = Fate.STAYS
    try:
        for newest, path in _notes(objects):
            if version <= newest and _has(_read(objects, path), version):
                if not is_running(path):
                    return Fate.GONE
                found = Fate.GOING
    except NotFoundError:  # a record was replaced by another one since it was listed: look again
        return fate(objects, version)
    return found


def collected_at_ns(objects: Objects, version: int) -> int | None:
    """When the version was collected at the latest, by the storage's clock; None if no record says so."""
    found: list[int] = []
    for newest, path in _notes(objects):
        if version <= newest and _has(_read_if_there(objects, path), version):
            info = objects.head(path)
            found += [] if info is None else [info.modified_ns]
    return min(found, default=None)


class Forgetting:
    """A collector's record of the versions that it is about to delete."""

    def __init__(self, objects: Objects, versions: Sequence[int], uuid: str) -> None:
        self._objects = objects
        self._newest = max(versions)
        self._versions = ranges_of(versions)
        self._path = f"{EXPIRED_DIR}/{self._newest:0{_DIGITS}d}-{uuid}"
        _write(objects, self._path, self._versions)

    def only(self, versions: Sequence[int]) -> None:
        """Reduce the announced versions."""
        self._versions = ranges_of(versions)
        _write(self._objects, self._path, self._versions)

    def done(self) -> None:
        """Deletion is complete: from now on one record covers these and all earlier ones."""
        _end(self._objects, self._path, self._versions)


def end_of_dead_collector(objects: Objects, path: str, there: Set[int]) -> None:
    """Remove the record of a crashed collector; the watermark stays.

    Versions that it announced and did not delete are still `there`, and stay until another collector deletes them.
    """
    meant = _read_if_there(objects, path)
    _end(objects, path, _without(meant, there))


def _without(runs: Ranges, there: Set[int]) -> Ranges:
    """The ranges without these versions; a range may be arbitrarily long."""
    left: Ranges = []
    for low, high in runs:
        for version in sorted(each for each in there if low <= each <= high):
            if version > low:
                left.append((low, version - 1))
            low = version + 1
        if low <= high:
            left.append((low, high))
    return left


def being_restored(objects: Objects) -> set[int]:
    """The versions that are being restored, or were restored recently."""
    names = [path.rpartition("/")[2].partition("-")[0] for path in objects.list_names(RESTORING_DIR)]
    return {int(name) for name in names if len(name) <= _DIGITS and name.isascii() and name.isdecimal()}


def ranges_of(versions: Iterable[int]) -> Ranges:
    """The same as ranges, ascending.

    >>> ranges_of([3, 1, 2, 7])
    [(1, 3), (7, 7)]
    """
    runs: Ranges = []
    for version in sorted(set(versions)):
        if runs and version == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], version
        else:
            runs.append((version, version))
    return runs


def is_running(path: str) -> bool:
    """Whether it is the record of a collector that is running, or crashed; not the temporary file of one."""
    folder, _, name = path.rpartition("/")
    return folder == EXPIRED_DIR and _is_number(name[:_DIGITS]) and name[_DIGITS : _DIGITS + 1] == "-"


def _end(objects: Objects, running: str, versions: Ranges) -> None:
    """Write one record for everything that is collected; the records that it replaces are deleted only afterwards."""
    folder, _, name = running.rpartition("/")
    newest = int(name[:_DIGITS])
    done = [path for version, path in _notes(objects) if version <= newest and not is_running(path)]
    known = [run for path in done for run in _read_if_there(objects, path)]
    _write(objects, f"{folder}/{name[:_DIGITS]}.{name[_DIGITS + 1 :]}", _merged([*known, *versions]))
    objects.delete([running, *done])


def _read_if_there(objects: Objects, path: str) -> Ranges:
    try:
        return _read(objects, path)
    except NotFoundError:  # another collector has ended, and knows what it said
        return []


def _merged(runs: Ranges) -> Ranges:
    merged: Ranges = []
    for low, high in sorted(runs):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged


def _notes(objects: Objects) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    if objects.is_local and not os.path.isdir(objects.pylance_uri(EXPIRED_DIR)):
        return found  # nothing was ever collected
    for path in objects.list_names(EXPIRED_DIR):
        digits = path.rpartition("/")[2][:_DIGITS]
        if _is_number(digits):
            found.append((int(digits), path))
    return found


def _is_number(digits: str) -> bool:
    return len(digits) == _DIGITS and digits.isascii() and digits.isdecimal()


def _has(runs: Ranges, version: int) -> bool:
    return any(low <= version <= high for low, high in runs)


def _write(objects: Objects, path: str, versions: Ranges) -> None:
    objects.put(path, encode_document({"versions": [list(run) for run in versions]}))


def _read(objects: Objects, path: str) -> Ranges:
    try:
        return decode_document(objects.get(path), path).ranges("versions")
    except CorruptionError as error:
        raise CorruptionError(
            f"{path} does not say which versions were collected.",
            table=objects.root,
            hint='Write {"versions": [[1, 7]]} into it, with the first and the last version that are gone.',
        ) from error


def swept_until_ns(objects: Objects) -> int:
    """Files that are older than this may be gone; 0 if there was no sweep. One request."""
    return max(_moments(objects), default=0)


def note_sweep(objects: Objects, until_ns: int) -> None:
    """Record that older unreferenced files are about to be deleted."""
    objects.put(_path(until_ns), b"{}")
    objects.delete([_path(moment) for moment in _moments(objects) if moment < until_ns])


def _path(until_ns: int) -> str:
    return f"{COLLECTED_DIR}/{until_ns:0{_DIGITS}d}"


def _moments(objects: Objects) -> list[int]:
    names = [path.rpartition("/")[2] for path in objects.list_names(COLLECTED_DIR)]
    return [int(name) for name in names if len(name) == _DIGITS and name.isascii() and name.isdecimal()]


@dataclass(frozen=True, slots=True)
class GracePeriods:
    """The grace periods, in seconds."""

    version_s: float = 60.0
    """Versions: seconds since they were superseded by another."""
    file_s: float = 3600.0
    """Unreferenced files: seconds since they were written."""


_current = GracePeriods()


def ages() -> GracePeriods:
    """The grace periods of this process."""
    return _current


def is_recent_for_files(environment: Environment, then: Moment | None) -> bool:
    """Whether files written since then are within the grace period, so that none can have been collected."""
    return then is not None and seconds_since(environment, then) < _current.file_s / 2


def is_recent_for_versions(environment: Environment, then: Moment | None) -> bool:
    """Whether versions superseded since then are within the grace period, so that none can have been collected."""
    return then is not None and seconds_since(environment, then) < _current.version_s / 2


@contextlib.contextmanager
def other_ages(version_s: float, file_s: float) -> Generator[None]:
    """For tests: other grace periods. Every process that writes or collects must use the same."""
    global _current
    before, _current = _current, GracePeriods(version_s, file_s)
    try:
        yield
    finally:
        _current = before
