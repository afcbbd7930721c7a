"""Leases: a small file that protects a version from garbage collection for a limited time.

A lease is `_conroi/leases/{version}-{seconds}-{id}`. It expires this many seconds after the timestamp that the storage
gave to the file, so a crashed holder blocks no collector for longer. The clocks of two machines are never compared: a
collector compares timestamps of the storage, a holder measures its own time from before it wrote the file.

A holder that takes or renews a lease writes the file and then checks whether the version is being collected. A
collector records which versions it deletes and then looks for leases (see conroi.versions.retention). So at least
one of the two sees the other. An expired lease is never renewed under its name, so a collector may remove its file at
any time.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

from conroi.arguments import checked_calls
from conroi.environment import Environment, moment, seconds_since
from conroi.errors import ConroiError, VersionExpired
from conroi.format.json import decode_document
from conroi.format.on_disk import LEASES_DIR
from conroi.storage.objects import ObjectInfo, Objects
from conroi.storage.parallel import stays_in_process
from conroi.versions.retention import Fate, fate

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
            stays = fate(self._objects, self.version) is Fate.STAYS and self._is_there()
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
