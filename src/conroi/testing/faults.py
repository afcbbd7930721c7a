"""Fault injection into storage and record stores: a request fails before it is executed, or its response is lost."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from conroi.errors import StoreUnavailable
from conroi.storage.objects import ObjectExists, Objects
from conroi.testing.instruments import Request, WrappedObjects
from conroi.versions.records import Record, RecordStore, RecordTaken

T = TypeVar("T")
Hook = Callable[[Request], object]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: hooks before and after a request; a hook may raise, wait, or run a concurrent writer."""

    before: Hook | None = None
    after: Hook | None = None
    verb: str = "*"
    path: str = "*"
    skip: int = 0
    times: int | None = 1
    """How many matching requests it hits after the first `skip`; None: all."""

    def matches(self, request: Request) -> bool:
        """Whether verb and path fit their patterns, as file names fit `*`."""
        return fnmatchcase(request.verb, self.verb) and fnmatchcase(request.path, self.path)


def fail(verb: str = "*", path: str = "*", *, skip: int = 0, times: int | None = 1) -> Fault:
    """The request never reaches the storage."""
    return Fault(before=_no_answer, verb=verb, path=path, skip=skip, times=times)


def lose_answer(verb: str = "*", path: str = "*", *, skip: int = 0, times: int | None = 1) -> Fault:
    """The storage executes the request, but its response is lost."""
    return Fault(after=_no_answer, verb=verb, path=path, skip=skip, times=times)


def call_before(hook: Hook, verb: str = "*", path: str = "*", *, skip: int = 0, times: int | None = 1) -> Fault:
    """Call the hook before the request is sent, for example to run a concurrent writer."""
    return Fault(before=hook, verb=verb, path=path, skip=skip, times=times)


def call_after(hook: Hook, verb: str = "*", path: str = "*", *, skip: int = 0, times: int | None = 1) -> Fault:
    """Call the hook after the storage has executed the request, before the caller gets the response."""
    return Fault(after=hook, verb=verb, path=path, skip=skip, times=times)


class Plan(Protocol):
    """Decides which request gets which fault."""

    def choose(self, request: Request) -> Fault | None:
        """The fault for this request, or None."""
        ...


class Script:
    """A fixed list of faults: each applies to its matching requests; the first match wins."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = tuple(faults)
        self._matched = [0] * len(self._faults)
        self._lock = threading.Lock()

    def choose(self, request: Request) -> Fault | None:
        with self._lock:
            for number, fault in enumerate(self._faults):
                if fault.matches(request):
                    self._matched[number] += 1
                    turn = self._matched[number] - fault.skip
                    if turn > 0 and (fault.times is None or turn <= fault.times):
                        return fault
        return None


class ChanceFaults:
    """Random faults, reproducible by seed and order of requests."""

    def __init__(
        self, seed: int, *, fail_share: float = 0.05, lose_share: float = 0.05, verb: str = "*", path: str = "*"
    ) -> None:
        self._chance = random.Random(seed)  # noqa: S311  # to be repeatable is the point
        self._fail, self._lose = fail(verb, path, times=None), lose_answer(verb, path, times=None)
        self._fail_share, self._lose_share = fail_share, lose_share
        self._lock = threading.Lock()

    def choose(self, request: Request) -> Fault | None:
        if not self._fail.matches(request):
            return None
        with self._lock:
            drawn = self._chance.random()
        if drawn < self._fail_share:
            return self._fail
        return self._lose if drawn < self._fail_share + self._lose_share else None


class NthRequest:
    """One fault for the n-th request, counted from 1 over all `Objects` that share this plan."""

    def __init__(self, number: int, fault: Fault) -> None:
        self._number = number
        self._fault = fault
        self._count = 0
        self._lock = threading.Lock()

    def choose(self, request: Request) -> Fault | None:
        if not self._fault.matches(request):
            return None
        with self._lock:
            self._count += 1
            return self._fault if self._count == self._number else None


def die(_request: Request) -> None:
    """A hook: kill this process at once, as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyObjects(WrappedObjects):
    """Injects the faults of a plan; `hits` lists those that occurred, so that a test can check that it tested
    something.

    >>> from conroi.storage import open_objects
    >>> faulty = FaultyObjects(open_objects("memory://faulty"), [lose_answer("put", "_versions/*")])
    >>> faulty.put("_versions/1.manifest", b"abc")
    Traceback (most recent call last):
    conroi.errors.StoreUnavailable: The answer to put _versions/1.manifest was lost (injected)
    >>> faulty.get("_versions/1.manifest")
    b'abc'
    """

    def __init__(self, inner: Objects, plan: Plan | Sequence[Fault]) -> None:
        super().__init__(inner)
        self.plan: Plan = Script(plan) if isinstance(plan, Sequence) else plan
        self.hits: list[Request] = []

    def around(self, request: Request, call: Callable[[], T]) -> T:
        return _injected(self.plan.choose(request), request, call, self.hits)


