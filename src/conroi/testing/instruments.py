"""Instruments around a storage, which every request passes: counting and latency; environments replayed from a seed."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

from conroi.catalog.opening import open_catalog
from conroi.catalog.sql_tables import WrapStore, unwrapped_store
from conroi.environment import SYSTEM, Environment
from conroi.format.naming import parse_manifest_name, parse_staged_name
from conroi.format.on_disk import (
    DATA_DIR,
    DELETIONS_DIR,
    INDICES_DIR,
    REFS_DIR,
    TRANSACTIONS_DIR,
    VERSION_HINT_PATH,
    VERSIONS_DIR,
)
from conroi.lake import Lake
from conroi.storage.objects import ObjectInfo, Objects

T = TypeVar("T")
PAGE = 1000
"""How many names an object store gives in one answer to a listing, and takes in one request to delete."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the storage: the name of the method, the (target) path, and how many bytes go along."""

    verb: str
    path: str
    bytes_sent: int = 0


class WrappedObjects:
    """Hands everything on to `inner`; a subclass overrides `around` to see, delay or refuse requests."""

    def __init__(self, inner: Objects) -> None:
        self.inner = inner

    def around(self, request: Request, call: Callable[[], T]) -> T:  # noqa: ARG002  # for subclasses
        """Do the request; a listing comes here once for each page of it."""
        return call()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def is_local(self) -> bool:
        return self.inner.is_local

    @property
    def is_listing_ordered(self) -> bool:
        return self.inner.is_listing_ordered

    @property
    def storage_options(self) -> Mapping[str, str]:
        return self.inner.storage_options

    def get(self, path: str) -> bytes:
        return self.around(Request("get", path), lambda: self.inner.get(path))

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self.around(Request("get_range", path), lambda: self.inner.get_range(path, start, end))

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        return self.around(Request("get_tail", path), lambda: self.inner.get_tail(path, length))

    def head(self, path: str) -> ObjectInfo | None:
        return self.around(Request("head", path), lambda: self.inner.head(path))

    def put(self, path: str, data: bytes) -> None:
        self.around(Request("put", path, len(data)), lambda: self.inner.put(path, data))

    def put_best_effort(self, path: str, data: bytes) -> None:
        self.around(Request("put_best_effort", path, len(data)), lambda: self.inner.put_best_effort(path, data))

    def put_unique(self, path: str, data: bytes) -> None:
        self.around(Request("put", path, len(data)), lambda: self.inner.put_unique(path, data))

    jot, put_unseen = put_best_effort, put_unique  # their former names

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.around(Request("put_if_absent", path, len(data)), lambda: self.inner.put_if_absent(path, data))

    def rename_if_absent(self, source: str, target: str) -> None:
        self.around(Request("rename_if_absent", target), lambda: self.inner.rename_if_absent(source, target))

    def copy(self, source: str, target: str) -> None:
        self.around(Request("copy", target), lambda: self.inner.copy(source, target))

    def copy_if_absent(self, source: str, target: str) -> None:
        self.around(Request("copy_if_absent", target), lambda: self.inner.copy_if_absent(source, target))

    def copy_from(self, source: Objects, path: str, there: str | None = None) -> None:
        self.around(Request("copy_from", path), lambda: self.inner.copy_from(source, path, there))

    def delete(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), PAGE):
            page = paths[start : start + PAGE]
            self.around(Request("delete", page[0]), lambda page=page: self.inner.delete(page))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        return self._paged(Request("list", prefix), self.inner.list(prefix, after=after))

    def list_names(self, prefix: str, *, after: str | None = None) -> Iterator[str]:
        return self._paged(Request("list", prefix), self.inner.list_names(prefix, after=after))

    def sync(self, paths: Sequence[str]) -> None:
        self.inner.sync(paths)

    def pylance_uri(self, path: str = "") -> str:
        return self.inner.pylance_uri(path)

    def _paged(self, request: Request, items: Iterator[T]) -> Iterator[T]:
        item = self.around(request, lambda: next(items, None))
        yielded = 0
        while item is not None:
            yield item
            yielded += 1
            item = next(items, None)
            if yielded % PAGE == 0 and item is not None:
                self.around(request, lambda: None)


_FOLDERS = {
    VERSIONS_DIR: "versions",
    TRANSACTIONS_DIR: "transaction",
    DELETIONS_DIR: "deletion",
    INDICES_DIR: "index",
    DATA_DIR: "data",
    REFS_DIR: "ref",
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

    >>> from conroi.storage import open_objects
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
        answer = cast("tuple[object, ...]", answer)[0]
    return len(answer) if isinstance(answer, bytes) else 0


class SlowObjects(WrappedObjects):
    """Waits `latency_s` before each request, or as long as `latency_s(request)` says."""

    def __init__(
        self, inner: Objects, latency_s: float | Callable[[Request], float], *, environment: Environment = SYSTEM
    ) -> None:
        super().__init__(inner)
        self._latency_s = latency_s
        self._environment = environment

    def around(self, request: Request, call: Callable[[], T]) -> T:
        latency_s = self._latency_s
        self._environment.sleep(latency_s(request) if callable(latency_s) else latency_s)
        return call()


# ------------------------------------------------------------------------------ deterministic environments

_START_NS = 1_700_000_000_000_000_000


class SeededEnvironment:
    """Virtual clock that advances only by sleep(); random numbers and ids come from the seed.

    >>> world = SeededEnvironment(1)
    >>> world.sleep(2.5)
    >>> world.monotonic(), world.new_uuid() == SeededEnvironment(1).new_uuid()
    (2.5, True)
    """

    def __init__(self, seed: int, *, start_ns: int = _START_NS) -> None:
        self.seed = seed
        self._chance = random.Random(seed)  # noqa: S311  # to be repeatable is the point
        self._start_ns = start_ns
        self._passed_ns = 0
        self._lock = threading.Lock()
        self.sleeps: list[float] = []

    def __repr__(self) -> str:
        return f"SeededEnvironment({self.seed})"

    def now_ns(self) -> int:
        return self._start_ns + self._passed_ns

    def monotonic(self) -> float:
        return self._passed_ns / 1e9

    def sleep(self, seconds: float) -> None:
        """Advance the clock, and return at once."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        with self._lock:
            self._passed_ns += round(seconds * 1e9)
            self.sleeps.append(seconds)

    def uniform(self, low: float, high: float) -> float:
        with self._lock:
            return self._chance.uniform(low, high)

    def random_u64(self) -> int:
        with self._lock:
            return self._chance.getrandbits(64)

    def new_uuid(self) -> uuid.UUID:
        with self._lock:
            return uuid.UUID(int=self._chance.getrandbits(128), version=4)


def connect_through(
    uri: str | os.PathLike[str],
    wrap: Callable[[Objects], Objects],
    *,
    store: str | None = None,
    wrap_store: WrapStore = unwrapped_store,
    storage_options: Mapping[str, str] | None = None,
    environment: Environment = SYSTEM,
) -> Lake:
    """As conroi.connect(); `wrap` is called with the files of `__manifest`, of each table, and of the lake itself.

    pylance writes and reads data files by itself, past it. `wrap_store` is called with the tables of the database at
    `store`, if the lake has its history there.

    >>> from conroi.testing import SlowObjects
    >>> lake = connect_through("memory://far-away", lambda objects: SlowObjects(objects, 0.001))
    >>> lake.tables()
    []
    """
    catalog, manifest = open_catalog(
        uri,
        store=store,
        storage_options=storage_options,
        durable=False,
        environment=environment,
        wrap=wrap,
        wrap_store=wrap_store,
    )
    return Lake(catalog, manifest)
