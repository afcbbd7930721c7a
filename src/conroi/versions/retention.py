"""Retention metadata: the expiry watermark, expired versions, versions being collected, grace periods, and leases."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

from conroi.arguments import checked_calls
from conroi.environment import Environment, Moment, moment, seconds_since
from conroi.errors import ConroiError, CorruptionError, NotFoundError, VersionExpired
from conroi.format.json import decode_document, encode_document
from conroi.format.on_disk import COLLECTED_DIR, EXPIRED_DIR, LEASES_DIR, RESTORING_DIR
from conroi.storage.objects import ObjectInfo, Objects
from conroi.storage.parallel import stays_in_process

_DIGITS = 20

Ranges = list[tuple[int, int]]


class Retention(Enum):
    """Retention status of a version."""

    RETAINED = "retained"
    """Retained."""
    EXPIRING = "expiring"
    """A collector has announced its deletion."""
    COLLECTED = "collected"
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


def retention_of(objects: Objects, version: int) -> Retention:
    """Retention status of a version: one request if it is above the watermark, else one more for each record."""
    found = Retention.RETAINED
    try:
        for newest, path in _notes(objects):
            if version <= newest and _has(_read(objects, path), version):
                if not is_running(path):
                    return Retention.COLLECTED
                found = Retention.EXPIRING
    except NotFoundError:  # a record was replaced by another one since it was listed: look again
        return retention_of(objects, version)
    return found


def is_left_over(objects: Objects, version: int, manifest: str) -> bool:
    """Whether the manifest is no version: a paused writer put it under a number that was collected before.

    The collector may have died with some versions deleted and others only announced. A manifest that is younger than
    the announcement was not there when that was made: all that is announced is older.
    """
    announced_ns = _announced_at_ns(objects, version)
    if announced_ns is None:
        return retention_of(objects, version) is Retention.COLLECTED
    found = objects.head(manifest)
    return found is not None and found.modified_ns > announced_ns


def _announced_at_ns(objects: Objects, version: int) -> int | None:
    """When a collector that is running, or died, announced that it deletes the version; None if none did, or if it was
    collected.
    """
    announced: list[int] = []
    for newest, path in _notes(objects):
        if version <= newest and _has(_read_if_there(objects, path), version):
            info = objects.head(path)
            if not is_running(path):
                return None
            announced += [] if info is None else [info.modified_ns]
    return min(announced, default=None)


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
    """Write one record for everything that is collected; the records that it replaces are deleted only afterwards.

    It may be there already: its collector came no further, and another one ends for it.
    """
    folder, _, name = running.rpartition("/")
    newest, record = int(name[:_DIGITS]), f"{folder}/{name[:_DIGITS]}.{name[_DIGITS + 1 :]}"
    done = [path for version, path in _notes(objects) if version <= newest and not is_running(path)]
    known = [run for path in done for run in _read_if_there(objects, path)]
    _write(objects, record, _merged([*known, *versions]))
    objects.delete([running, *(path for path in done if path != record)])


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


def collected_until_ns(objects: Objects) -> int:
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


# ------------------------------------------------------------------------------ leases

_NAME = re.compile(r"(?P<version>\d{1,20})-(?P<seconds>\d{1,10})-(?P<id>[0-9a-f\-]{36})")
LONGEST_S = 400 * 86_400
"""Maximum duration of a lease, in seconds. A version that must stay for longer needs a tag."""


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease as it is found in the storage."""

    version: int
    seconds_left: float
    """By the storage's own clock; 0 if it has expired."""
    holder: str | None = None
    """Host and process that hold it."""
    path: str = ""


@checked_calls
@stays_in_process("A lease", "Hand over the lake and take one there: lake.at(version, keep=…).")
class Lease:
    """A lease on one version. It expires by itself; `renew` extends it, `release` or leaving a `with` block ends it
    early.

    Every method may be called from any thread.
    """

    def __init__(
        self,
        objects: Objects,
        version: int,
        seconds: float,
        environment: Environment,
        is_there: Callable[[], bool],
        error: Callable[[], VersionExpired],
    ) -> None:
        """`is_there` says whether the version can still be opened, `error` what to raise if not."""
        self.version = version
        self.seconds = max(1, round(seconds))
        """Duration of each renewal, in seconds."""
        self._objects = objects
        self._environment = environment
        self._is_there = is_there
        self._error = error
        self._path: str | None = None
        self._taken_at = moment(environment)
        self._take()

    def __repr__(self) -> str:
        return f"Lease(version={self.version}, {self.seconds_left:.0f} s left)"

    @property
    def seconds_left(self) -> float:
        """For how long the version is protected from now on, by this machine's clock; 0 if the lease has expired."""
        if self._path is None:
            return 0.0
        return max(0.0, self.seconds - seconds_since(self._environment, self._taken_at))

    @property
    def is_live(self) -> bool:
        """Whether the version is still protected."""
        return self.seconds_left > 0

    def renew(self) -> None:
        """Extend the lease from now on; VersionExpired if it had expired and the version was collected."""
        self._take()

    def release(self) -> None:
        """End the lease now; idempotent."""
        path, self._path = self._path, None
        if path is not None:
            self._objects.delete([path])

    def _take(self) -> None:
        begun_at = moment(self._environment)  # before the storage dates the file: we think it ends earlier
        if self._path is None or not self.is_live:
            self._path = f"{LEASES_DIR}/{self.version}-{self.seconds}-{self._environment.new_uuid()}"
        self._objects.put(self._path, json.dumps({"holder": f"{socket.gethostname()}:{os.getpid()}"}).encode())
        self._taken_at = begun_at
        try:
            stays = retention_of(self._objects, self.version) is Retention.RETAINED and self._is_there()
        except BaseException:
            self.release()
            raise
        if not stays:
            self.release()
            raise self._error()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def leases(objects: Objects, now_ns: int) -> Iterator[LeaseInfo]:
    """All leases with a file; `now_ns` is the time by the storage's clock."""
    for info in objects.list(LEASES_DIR):
        parsed = _NAME.fullmatch(info.path.rpartition("/")[2])
        if parsed is not None:
            left = max(0.0, (_end_ns(info, parsed) - now_ns) / 1e9)
            yield LeaseInfo(int(parsed["version"]), left, _holder(objects, info.path), info.path)


def leased(objects: Objects, now_ns: int) -> set[int]:
    """The versions that are protected by a lease."""
    found: set[int] = set()
    for info in objects.list(LEASES_DIR):
        parsed = _NAME.fullmatch(info.path.rpartition("/")[2])
        if parsed is not None and _end_ns(info, parsed) >= now_ns:
            found.add(int(parsed["version"]))
    return found


def has_ended(info: ObjectInfo, now_ns: int) -> bool:
    """Whether this file below LEASES_DIR protects no version at that time."""
    parsed = _NAME.fullmatch(info.path.rpartition("/")[2])
    return parsed is None or _end_ns(info, parsed) < now_ns


def _end_ns(info: ObjectInfo, parsed: re.Match[str]) -> int:
    return info.modified_ns + min(int(parsed["seconds"]), LONGEST_S) * 1_000_000_000


def _holder(objects: Objects, path: str) -> str | None:
    try:
        return decode_document(objects.get(path), path).text("holder")
    except (ConroiError, ValueError, KeyError, TypeError):
        return None