class Gate:
    """A hook at which a writer waits until the test lets it go on.

    Give it to `call_before` or `call_after`; then, in the test: `gate.wait_for_arrival()`, do the other writer's work,
    `gate.open()`. No wait is longer than `timeout_s`.
    """

    def __init__(self, timeout_s: float = 30.0) -> None:
        self._timeout_s = timeout_s
        self._arrived = threading.Event()
        self._opened = threading.Event()

    def __call__(self, request: Request) -> None:
        self._arrived.set()
        if not self._opened.wait(self._timeout_s):
            raise TimeoutError(f"the gate at {request.verb} {request.path} was not opened in time")

    def wait_for_arrival(self) -> None:
        """Wait until a request has arrived at the gate."""
        if not self._arrived.wait(self._timeout_s):
            raise TimeoutError("no request arrived at the gate in time")

    def open(self) -> None:
        """Let all requests through, now and later."""
        self._opened.set()


def _injected(fault: Fault | None, request: Request, call: Callable[[], T], hits: list[Request]) -> T:
    """The answer to a request, with its fault before and after it; a fault is added to `hits`."""
    if fault is None:
        return call()
    hits.append(request)
    _run(fault.before, request)
    try:
        answer = call()
    except (ObjectExists, RecordTaken):
        _run(fault.after, request)  # an answer like any other, and it can get lost like any other
        raise
    _run(fault.after, request)
    return answer


def _run(hook: Hook | None, request: Request) -> None:
    if hook is not None:
        hook(request)


def _no_answer(request: Request) -> None:
    raise StoreUnavailable(f"The answer to {request.verb} {request.path} was lost (injected)")


class WrappedRecords:
    """Hands everything on to `inner`; a subclass overrides `around` to see, delay or refuse requests."""

    def __init__(self, inner: RecordStore) -> None:
        self.inner = inner

    def around(self, request: Request, call: Callable[[], T]) -> T:  # noqa: ARG002  # for subclasses
        """Do the request; its path is the table's name in the store."""
        return call()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def key_of(self, objects: Objects) -> str:
        return self.inner.key_of(objects)

    def put_if_absent(self, records: Sequence[Record], expected: Mapping[str, int] | None = None) -> None:
        tables = ",".join(record.table for record in records)
        self.around(Request("put_if_absent", tables), lambda: self.inner.put_if_absent(records, expected))

    def newest(self, table: str) -> Record | None:
        return self.around(Request("newest", table), lambda: self.inner.newest(table))

    def get(self, table: str, version: int) -> Record | None:
        return self.around(Request("get", table), lambda: self.inner.get(table, version))

    def all(self, table: str) -> list[Record]:
        return self.around(Request("all", table), lambda: self.inner.all(table))

    def point(self, table: str, version: int, path: str, size: int) -> bool:
        return self.around(Request("point", table), lambda: self.inner.point(table, version, path, size))

    def forget(self, table: str, versions: Sequence[int]) -> None:
        self.around(Request("forget", table), lambda: self.inner.forget(table, versions))

    def close(self) -> None:
        self.inner.close()


class FaultyRecords(WrappedRecords):
    """Requests meet the faults of a plan, as with FaultyObjects; `requests` lists all of them, `hits` those that did.

    >>> from conroi.versions.sql_records import SqliteRecords
    >>> from conroi.testing import lose_answer
    >>> import tempfile
    >>> faulty = FaultyRecords(SqliteRecords(tempfile.mkdtemp() + "/records.db"), [lose_answer("put_if_absent")])
    >>> faulty.put_if_absent([Record("orders", 1, "_versions/1.manifest", 100)])
    Traceback (most recent call last):
    conroi.errors.StoreUnavailable: The answer to put_if_absent orders was lost (injected)
    >>> faulty.newest("orders").version
    1
    """

    def __init__(self, inner: RecordStore, plan: Plan | Sequence[Fault] = ()) -> None:
        super().__init__(inner)
        self.plan: Plan = Script(plan) if isinstance(plan, Sequence) else plan
        self.requests: list[Request] = []
        self.hits: list[Request] = []

    def around(self, request: Request, call: Callable[[], T]) -> T:
        self.requests.append(request)
        return _injected(self.plan.choose(request), request, call, self.hits)
