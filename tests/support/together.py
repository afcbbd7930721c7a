"""Several processes that work at the same time, each on a job of its own, and what each of them says it did."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Protocol, TypeVar

from tests.support.processes import fork_context

J = TypeVar("J")
R = TypeVar("R")
PATIENCE_S = 120.0


class Meet(Protocol):
    """Wait until all processes are here."""

    def __call__(self) -> None: ...


class _Meeting:
    def __init__(self, barrier: Barrier, patience_s: float) -> None:
        self._barrier = barrier
        self._patience_s = patience_s

    def __call__(self) -> None:
        self._barrier.wait(self._patience_s)


def together(work: Callable[[J, Meet], R], jobs: Sequence[J], *, patience_s: float = PATIENCE_S) -> list[R]:
    """What each process answers, in the order of the jobs. `work` and the jobs must be picklable."""
    context = fork_context()
    barrier, answers = context.Barrier(len(jobs)), context.Queue()
    meet = _Meeting(barrier, patience_s)
    workers = [context.Process(target=_run, args=(work, n, job, meet, answers)) for n, job in enumerate(jobs)]
    for worker in workers:
        worker.start()
    said: dict[int, R] = {}
    try:
        for _ in workers:
            number, answer, failure = answers.get(timeout=patience_s)
            assert failure is None, failure
            said[number] = answer
    finally:
        for worker in workers:
            worker.join(patience_s) if len(said) == len(jobs) else worker.kill()
    return [said[number] for number in range(len(jobs))]


class _Answers(Protocol):
    def put(self, answer: tuple[int, object, str | None], /) -> None: ...


def _run(work: Callable[[J, Meet], R], number: int, job: J, meet: _Meeting, answers: _Answers) -> None:
    try:
        answers.put((number, work(job, meet), None))
    except BrokenBarrierError:
        answers.put((number, None, "another process failed first, or did not arrive"))
    except BaseException:
        answers.put((number, None, traceback.format_exc()))
        meet._barrier.abort()
        raise
