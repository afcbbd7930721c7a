"""Parallel I/O: thread pools, locks and libraries that belong to one process.

After a fork the threads of a pool do not exist, and a lock that another thread held at that moment stays held in the
child forever. So pools and locks are bound to the process that created them, and a forked child starts with new ones. A
pool takes no work while the interpreter shuts down; then the work is done in the calling thread.

obstore and pylance have thread pools of their own, which cannot be created again. A forked child that used them would
wait forever, or crash, so their use is refused there.

A thread of a simulation (conroi.testing.simulation) has a `Scheduler`, which executes tasks and blocks threads in place
of pools and locks, so that a seed decides the order of everything.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Generic, NoReturn, Protocol, TypeVar

from conroi.errors import UnsupportedError

T = TypeVar("T")
R = TypeVar("R")

_process = os.getpid()
"""This process. The system is asked once, because every use of a lock compares it."""


def _note_fork() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_note_fork)


class ProcessBound:
    """A library that a forked child cannot use once its parent has used it."""

    def __init__(self, uses: str, before: str) -> None:
        self._uses = uses
        self._before = before
        self._used_in: int | None = None

    def enter(self, table: str) -> None:
        """Record that this process uses it; UnsupportedError in a child of a process that did."""
        if self._used_in is None:
            self._used_in = _process
        if self._used_in != _process:
            raise UnsupportedError(
                f"This process was forked from one that had {self._uses}, whose threads do not survive a fork.",
                table=table,
                hint='Start processes with multiprocessing.get_context("spawn") or "forkserver", or fork before the '
                f"parent {self._before}.",
            )


Handle = TypeVar("Handle", bound=type)


def stays_in_process(what: str, instead: str) -> Callable[[Handle], Handle]:
    """Class decorator: its objects cannot be pickled, because they stand for resources of this process."""

    def refuse(_handle: object, _protocol: object) -> NoReturn:
        raise UnsupportedError(f"{what} cannot be pickled: it belongs to this process.", hint=instead)

    def decorate(handle: Handle) -> Handle:
        setattr(handle, "__reduce_ex__", refuse)  # noqa: B010
        return handle

    return decorate


class Scheduler(Protocol):
    """Cooperative threads in virtual time: one runs at a time, and it is chosen from a seed."""

    @property
    def current(self) -> object:
        """The cooperative thread that runs now. Several may share one real thread."""
        ...

    def start(self, task: Callable[[], T]) -> Running[T]:
        """Execute in another thread of the simulation."""
        ...

    def wait(self, on: object, timeout_s: float) -> bool:
        """Block this thread until `notify` is called with the object; False after so many seconds, -1: never."""
        ...

    def notify(self, on: object) -> None:
        """Let the threads that wait for the object go on."""
        ...


class _Thread(threading.local):
    scheduler: Scheduler | None = None
    """The scheduler of this thread; None outside of simulations."""


_THREAD = _Thread()


def schedule_by(scheduler: Scheduler | None) -> None:
    """This thread belongs to the simulation of that scheduler; None: to none."""
    _THREAD.scheduler = scheduler


def this_thread() -> object:
    """What tells this thread from the others, also in a simulation."""
    scheduler = _THREAD.scheduler
    return threading.get_ident() if scheduler is None else scheduler.current


class Running(Generic[T]):
    """A task of a thread pool, or one that was executed in place."""

    def __init__(self, task: Callable[[], T], future: Future[T]) -> None:
        self._task = task
        self._future = future
        self._process = _process

    def result(self) -> T:
        """Its result, or its error. In a forked child, where no thread executes it, it is executed now."""
        return self._future.result() if self._process == _process else self._task()

    def when_done(self, call: Callable[[], object]) -> None:
        """Call this when it is done, immediately if it is."""
        self._future.add_done_callback(lambda _: call())


class Pool:
    """A bounded thread pool, created on first use, per process."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._threads = threads
        self._made: tuple[int, ThreadPoolExecutor] | None = None

    def start(self, task: Callable[[], T]) -> Running[T]:
        """Execute in a thread; in place if no thread is available."""
        return self.try_start(task) or Running(task, _done_in_place(task))

    def try_start(self, task: Callable[[], T]) -> Running[T] | None:
        """Execute in a thread; None if no thread is available, because the interpreter shuts down."""
        if _THREAD.scheduler is not None:
            return _THREAD.scheduler.start(task)
        try:
            return Running(task, self._executor().submit(task))
        except RuntimeError:
            return None

    def _executor(self) -> ThreadPoolExecutor:
        made = self._made
        if made is None or made[0] != _process:
            # Two threads may both make one; the loser's, which has no thread yet, is never used again.
            executor = ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix=self._name)
            made = self._made = (_process, executor)
        return made[1]


