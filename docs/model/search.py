"""Explicit-state model checking: breadth-first search over all states of a model, with the shortest story of a fault.

A model gives its first state, the steps from a state, and what is wrong with a state. A state is a tuple of tuples,
numbers and texts: equal states are one. The search visits every state that any order of steps can reach.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple):
    """One step from a state to another."""

    what: tuple[object, ...]
    """Who does what; joined with blanks in a story."""
    state: Hashable
    wrong: str = ""
    """The invariant that the step itself breaks."""


class Model(Protocol[S]):
    """What the search needs of a model."""

    def first(self) -> S: ...

    def steps(self, state: S) -> Iterable[Step]: ...

    def wrong(self, state: S) -> str:
        """The invariant that does not hold in this state; empty if all hold."""
        ...

    def is_final(self, state: S) -> bool:
        """Whether everybody who is alive has an answer, and nothing is left to do."""
        ...


@dataclass
class Found:
    """The result of a search."""

    states: int
    steps: int
    seconds: float
    is_complete: bool
    """Whether all states were visited."""
    wrong: str = ""
    """The broken invariant, or empty."""
    story: list[str] = field(default_factory=list[str])
    """The shortest sequence of steps to it."""

    def __str__(self) -> str:
        extent = "complete" if self.is_complete else "cut off"
        end = f"CAUGHT after {len(self.story)} steps: {self.wrong}" if self.wrong else extent
        return f"{self.states:>9,} states {self.steps:>10,} steps {self.seconds:6.1f} s  {end}"


STUCK = "stuck: from here not everybody can get an answer any more"


class Search:
    """One search; `most` states are visited at most."""

    def __init__(self, model: Model[S], *, most: int = 5_000_000) -> None:
        self._model = model
        self._most = most
        self._parents = array("l", [-1])
        self._whats: list[tuple[object, ...]] = [()]
        self._sources, self._targets = array("l"), array("l")
        self._order: list[Hashable] = [model.first()]

    def run(self, *, is_live: bool = True) -> Found:
        """Visit all states; `is_live`: besides, from each of them a final state must be reachable."""
        began = time.perf_counter()
        numbers = {self._order[0]: 0}
        at, broken = 0, None
        while at < len(self._order) and broken is None and len(self._order) < self._most:
            broken = self._expand(at, numbers)
            at += 1
        is_complete = broken is None and at == len(self._order)
        if is_complete and is_live:
            stuck = self._stuck()
            broken = None if stuck is None else (stuck, (), STUCK)
        found = Found(len(self._order), len(self._sources), time.perf_counter() - began, is_complete)
        if broken is not None:
            found.wrong, found.story = broken[2], self._story(broken[0], broken[1])
        return found

    def _expand(self, at: int, numbers: dict[Hashable, int]) -> tuple[int, tuple[object, ...], str] | None:
        for step in self._model.steps(self._order[at]):  # pyright: ignore[reportArgumentType]
            number = numbers.get(step.state)
            if number is None:
                number = numbers[step.state] = len(self._order)
                self._order.append(step.state)
                self._parents.append(at)
                self._whats.append(step.what)
                wrong = step.wrong or self._model.wrong(step.state)  # pyright: ignore[reportArgumentType]
            else:
                wrong = step.wrong
            self._sources.append(at)
            self._targets.append(number)
            if wrong:
                return at, step.what, wrong
        return None

    def _story(self, at: int, last: tuple[object, ...]) -> list[str]:
        steps = [last] if last else []
        while at > 0:
            steps.append(self._whats[at])
            at = self._parents[at]
        return [" ".join(map(str, step)) for step in reversed(steps)]

    def _stuck(self) -> int | None:
        """The first state from which no final state can be reached."""
        count = len(self._order)
        starts = array("l", bytes(8 * (count + 1)))
        for target in self._targets:
            starts[target + 1] += 1
        for number in range(count):
            starts[number + 1] += starts[number]
        into, filled = array("l", bytes(8 * len(self._sources))), array("l", starts)
        for source, target in zip(self._sources, self._targets, strict=True):
            into[filled[target]] = source
            filled[target] += 1
        is_fine = bytearray(count)
        todo = [n for n, state in enumerate(self._order) if self._model.is_final(state)]  # pyright: ignore[reportArgumentType]
        for number in todo:
            is_fine[number] = 1
        while todo:
            number = todo.pop()
            for source in into[starts[number] : starts[number + 1]]:
                if not is_fine[source]:
                    is_fine[source] = 1
                    todo.append(source)
        stuck = is_fine.find(0)
        return None if stuck < 0 else stuck
