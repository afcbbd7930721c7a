"""Carriers of a simulation: what executes its actors, of which one runs at a time.

With the package greenlet all actors share one real thread, and a hand-over takes about a microsecond. Without it each
actor has a real thread, which waits at a gate for its turn. Who is next is decided elsewhere: both give the same run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

try:
    import greenlet
except ImportError:  # optional
    greenlet = None

if TYPE_CHECKING:
    from conroi.testing.simulation.scheduler import Actor

Execute = Callable[["Actor"], "Actor | None"]
"""Executes an actor from its beginning to its end, and returns the one that is due next."""


class Carrier(Protocol):
    """Lets one actor at a time run."""

    def begin(self, actor: Actor) -> None:
        """Let the first one run, in another real thread."""
        ...

    def hand_over(self, actor: Actor, following: Actor | None) -> None:
        """Let another one run, or end the run; returns when it is this actor's turn again."""
        ...


def carrier(execute: Execute, done: Callable[[], None]) -> Carrier:
    """The fastest that there is; `done` is called when no actor is left to run."""
    return Threads(execute, done) if greenlet is None else Greenlets(greenlet, execute, done)


class _Worker:
    """A real thread, used for one job after the other."""

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.job: Callable[[], None] | None = None
        threading.Thread(target=self._serve, name="conroi-simulation", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.gate.acquire()
            job, self.job = self.job, None
            if job is not None:
                job()
            del job  # it has the whole run


_idle: list[_Worker] = []
"""Workers without a job."""


def _worker() -> _Worker:
    try:
        return _idle.pop()
    except IndexError:
        return _Worker()


class Threads:
    """Each actor has a real thread."""

    def __init__(self, execute: Execute, done: Callable[[], None]) -> None:
        self._execute = execute
        self._done = done

    def begin(self, actor: Actor) -> None:
        self._go_on(actor)

    def hand_over(self, actor: Actor, following: Actor | None) -> None:
        gate = actor.carried_by.gate
        self._go_on(following)
        gate.acquire()

    def _go_on(self, actor: Actor | None) -> None:
        if actor is None:
            self._done()
            return
        if actor.carried_by is None:
            actor.carried_by = _worker()
            actor.carried_by.job = lambda: self._carry(actor)
        actor.carried_by.gate.release()

    def _carry(self, actor: Actor) -> None:
        following = self._execute(actor)
        _idle.append(actor.carried_by)
        self._go_on(following)


class Greenlets:
    """Each actor has a greenlet; all greenlets of a run belong to one thread."""

    def __init__(self, library: Any, execute: Execute, done: Callable[[], None]) -> None:
        self._library = library
        self._execute = execute
        self._done = done
        self._hub: Any = None
        """The thread's own greenlet. An actor that ends returns to it the one that is due next."""

    def begin(self, actor: Actor) -> None:
        worker = _worker()
        worker.job = lambda: self._drive(worker, actor)
        worker.gate.release()

    def _drive(self, worker: _Worker, first: Actor) -> None:
        self._hub = self._library.getcurrent()
        following: Actor | None = first
        while following is not None:
            following = self._greenlet_of(following).switch()
        self._hub = None
        _idle.append(worker)
        self._done()

    def hand_over(self, actor: Actor, following: Actor | None) -> None:  # noqa: ARG002  # switch() knows who calls
        if following is None:
            self._hub.switch(None)
        else:
            self._greenlet_of(following).switch()

    def _greenlet_of(self, actor: Actor) -> Any:
        if actor.carried_by is None:
            actor.carried_by = self._library.greenlet(lambda: self._execute(actor), self._hub)
        return actor.carried_by
