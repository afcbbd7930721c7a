"""Deterministic scheduling: writers on threads of which one runs at a time, in virtual time.

Every request to the storage and every sleep hands over to the writer that is due next; ties are broken by the seed. No
thread sleeps for real, so seconds of contention take as long as the work itself.
"""

from __future__ import annotations

import heapq
import importlib
import random
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Generic, TypeVar

import pytest

from conroi.storage.objects import Objects
from conroi.storage.parallel import ProcessLock
from conroi.testing import SeededEnvironment, WrappedObjects
from conroi.testing.instruments import Request

T = TypeVar("T")
LOOK_AT_LOCK_S = 0.0001
START_NS = 4_000_000_000_000_000_000
"""The time at which a schedule begins: later than what was made in real time before it, so that commits have distances.
"""
REAL_TIME_LIMIT_S = 300.0
"""A hand-over that takes longer is a deadlock: a writer that is not due holds a lock across a request."""


class OutOfTime(BaseException):
    """Raised in each writer when the virtual time is over; no handler of errors takes it for one."""


class Schedule:
    """The virtual clock, and whose turn it is."""

    def __init__(self, seed: int, *, seconds: float) -> None:
        self.now = 0.0
        self._ends_at = seconds
        self._chance = random.Random(seed)
        self._due: list[tuple[float, float, str]] = []
        self._may_run = dict[str, threading.Event]()
        self._names = threading.local()
        self._errors: list[BaseException] = []
        self._spawned = 0

    def run(self, writers: Mapping[str, Callable[[], None]]) -> None:
        """All of them, until the time is over or all have ended; the first error of any is raised."""
        self._may_run = {name: threading.Event() for name in writers}
        threads = [
            threading.Thread(target=self._run, args=(name, work), name=name, daemon=True)
            for name, work in writers.items()
        ]
        for name in writers:
            heapq.heappush(self._due, (0.0, self._chance.random(), name))
        for thread in threads:
            thread.start()
        self._hand_over()
        for thread in threads:
            thread.join(REAL_TIME_LIMIT_S)
            assert not thread.is_alive(), f"{thread.name} never came to its end"
        if self._errors:
            raise self._errors[0]

    def pause(self, seconds: float) -> None:
        """Let so much virtual time pass for the writer of this thread; a thread that is none of them goes on."""
        name = self.current
        if name is not None:
            heapq.heappush(self._due, (self.now + seconds, self._chance.random(), name))
            self.block()

    def spawn(self, task: Callable[[], T]) -> Task[T]:
        """Do it as an actor of its own, that is due at once."""
        self._spawned += 1
        name = f"{self.current or 'main'}/{self._spawned}"
        spawned = Task(self, task)
        self._may_run[name] = threading.Event()
        heapq.heappush(self._due, (self.now, self._chance.random(), name))
        threading.Thread(target=self._run, args=(name, spawned.run), name=name, daemon=True).start()
        return spawned

    @property
    def current(self) -> str | None:
        """The actor of this thread."""
        return getattr(self._names, "mine", None)

    def block(self) -> None:
        """Wait, without a time, until `wake` is called for this actor."""
        name = self.current
        assert name is not None
        self._may_run[name].clear()
        self._hand_over()
        self._resume(name)

    def wake(self, name: str) -> None:
        heapq.heappush(self._due, (self.now, self._chance.random(), name))

    def _resume(self, name: str) -> None:
        assert self._may_run[name].wait(REAL_TIME_LIMIT_S), "deadlock"
        if self.now >= self._ends_at:
            raise OutOfTime

    def _run(self, name: str, work: Callable[[], None]) -> None:
        self._names.mine = name
        try:
            assert self._may_run[name].wait(REAL_TIME_LIMIT_S), "deadlock"
            work()
        except OutOfTime:
            pass
        except BaseException as error:  # noqa: BLE001  # raised by run()
            self._errors.append(error)
        finally:
            del self._names.mine
            self._hand_over()

    def _hand_over(self) -> None:
        if self._due:
            due, _, name = heapq.heappop(self._due)
            self.now = max(self.now, due)
            self._may_run[name].set()


class Task(Generic[T]):
    """Parallel I/O in virtual time: what `conroi.storage.parallel.Running` is with real threads."""

    def __init__(self, schedule: Schedule, task: Callable[[], T]) -> None:
        self._schedule = schedule
        self._task = task
        self._future = Future[T]()
        self._waiting: list[str] = []

    def run(self) -> None:
        try:
            self._future.set_result(self._task())
        except BaseException as error:  # noqa: BLE001  # raised where the result is asked for
            self._future.set_exception(error)
        for name in self._waiting:
            self._schedule.wake(name)

    def result(self) -> T:
        name = self._schedule.current
        if name is not None and not self._future.done():
            self._waiting.append(name)
            self._schedule.block()
        return self._future.result()

    def when_done(self, call: Callable[[], object]) -> None:
        self._future.add_done_callback(lambda _: call())


class ScheduledPool:
    """In the place of a `conroi.storage.parallel.Pool`; a thread that belongs to no schedule does the work itself."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def start(self, task: Callable[[], T]) -> Task[T]:
        if self._schedule.current is not None:
            return self._schedule.spawn(task)
        done = Task(self._schedule, task)
        done.run()
        return done

    try_start = start


@contextmanager
def scheduled(schedule: Schedule) -> Generator[None]:
    """Parallel I/O and the locks of a process in virtual time, too."""
    parallel = importlib.import_module("conroi.storage.parallel")
    pool, really_acquire = ScheduledPool(schedule), parallel.ProcessLock.acquire

    def acquire(lock: ProcessLock, timeout: float = -1) -> bool:
        if schedule.current is None:
            return really_acquire(lock, timeout)
        until = schedule.now + timeout
        while not (is_free := really_acquire(lock, 0)) and (timeout < 0 or schedule.now < until):
            schedule.pause(LOOK_AT_LOCK_S)
        return is_free

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_WAVE", "_LATER"):
            patch.setattr(parallel, name, pool)
        for name in ("acquire", "__enter__"):
            patch.setattr(parallel.ProcessLock, name, acquire)
        yield


class ScheduledEnvironment(SeededEnvironment):
    """The clock of a schedule, with ids and randomness of the writer's own."""

    def __init__(self, schedule: Schedule, seed: int) -> None:
        super().__init__(seed, start_ns=START_NS)
        self._schedule = schedule

    def now_ns(self) -> int:
        return super().now_ns() + round(self._schedule.now * 1e9)

    def monotonic(self) -> float:
        return self._schedule.now

    def sleep(self, seconds: float) -> None:
        self._schedule.pause(seconds)


class ScheduledObjects(WrappedObjects):
    """Storage whose requests take virtual time: half of it before the effect, half of it before the answer."""

    def __init__(self, inner: Objects, schedule: Schedule, latency_s: Callable[[], float]) -> None:
        super().__init__(inner)
        self._schedule = schedule
        self._latency_s = latency_s

    def around(self, request: Request, call: Callable[[], T]) -> T:
        latency_s = self._latency_s()
        self._schedule.pause(latency_s / 2)
        answer = super().around(request, call)
        self._schedule.pause(latency_s / 2)
        return answer
