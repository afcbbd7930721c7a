"""The driver: hands out steps as soon as what they need is done, kills some workers, and starts them again."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Self

from .events import Event, What
from .plan import Kind, Plan, Step
from .processes import Process

SILENCE_S = 600
MOST_DEATHS = 5

KILLED_AT = ("orders written", "published")
"""The kills, in turn: in the middle of a load; and when a load is published, but the driver does not know it yet."""


SERVER = "spark"
"""The Spark Connect server, of which all workers are clients."""


class PipelineFailed(Exception):
    """A process failed in a way that is not part of the demonstration."""


def is_worker(name: str) -> bool:
    """Whether a process is one that does steps."""
    return name.startswith("worker")


class Driver:
    """Runs all steps of a plan on some workers, while readers audit."""

    def __init__(
        self, plan: Plan, folder: Path, hear: Callable[[Event], None], *, workers: int, readers: int, kills: int
    ) -> None:
        self._waiting = plan.steps()
        self._undone = {step.name for step in self._waiting}
        self._doing: dict[str, Step] = {}
        self._idle: list[str] = []
        self._hear = hear
        self._heard: queue.Queue[Event] = queue.Queue()
        lake, landing, logs = str(folder / "lake"), str(folder / "landing"), folder / "logs"
        self._commands = (
            {SERVER: ("spark_server", list[str]())}
            | {f"worker-{n + 1}": ("worker", [lake, landing, plan.to_json()]) for n in range(workers)}
            | {f"reader-{n + 1}": ("auditor", [lake]) for n in range(readers)}
        )
        self._logs = logs
        self._address = ""
        self._processes: dict[str, Process] = {}
        loads = plan.days * plan.regions
        self._kill_at = {loads * (n + 1) // (kills + 1): KILLED_AT[n % len(KILLED_AT)] for n in range(kills)}
        self._loads_handed_out = 0
        self._victims: dict[str, str] = {}
        self._deaths = 0

    def __enter__(self) -> Self:
        """Start the Spark server: it takes seconds, in which the data can be generated."""
        self._start(SERVER)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()

    def run(self) -> None:
        """Until every step is done and every process has ended."""
        for name in self._commands:
            if name != SERVER:
                self._start(name)
        while self._undone:
            self._hand_out()
            self._take(self._next())
        self._end()

    def _start(self, name: str) -> None:
        module, arguments = self._commands[name]
        self._processes[name] = Process(name, module, arguments, self._logs, self._heard)

    def _next(self) -> Event:
        try:
            event = self._heard.get(timeout=SILENCE_S)
        except queue.Empty:
            raise PipelineFailed(f"No process reported anything for {SILENCE_S} s; running: {self._doing}.") from None
        self._hear(event)
        return event

    def _end(self) -> None:
        """The readers have a last look when all is done. Workers that only just start are not waited for."""
        running = {name for name in self._processes if name in self._idle or name.startswith("reader")}
        for name in running:
            self._processes[name].no_more()
        while running:
            event = self._next()
            if event.what is What.ENDED and event.who in running:
                self._check_end(event)
                running.remove(event.who)

    # ------------------------------------------------------------------------ handing out

    def _hand_out(self) -> None:
        """The first step whose needs are done goes to the worker who waits longest."""
        while self._idle:
            step = next((step for step in self._waiting if not step.needs & self._undone), None)
            if step is None:
                return
            name = self._idle.pop(0)
            self._waiting.remove(step)
            self._doing[name] = step
            self._hear(Event(What.BEGIN, name, step=step.name))
            self._processes[name].ask(json.dumps({"step": step.name, "wait_at": self._place_to_die(name, step)}))

    def _place_to_die(self, name: str, step: Step) -> str | None:
        if step.kind is not Kind.LOAD:
            return None
        place = self._kill_at.get(self._loads_handed_out)
        self._loads_handed_out += 1
        if place is not None:
            self._victims[name] = place
        return place

    # ------------------------------------------------------------------------ hearing

    def _take(self, event: Event) -> None:
        name = event.who
        if event.what is What.ENDED:
            self._check_end(event)
            self._again(name)
        elif event.what is What.READY and name == SERVER:
            self._address = event.note
            for worker in filter(is_worker, self._processes):
                self._processes[worker].ask(self._address)
        elif event.what is What.READY and is_worker(name):
            self._idle.append(name)
        elif event.what is What.NOTE and self._victims.get(name) == event.note:
            self._processes[name].kill()
            self._hear(Event(What.KILLED, name, step=self._doing[name].name, note=self._victims.pop(name)))
            self._again(name)
        elif event.what is What.DONE:
            self._undone.remove(self._doing.pop(name).name)
            self._idle.append(name)
        elif event.what is What.REFUSED:
            self._waiting.append(self._doing.pop(name))  # later, behind all others
            self._idle.append(name)
        elif event.what is What.FAILED:
            raise PipelineFailed(f"{name} could not do {event.step!r}.\n{event.note}")

    def _again(self, name: str) -> None:
        """A worker died: its step goes to the next idle worker, and it is started again."""
        if name in self._doing:
            self._waiting.insert(0, self._doing.pop(name))
        if name in self._idle:
            self._idle.remove(name)
        self._processes[name].start()
        if self._address:
            self._processes[name].ask(self._address)

    def _check_end(self, event: Event) -> None:
        """A worker killed from outside is started again, a few times; any other failure ends the run."""
        is_signal = event.note.startswith("exit code -")
        self._deaths += is_signal
        if event.note and (event.who == SERVER or not is_signal or self._deaths > MOST_DEATHS):
            log = self._processes[event.who].end_of_log()
            raise PipelineFailed(f"{event.who} ended with {event.note}. The end of its log:\n{log}")