def _done_in_place(task: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(task())
    except Exception as error:  # noqa: BLE001  # it is raised where the result is asked for
        future.set_exception(error)
    return future


_WAVE = Pool("conroi-wave", 64)
_LATER = Pool("conroi-later", 32)


def together(tasks: Sequence[Callable[[], object]], *, is_local: bool) -> None:
    """Execute all tasks, in parallel where each takes a request; the first error is raised when all have ended."""
    if is_local or len(tasks) < 2:
        for task in tasks:
            task()
        return
    running = [_WAVE.start(task) for task in tasks]
    errors = [error for each in running if (error := _error_of(each)) is not None]
    if errors:
        raise errors[0]


def _error_of(running: Running[object]) -> BaseException | None:
    try:
        running.result()
    except Exception as error:  # noqa: BLE001  # raised when all have ended
        return error
    return None


def aside(task: Callable[[], T]) -> Running[T]:
    """Execute in the background of the caller; generates no ids and reads no clock, so races can be replayed."""
    return _WAVE.start(task)


def later(task: Callable[[], T]) -> Running[T]:
    """Execute in the background after the call has returned; a process that ends waits for it."""
    return _LATER.start(task)


def in_parallel(function: Callable[[T], R], items: Iterable[T], at_once: int) -> Iterator[R]:
    """The results in the order of the items, with this many calls in parallel."""
    given = list(items)
    scheduler = _THREAD.scheduler
    if scheduler is not None:
        yield from [each.result() for each in [scheduler.start(partial(function, item)) for item in given]]
        return
    with ThreadPoolExecutor(max(1, min(at_once, len(given))), thread_name_prefix="conroi-parallel") as executor:
        try:
            results = executor.map(function, given)
        except RuntimeError:  # the interpreter shuts down
            results = map(function, given)
        yield from results


class ProcessLock:
    """A re-entrant lock that is free in a forked child, whatever threads of the parent did."""

    def __init__(self) -> None:
        self._process = _process
        self._lock = threading.RLock()
        # In a simulation, which does not fork:
        self._owner: object = None
        self._depth = 0

    def acquire(self, timeout: float = -1) -> bool:
        """Whether it was acquired in that many seconds; -1: wait for ever."""
        if self._process != _process:  # a child has one thread when it begins
            self._lock, self._process = threading.RLock(), _process
        scheduler = _THREAD.scheduler
        if scheduler is None:
            return self._lock.acquire(timeout=timeout)
        here = scheduler.current
        while self._owner is not None and self._owner is not here:
            if not scheduler.wait(self, timeout):
                return False
        self._owner = here
        self._depth += 1
        return True

    def release(self, *_: object) -> None:
        if self._process != _process:  # it was acquired before the fork, and the child's is free
            return
        scheduler = _THREAD.scheduler
        if scheduler is None:
            self._lock.release()
            return
        self._depth -= 1
        if not self._depth:
            self._owner = None
            scheduler.notify(self)

    __enter__ = acquire
    __exit__ = release


Wants = Callable[[], tuple[Set[str], Set[str]]]
"""The things that a thread needs alone, and those that it shares with others that share them."""


@dataclass(eq=False, slots=True)
class _Turn:
    """A thread that waits for its turn, or has it."""

    wants: Wants
    is_waiting: bool = True

    def excludes(self, other: _Turn) -> bool:
        (alone, shared), (others_alone, others_shared) = self.wants(), other.wants()
        return not (
            alone.isdisjoint(others_alone) and alone.isdisjoint(others_shared) and shared.isdisjoint(others_alone)
        )


class ThreadQueue:
    """A fair queue in memory for the threads of one process that change the same things: first come, first served.

    Of threads that race for one thing, all but one waste their attempt. Nothing but speed depends on the queue: when
    nothing has happened for `longest_s`, the next one goes ahead, and only that one. A thread that has its turn may
    take it again. A forked child begins with an empty queue.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._start_over()

    def _start_over(self) -> None:
        self._process = _process
        self._signal = ThreadSignal()
        self._turns: list[_Turn] = []
        """In the order of their arrival."""
        self._holding: set[object] = set()
        """The threads that have their turn."""

    @contextmanager
    def turn(self, wants: Wants = lambda: ({"*"}, set())) -> Generator[None]:
        """Wait until no thread before us excludes us, and hold that turn."""
        if self._process != _process:
            self._start_over()
        here, holding = this_thread(), self._holding
        if here in holding:
            yield
            return
        turn = _Turn(wants)
        self._wait(turn)
        holding.add(here)
        try:
            yield
        finally:
            holding.discard(here)
            self._end(turn)

    def _wait(self, turn: _Turn) -> None:
        with self._signal:
            self._turns.append(turn)
            is_awake = True  # False: nothing happened for as long as a turn may take
            try:
                while self._turns[0] is not turn and (before := self._before(turn)):
                    if not is_awake and not any(each.is_waiting for each in before):
                        self._turns = [each for each in self._turns if each not in before]
                        break
                    is_awake = self._signal.wait(self._longest_s)
            except BaseException:
                self._end(turn)
                raise
            turn.is_waiting = False

    def is_shared(self) -> bool:
        """Whether several threads have a turn, or wait for one."""
        return self._process == _process and len(self._turns) > 1

    def _before(self, turn: _Turn) -> list[_Turn]:
        """The turns before this one that exclude it."""
        return [each for each in takewhile(lambda each: each is not turn, self._turns) if each.excludes(turn)]

    def _end(self, turn: _Turn) -> None:
        if self._process != _process:  # it was taken before the fork, and the child's queue is empty
            return
        with self._signal:
            if turn in self._turns:  # else it took too long, and others went ahead
                self._turns.remove(turn)
            if self._turns:
                self._signal.notify_all()


class LeaderQueue(Generic[T]):
    """A queue in memory whose first thread leads: it works on behalf of all that wait, while new ones queue.

    An interrupt may come anywhere, so a thread that leaves undoes what is its own, and one that has ended is passed
    over. A forked child begins with an empty queue.
    """

    def __init__(self) -> None:
        self._start_over()

    def _start_over(self) -> None:
        self._process = _process
        self._signal = ThreadSignal()
        self._queue: list[T] = []
        self._threads: dict[int, threading.Thread] = {}
        """Those that wait, by their items."""
        self._leader: tuple[object, threading.Thread] | None = None

    def try_alone(self) -> bool:
        """Lead without an item, if nobody leads or waits; until `end`."""
        if self._process != _process:
            self._start_over()
        with self._signal:
            is_free = not self._is_led() and not self._queue
            if is_free:
                self._leader = this_thread(), threading.current_thread()
        return is_free

    def end(self) -> None:
        """If this thread leads: the next one may."""
        with self._signal:
            if self._leader is not None and self._leader[0] == this_thread():
                self._leader = None
            if self._queue:
                self._signal.notify_all()

    def join(self, item: T, lead: Callable[[Sequence[T]], object]) -> None:
        """Return when the item is `done`; meanwhile this thread may lead, with all items that are in the queue."""
        try:
            with self._signal:
                self._threads[id(item)] = threading.current_thread()
                self._queue.append(item)
            while self._is_mine_to_lead(item):
                lead(tuple(self._queue))
                self.end()
        finally:
            self.done([item])
            self.end()

    def _is_led(self) -> bool:
        return self._leader is not None and self._leader[0] != this_thread() and self._leader[1].is_alive()

    def _is_mine_to_lead(self, item: T) -> bool:
        """Wait until it is; False: it is done."""
        with self._signal:
            while any(each is item for each in self._queue):
                if not self._is_led() and self._queue[0] is item:
                    self._leader = this_thread(), threading.current_thread()
                    return True
                self._queue = [each for each in self._queue if self._threads[id(each)].is_alive()]
                self._signal.wait(_LOOK_S)
            return False

    def done(self, items: Iterable[T]) -> None:
        """These need not wait any longer."""
        with self._signal:
            gone = set(map(id, items))
            self._queue = [each for each in self._queue if id(each) not in gone]
            for number in gone:
                self._threads.pop(number, None)
            self._signal.notify_all()


_LOOK_S = 5.0
"""How often a waiting thread looks by itself, in seconds; it is notified of all that happens."""


class ThreadSignal(threading.Condition):
    """A lock with a condition: `wait` releases it until another thread notifies all. Not for a forked child."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification; False if none came in that many seconds."""
        scheduler = _THREAD.scheduler
        if scheduler is None:
            return super().wait(timeout)
        self.release()
        try:
            return scheduler.wait(self, -1 if timeout is None else timeout)
        finally:
            self.acquire()

    def notify_all(self) -> None:
        super().notify_all()
        if _THREAD.scheduler is not None:
            _THREAD.scheduler.notify(self)
