"""Counting what a piece of work asks of the storage."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
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

    def by_verb_and_kind(self) -> dict[tuple[str, str], int]:
        """All counts, for a message or a comparison."""
        with self._lock:
            return dict(self._counts)

    def add(self, request: Request, bytes_read: int) -> None:
        """Count one request."""
        with self._lock:
            self._counts[request.verb, kind_of(request.path)] += 1
            self.bytes_read += bytes_read
            self.bytes_written += request.bytes_sent

    def __repr__(self) -> str:
        counts = ", ".join(f"{verb} {kind}: {n}" for (verb, kind), n in sorted(self.by_verb_and_kind().items()))
        return f"Measurement({counts or 'nothing'}; {self.bytes_read} bytes read, {self.bytes_written} written)"


class CountingObjects(WrappedObjects):
    """Counts each request, also one that fails; a listing counts once for each thousand names.

    >>> from conroi.stores.objects import open_objects
    >>> counting = CountingObjects(open_objects("memory://counting"))
    >>> with counting.measure() as measured:
    ...     counting.put("_versions/1.manifest", b"abc")
    >>> measured.requests("put", "manifest"), measured.requests("get"), measured.bytes_written
    (1, 0, 3)
    """

    def __init__(self, inner: Objects) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.ever = Measurement()
        self._open = (self.ever,)

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

    def around(self, request: Request, call: Callable[[], T]) -> T:
        bytes_read = 0
        try:
            answer = call()
            bytes_read = _length(answer)
            return answer
        finally:
            for measurement in self._open:
                measurement.add(request, bytes_read)


def _length(answer: object) -> int:
    if isinstance(answer, tuple):  # get_tail answers with the size as well
        answer = cast(tuple[object, ...], answer)[0]
    return len(answer) if isinstance(answer, bytes) else 0
