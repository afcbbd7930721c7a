"""What happened when: each attempt of each step, the starts, kills and audits, worked out from the events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .events import Event, What
from .plan import Kind


class Outcome(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    FOUND = "found to be done before"
    RETRIED = "overtaken by others, done again"
    REFUSED = "refused, done later"
    KILLED = "killed with signal 9"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a step by one worker; times are seconds since the start."""

    who: str
    step: str
    start: float
    end: float
    outcome: Outcome
    rebased: int = 0
    version: int = 0
    note: str = ""

    @property
    def kind(self) -> Kind:
        """What the step does: its name begins with it."""
        return Kind(self.step.partition(" ")[0])

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start

    @property
    def is_published(self) -> bool:
        """Whether this attempt is in the lake; also if its worker was killed right afterwards."""
        return self.outcome is Outcome.DONE or (self.outcome is Outcome.KILLED and self.note == "published")


@dataclass
class Timeline:
    """All of it."""

    workers: list[str] = field(default_factory=list[str])
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    starts: list[tuple[str, float, float]] = field(default_factory=list["tuple[str, float, float]"])
    """Who was being started, from when to when."""
    audits: list[Event] = field(default_factory=list[Event])
    """With times since the start, as everything here."""
    end: float = 0.0

    def count(self, *outcomes: Outcome) -> int:
        """How many attempts ended so."""
        return sum(attempt.outcome in outcomes for attempt in self.attempts)

    @property
    def rebased(self) -> int:
        """How many transactions were rebased over concurrent publications."""
        return sum(attempt.rebased > 0 for attempt in self.attempts)

    @property
    def problems(self) -> list[str]:
        """What the audits found."""
        return [problem for audit in self.audits for problem in audit.problems]

    @property
    def working_seconds(self) -> float:
        """From the first attempt to the end of the last."""
        if not self.attempts:
            return 0.0
        return max(a.end for a in self.attempts) - min(a.start for a in self.attempts)


ENDS = {What.DONE: Outcome.DONE, What.REFUSED: Outcome.REFUSED, What.KILLED: Outcome.KILLED}


class Recorder:
    """Takes the events as they come and keeps the timeline."""

    def __init__(self, started: float) -> None:
        self.timeline = Timeline()
        self._started = started
        self._attempting: dict[str, Event] = {}
        self._starting: dict[str, float] = {}

    def hear(self, event: Event) -> None:
        """Add an event."""
        at, who, timeline = event.at - self._started, event.who, self.timeline
        timeline.end = max(timeline.end, at)
        if event.what is What.STARTING:
            self._starting[who] = at
            if who.startswith("worker") and who not in timeline.workers:
                timeline.workers.append(who)
        elif event.what is What.READY:
            timeline.starts.append((who, self._starting.pop(who), at))
        elif event.what is What.AUDIT:
            timeline.audits.append(replace(event, at=at))
        elif event.what is What.NOTE and event.note == "attempt":
            self._end(event, Outcome.RETRIED)
            self._attempting[who] = event
        elif event.what in ENDS:
            self._end(event, Outcome.FOUND if event.was_done_before else ENDS[event.what])

    def _end(self, event: Event, outcome: Outcome) -> None:
        begun = self._attempting.pop(event.who, None)
        if begun is not None:
            start, end = begun.at - self._started, event.at - self._started
            attempt = Attempt(event.who, event.step, start, end, outcome, event.rebased, event.version, event.note)
            self.timeline.attempts.append(attempt)

    def finished(self) -> Timeline:
        """The timeline, when no more comes: who was still being started was so until the end."""
        self.timeline.starts += [(who, since, self.timeline.end) for who, since in self._starting.items()]
        self._starting.clear()
        return self.timeline

    def seconds(self, event: Event) -> float:
        """When it was, since the start."""
        return event.at - self._started


def by_kind(attempts: Iterable[Attempt]) -> dict[Kind, list[Attempt]]:
    """The attempts that published something, by what they did."""
    published = [attempt for attempt in attempts if attempt.is_published]
    return {kind: [attempt for attempt in published if attempt.kind is kind] for kind in Kind}
