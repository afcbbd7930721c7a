"""Deterministic scheduler: cooperative threads in virtual time, of which one runs at a time, chosen from a seed.

Every request to the storage, every sleep and every wait for a lock hands over to the thread that is due next; ties are
broken by the seed. No thread sleeps for real. A thread belongs to a client, which stands for a process: it can be
paused with all of its threads, or crash, after which none of them does anything more.
"""

from __future__ import annotations

import contextvars
import heapq
import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from conroi.storage.parallel import Running, schedule_by
from conroi.testing.simulation.carriers import carrier

T = TypeVar("T")

REAL_TIME_LIMIT_S = 120.0
"""Seconds of real time after which a run is given up: a thread waits for something that the scheduler does not see."""


class ClientCrashed(BaseException):
    """Raised in every thread of a client that crashed; no handler of errors takes it for one."""


class SimulationOver(BaseException):
    """Raised in every thread that is left when a run ends."""


class Stuck(Exception):
    """A run that does not come to its end: a deadlock, or a limit of steps or of virtual time."""


@dataclass(eq=False)
class Client:
    """One process of the simulation: its clocks, its randomness, its threads."""

    name: str
    chance: random.Random
    offset_s: float = 0.0
    """How far its wall clock is from the storage's; it may jump."""
    rate: float = 1.0
    """Speed of its clocks."""
    speed: float = 1.0
    """Multiplies the duration of its requests."""
    is_faulty: bool = True
    """Whether its requests meet faults."""
    is_dead: bool = False
    paused_until: float = 0.0
    threads: set[Actor] = field(default_factory=set["Actor"])
    started: int = 0
    """Threads that it has started."""


class Actor:
    """One thread of a client."""

    def __init__(self, client: Client, name: str, task: Callable[[], None]) -> None:
        self.client = client
        self.name = name
        self.task = task
        self.carried_by: Any = None
        """Its real thread, or its greenlet: see carriers."""
        self.turn = 0
        """Grows whenever it goes on, so that what was planned for it before is void."""
        self.waits_for: object = None
        self.was_notified = False


