"""Processes that run histories; one that dies is replaced, and its history counts as a difference."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait

from tests.branches.histories.running import Outcome, random_history

RENEWED = 200
"""After so many histories a process makes room for another."""


def _work(pipe: Connection, seeds: list[int], steps: int, deep_every: int, without: tuple[str, ...]) -> None:
    for seed in seeds:
        pipe.send(seed)
        pipe.send(random_history(seed, steps, deep=seed % deep_every == 0, without=without))
    pipe.close()


class Crew:
    """Processes that run histories; one that dies is replaced, and its history counts as a difference."""

    def __init__(self, seeds: range, steps: int, *, jobs: int, deep_every: int, without: tuple[str, ...] = ()) -> None:
        self._left, self._steps, self._jobs, self._deep_every = list(seeds), steps, jobs, deep_every
        self._without = without
        self._context = multiprocessing.get_context("spawn")

    def run(self) -> Iterator[Outcome]:
        running = dict[Connection, tuple[list[int], int | None]]()
        while self._left or running:
            while self._left and len(running) < self._jobs:
                seeds, self._left = self._left[:RENEWED], self._left[RENEWED:]
                running[self._start(seeds)] = (seeds, None)
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)
                seeds, current = running[pipe]
                try:
                    got = pipe.recv()
                except EOFError:
                    del running[pipe]
                    if current is not None:
                        outcome = Outcome(current)
                        outcome.problem = "the process died"
                        self._left = [seed for seed in seeds if seed > current] + self._left
                        yield outcome
                    continue
                if isinstance(got, int):
                    running[pipe] = (seeds, got)
                else:
                    running[pipe] = (seeds, None)
                    yield got

    def _start(self, seeds: list[int]) -> Connection:
        ours, theirs = self._context.Pipe(duplex=False)
        self._context.Process(
            target=_work, args=(theirs, seeds, self._steps, self._deep_every, self._without), daemon=True
        ).start()
        theirs.close()
        return ours
