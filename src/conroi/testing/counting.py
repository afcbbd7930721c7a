"""Request counter: how many storage requests a piece of work needs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar, cast

from conroi.format.naming import (
    DATA_DIR,
    DELETIONS_DIR,
    INDICES_DIR,
    TRANSACTIONS_DIR,
    VERSION_HINT_PATH,
    VERSIONS_DIR,
    parse_manifest_name,
    parse_staged_name,
)
from conroi.stores.objects import Objects
from conroi.testing.wrapping import Request, WrappedObjects

T = TypeVar("T")
_FOLDERS = {
    VERSIONS_DIR: "versions",
    TRANSACTIONS_DIR: "transaction",
    DELETIONS_DIR: "deletion",
    INDICES_DIR: "index",
    DATA_DIR: "data",
    "_refs": "ref",
}


def kind_of(path: str) -> str:
    """What a path is: manifest, staged, hint, versions, transaction, deletion, index, data, ref or other.

    >>> kind_of("_versions/7.manifest"), kind_of("_versions"), kind_of("data/a.lance")
    ('manifest', 'versions', 'data')
    """
    if path == VERSION_HINT_PATH:
        return "hint"
    folder, _, name = path.rpartition("/")
    if folder.rpartition("/")[2] == VERSIONS_DIR:
        if parse_manifest_name(name) is not None:
            return "manifest"
        if parse_staged_name(name) is not None:
            return "staged"
    return _FOLDERS.get(path.partition("/")[0], "other")


class Measurement:
    """The requests made while it was taken; it may be read at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._spans: list[tuple[float, float]] = []
        self.bytes_read = 0
        self.bytes_written = 0

    def requests(self, verb: str | None = None, kind: str | None = None) -> int:
        """How many requests there were, of a verb (`get`, `put_if_absent`, …), of a kind of path, or in all."""
        with self._lock:
            return sum(
                count
                for (counted_verb, counted_kind), count in self._counts.items()
                if verb in (None, counted_verb) and kind in (None, counted_kind)
            )

    @property
    def serial(self) -> int:
        """How many requests came one after the other: of those that overlapped in time, one counts.

        It means something only where a request takes longer than to start a few of them: put SlowObjects below.
        """
        with self._lock:
            spans = sorted(self._spans, key=lambda span: span[1])
        count, free_at = 0, float("-inf")
        for started, ended in spans:
            if started >= free_at:
                count, free_at = count + 1, ended
        return count

    def by_verb_and_kind(self) -> dict[tuple[str, str], int]:
        """All counts, for a message or a comparison."""
        with self._lock:
            return dict(self._counts)

    def add(self, request: Request, bytes_read: int, span: tuple[float, float] | None = None) -> None:
        """Count one request, which took from one moment to another."""
        with self._lock:
            if span is not None:
                self._spans.append(span)
            self._counts[request.verb, kind_of(request.path)] += 1
            self.bytes_read += bytes_read
            self.bytes_written += request.bytes_sent

    def __repr__(self) -> str:
        counts = ", ".join(f"{verb} {kind}: {n}" for (verb, kind), n in sorted(self.by_verb_and_kind().items()))
        return f"Measurement({counts or 'nothing'}; {self.bytes_read} bytes read, {self.bytes_written} written)"


class Meter:
    """Counts the requests of any number of `Objects` together, such as those of all tables of a lake.

    >>> from conroi.testing import connect_through
    >>> meter = Meter()
    >>> lake = connect_through("memory://metered", meter.counting)
    >>> with meter.measure() as measured:
    ...     version = lake.version
    >>> measured.requests("head", "manifest"), measured.requests("get")
    (1, 0)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ever = Measurement()
        self._open = (self.ever,)

    def counting(self, inner: Objects) -> CountingObjects:
        """The same files, counted here."""
        return CountingObjects(inner, self)

    @contextmanager
    def measure(self) -> Generator[Measurement]:
        """Count what all threads do while inside."""
        measurement = Measurement()
        with self._lock:
            self._open = (*self._open, measurement)
        try:
            yield measurement
        finally:
            with self._lock:
                self._open = tuple(other for other in self._open if other is not measurement)

    def add(self, request: Request, bytes_read: int, span: tuple[float, float]) -> None:
        """Count one request in all measurements that are being taken."""
        for measurement in self._open:
            measurement.add(request, bytes_read, span)


class CountingObjects(WrappedObjects):
    """Counts each request, also one that fails; a listing counts once for each thousand names.

    >>> from conroi.stores.objects import open_objects
    >>> counting = CountingObjects(open_objects("memory://counting"))
    >>> with counting.measure() as measured:
    ...     counting.put("_versions/1.manifest", b"abc")
    >>> measured.requests("put", "manifest"), measured.requests("get"), measured.bytes_written
    (1, 0, 3)
    """

    def __init__(self, inner: Objects, meter: Meter | None = None) -> None:
        super().__init__(inner)
        self._meter = meter or Meter()

    @property
    def ever(self) -> Measurement:
        """All requests so far."""
        return self._meter.ever

    def measure(self) -> AbstractContextManager[Measurement]:
        """Count what all threads do while inside."""
        return self._meter.measure()

    def around(self, request: Request, call: Callable[[], T]) -> T:
        bytes_read = 0
        started = time.monotonic()
        try:
            answer = call()
            bytes_read = _length(answer)
            return answer
        finally:
            self._meter.add(request, bytes_read, (started, time.monotonic()))


def _length(answer: object) -> int:
    if isinstance(answer, tuple):  # get_tail answers with the size as well
        answer = cast(tuple[object, ...], answer)[0]
    return len(answer) if isinstance(answer, bytes) else 0