class Scheduler:
    """The virtual clock, and whose turn it is."""

    def __init__(self, seed: int, *, most_steps: int = 200_000, most_s: float = 40 * 86_400.0) -> None:
        self.now = 0.0
        self.steps = 0
        self.switches = 0
        self.chance = random.Random(f"{seed} order")  # noqa: S311  # to be repeatable is the point
        self._most_steps, self._most_s = most_steps, most_s
        self._plan: list[tuple[float, float, int, Actor | Callable[[], None], int]] = []
        self._planned = 0
        self._waiting: dict[int, list[Actor]] = {}
        self._alive: dict[Actor, None] = {}
        self._here = threading.local()
        self._done = threading.Event()
        self._carrier = carrier(self._execute, self._done.set)
        self._is_over = False
        self.problem: str | None = None
        self.errors: list[BaseException] = []

    # ------------------------------------------------------------------------ running

    @property
    def current(self) -> Actor | None:
        """The actor of this thread; None outside of a run."""
        return getattr(self._here, "actor", None)

    def run(self) -> None:
        """Until no actor is left. Raises the first error of an actor, or Stuck."""
        self._done.clear()
        following = self._next()
        if following is None:
            return
        self._carrier.begin(following)
        if not self._done.wait(REAL_TIME_LIMIT_S):
            waiting = ", ".join(actor.name for actor in self._alive)
            raise Stuck(f"no thread handed over for {REAL_TIME_LIMIT_S:g} s of real time: {waiting}")
        if self.errors:
            raise self.errors[0]
        if self.problem is not None:
            raise Stuck(self.problem)

    def spawn(
        self, client: Client, task: Callable[[], None], *, after_s: float = 0.0, name: str | None = None
    ) -> Actor:
        """A thread more of this client, which is due then."""
        client.started += 1
        actor = Actor(client, name or f"{client.name}/{client.started}", task)
        client.threads.add(actor)
        self._alive[actor] = None
        self._plan_for(actor, self.now + after_s)
        return actor

    def at(self, after_s: float, call: Callable[[], None]) -> None:
        """Call this then, whoever runs: an effect in the storage that no client waits for any more."""
        self._planned += 1
        heapq.heappush(self._plan, (self.now + after_s, self.chance.random(), self._planned, call, 0))

    def crash(self, client: Client) -> None:
        """The client is gone, with all of its threads and its memory."""
        client.is_dead, client.paused_until = True, 0.0
        for actor in sorted(client.threads, key=lambda each: each.name):
            if actor is not self.current:
                self._plan_for(actor, self.now)

    # ------------------------------------------------------------------------ inside an actor

    def pause(self, seconds: float) -> None:
        """Let so much virtual time pass for this thread."""
        actor = self.current
        if actor is None:
            self.now += seconds
            return
        self._stop(actor)
        self._plan_for(actor, self.now + seconds)
        self._hand_over(actor)

    def start(self, task: Callable[[], T]) -> Running[T]:
        """Execute in another thread of the same client."""
        actor = self.current
        assert actor is not None, "only threads of the simulation are scheduled by it"
        started = Task(self, task)
        self.spawn(actor.client, started.execute, name=f"{actor.name}/{actor.client.started + 1}")
        return started

    def wait(self, on: object, timeout_s: float = -1) -> bool:
        """Block until notified; False after so many seconds, -1: never."""
        actor = self.current
        assert actor is not None, "only threads of the simulation are scheduled by it"
        self._stop(actor)
        actor.waits_for, actor.was_notified = on, False
        self._waiting.setdefault(id(on), []).append(actor)
        if timeout_s >= 0:
            self._plan_for(actor, self.now + timeout_s)
        try:
            self._hand_over(actor)
        finally:
            waiting = self._waiting.get(id(on), [])
            if actor in waiting:
                waiting.remove(actor)
            actor.waits_for = None
        return actor.was_notified

    def notify(self, on: object) -> None:
        """Let all that wait for it go on."""
        for actor in self._waiting.pop(id(on), ()):
            actor.was_notified = True
            self._plan_for(actor, self.now)

    # ------------------------------------------------------------------------ whose turn it is

    def _plan_for(self, actor: Actor, due: float) -> None:
        self._planned += 1
        heapq.heappush(self._plan, (due, self.chance.random(), self._planned, actor, actor.turn))

    def _next(self) -> Actor | None:
        """The thread that is due next; None if none is left, or none can continue."""
        while self._plan:
            due, _, _, what, turn = heapq.heappop(self._plan)
            if not isinstance(what, Actor):
                self.now = max(self.now, due)
                what()
                continue
            if what.turn != turn or what not in self._alive:
                continue
            if what.client.paused_until > max(due, self.now) and not self._is_over:
                self._plan_for(what, what.client.paused_until)
                continue
            self.now = max(self.now, due)
            self.steps += 1
            if not self._is_over and (self.steps > self._most_steps or self.now > self._most_s):
                self._give_up(f"not at its end after {self.steps} steps and {self.now:.0f} s")
            what.turn += 1
            return what
        if self._alive and not self._is_over:
            self._give_up(f"deadlock: {', '.join(f'{each.name} waits' for each in self._alive)}")
            return self._next()
        return None

    def _give_up(self, problem: str) -> None:
        """End every thread that is left."""
        self.problem, self._is_over = problem, True
        for actor in list(self._alive):
            self._plan_for(actor, self.now)

    def _hand_over(self, actor: Actor) -> None:
        following = self._next()
        if following is not actor:
            self.switches += 1
            self._carrier.hand_over(actor, following)
            self._here.actor = actor
        self._stop(actor)

    def _stop(self, actor: Actor) -> None:
        """End this thread if the run is over, or its client gone."""
        if self._is_over:
            raise SimulationOver
        if actor.client.is_dead:
            raise ClientCrashed(actor.client.name)

    def _execute(self, actor: Actor) -> Actor | None:
        """From its beginning to its end; the actor that is due next."""
        self._here.actor = actor
        schedule_by(self)
        try:
            if not self._is_over and not actor.client.is_dead:
                contextvars.copy_context().run(actor.task)
        except (ClientCrashed, SimulationOver):
            pass
        except BaseException as error:  # noqa: BLE001  # raised by run()
            self.errors.append(error)
            if not self._is_over:
                self._give_up(f"{actor.name} raised {error!r}")
        self._here.actor = None
        actor.client.threads.discard(actor)
        self._alive.pop(actor, None)
        return self._next()


class Task(Running[T]):
    """A task that runs in a thread of the simulation."""

    def __init__(self, scheduler: Scheduler, task: Callable[[], T]) -> None:
        self._scheduler = scheduler
        self._work = task
        self._found: list[T] = []
        """Its result, once it is done without an error."""
        self._error: BaseException | None = None
        self._calls: list[Callable[[], object]] = []

    def execute(self) -> None:
        """In its own thread."""
        try:
            self._found.append(self._work())
        except BaseException as error:  # raised where the result is asked for
            self._error = error
            if isinstance(error, ClientCrashed | SimulationOver):
                raise
        for call in self._calls:
            call()
        self._scheduler.notify(self)

    def result(self) -> T:
        while not self._found:
            if self._error is not None:
                raise self._error
            self._scheduler.wait(self)
        return self._found[0]

    def when_done(self, call: Callable[[], object]) -> None:
        if self._found or self._error is not None:
            call()
        else:
            self._calls.append(call)


class WorkerEnvironment:
    """Clock, sleep, randomness and ids of one client."""

    def __init__(self, scheduler: Scheduler, client: Client, start_ns: int) -> None:
        self._scheduler = scheduler
        self._client = client
        self._start_ns = start_ns

    def __repr__(self) -> str:
        return f"WorkerEnvironment({self._client.name})"

    def now_ns(self) -> int:
        return self._start_ns + round((self._scheduler.now * self._client.rate + self._client.offset_s) * 1e9)

    def monotonic(self) -> float:
        return self._scheduler.now * self._client.rate

    def sleep(self, seconds: float) -> None:
        self._scheduler.pause(seconds / self._client.rate)

    def uniform(self, low: float, high: float) -> float:
        return self._client.chance.uniform(low, high)

    def random_u64(self) -> int:
        return self._client.chance.getrandbits(64)

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._client.chance.getrandbits(128), version=4)
