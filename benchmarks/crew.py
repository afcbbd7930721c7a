"""Worker processes that start together, work for a fixed time, and say what they did.

The processes stay for all turns. What is timed is the work alone: imports, opening and a first step come before the
barrier at which all workers wait for each other, and one worker after the other does them, so that they cannot fail.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier, Lock
from threading import BrokenBarrierError
from types import TracebackType

from benchmarks.harness import percentile

PATIENCE_S = 300.0

Step = Callable[[], object]
"""One unit of work. False says that there was nothing to do; an exception is an error that reached the user."""

Prepare = Callable[[int], Step]
"""What a worker, told its number, does before the barrier. It must be importable, since it travels to a process."""


@dataclass(slots=True)
class Shift:
    """What one worker did."""

    latencies_s: list[float] = field(default_factory=list[float])
    """Of every step that succeeded, also of the last one, which may end after the window."""
    in_time: int = 0
    """Steps that succeeded and ended within the window."""
    idle: int = 0
    """Steps that found nothing to do."""
    errors: list[str] = field(default_factory=list[str])
    cpu_s: float = 0.0
    """Processor time of all threads of the process; it says more than a clock if others use the machine."""

    @property
    def done(self) -> int:
        return len(self.latencies_s)


@dataclass(frozen=True, slots=True)
class CrewTurn:
    """What all workers did in one window."""

    shifts: Sequence[Shift]
    seconds: float
    duplicates: int = 0
    """Rows that were there more than once afterwards, as the caller found."""

    @property
    def rate(self) -> float:
        """Steps a second, of those that ended within the window."""
        return sum(shift.in_time for shift in self.shifts) / self.seconds

    def percentile_s(self, percent: int) -> float:
        return percentile([latency for shift in self.shifts for latency in shift.latencies_s], percent)

    @property
    def fairness(self) -> float:
        """The steps of the slowest worker divided by those of the fastest."""
        return self.fewest / self.most if self.most else 0.0

    @property
    def fewest(self) -> int:
        return min(shift.in_time for shift in self.shifts)

    @property
    def most(self) -> int:
        return max(shift.in_time for shift in self.shifts)

    @property
    def done(self) -> int:
        return sum(shift.done for shift in self.shifts)

    @property
    def cpu_s(self) -> float:
        """Computing time for each step that succeeded."""
        return sum(shift.cpu_s for shift in self.shifts) / max(1, self.done)

    @property
    def errors(self) -> list[str]:
        """Those that reached a user."""
        return [error for shift in self.shifts for error in shift.errors]


class Crew:
    """So many processes, for as long as a `with` block."""

    def __init__(self, size: int) -> None:
        self.size = size
        context = multiprocessing.get_context("spawn")
        # Kept, because a worker that is still starting would not find what is no longer there.
        self._barrier, self._lock = context.Barrier(size), context.Lock()
        self._lines: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for number in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(number, self._lock, self._barrier, theirs), daemon=True)
            process.start()
            theirs.close()
            self._lines.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line, process in zip(self._lines, self._processes, strict=True):
            line.close()  # which is how a worker learns that there is no more work
            process.join(PATIENCE_S if kind is None else 1.0)
            process.kill()

    def work(self, jobs: Sequence[Prepare], seconds: float) -> CrewTurn:
        """One job for each worker, all in the same window."""
        for line, job in zip(self._lines, jobs, strict=True):
            line.send((job, seconds))
        answers = [_received(line, PATIENCE_S + seconds) for line in self._lines]
        if failures := [answer for answer in answers if isinstance(answer, str)]:
            raise RuntimeError("a worker failed before its window:\n" + max(failures, key=len))
        return CrewTurn([answer for answer in answers if isinstance(answer, Shift)], seconds)


def _received(line: Connection, patience_s: float) -> Shift | str:
    if not line.poll(patience_s):
        raise TimeoutError(f"a worker has not answered for {patience_s:g} s")
    return line.recv()


def _serve(number: int, lock: Lock, barrier: Barrier, line: Connection) -> None:
    while True:
        try:
            job, seconds = line.recv()
        except (EOFError, ConnectionResetError):
            return
        line.send(_answer(number, lock, barrier, job, seconds))


def _answer(number: int, lock: Lock, barrier: Barrier, job: Prepare, seconds: float) -> Shift | str:
    """What the worker did, or why it could not start."""
    try:
        with lock:
            step = job(number)
        gc.collect()
        barrier.wait(PATIENCE_S)
    except BrokenBarrierError:
        return "another one failed"
    except Exception:  # noqa: BLE001  # reported to the caller
        barrier.abort()
        return traceback.format_exc()
    return work_for(seconds, step)


def work_for(seconds: float, step: Step) -> Shift:
    """Repeat a step until the window is over; errors are counted and do not end it."""
    shift = Shift()
    cpu_before_s = time.process_time()
    end = time.perf_counter() + seconds
    while (before := time.perf_counter()) < end:
        try:
            is_idle = step() is False
        except Exception as error:  # noqa: BLE001  # whatever it is, it reached the user
            shift.errors.append(f"{type(error).__name__}: {str(error)[:300]}")
            continue
        after = time.perf_counter()
        if is_idle:
            shift.idle += 1
        else:
            shift.latencies_s.append(after - before)
            shift.in_time += after <= end
    shift.cpu_s = time.process_time() - cpu_before_s
    return shift
