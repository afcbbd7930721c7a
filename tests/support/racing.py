"""Many processes that try to create the same names at the same moments, and the record of who succeeded."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Protocol

from conroi.errors import StoreUnavailable
from conroi.format.naming import ManifestNaming
from conroi.locks.file import FileLock
from conroi.storage import open_objects
from conroi.storage.objects import ObjectExists, Objects
from conroi.stores import dynamodb_lock, postgres_lock
from conroi.testing import FaultyObjects, call_before
from conroi.versions.folder import ConditionalPut, LockedPut, PutNew, RenameIfAbsent
from tests.support.databases import aws_environment
from tests.support.processes import fork_context

PROCESSES = 8
PATIENCE_S = 120.0


class Answers(Protocol):
    """The part of a queue that a contestant needs."""

    def put(self, answer: tuple[int, list[int], str | None], /) -> None: ...


@dataclass(frozen=True)
class Race:
    """Where and how the processes race; plain values, because each process builds its own store from them."""

    uri: str
    putter: str
    options: Mapping[str, str] = field(default_factory=dict)
    lock_file: str = ""
    lock_address: str = ""
    rounds: int = 40
    lanes: int = 1
    """How many names each process tries for at once, each in a thread of its own."""
    is_failure_fine: bool = False
    """Whether a request that the server fails counts as lost, instead of ending the race."""

    def objects(self) -> Objects:
        return open_objects(self.uri, self.options)

    def make_putter(self) -> PutNew:
        if self.putter == "conditional":
            return ConditionalPut()
        if self.putter == "rename":
            return RenameIfAbsent()
        if self.putter == "locked":
            return LockedPut(FileLock(self.lock_file, timeout_s=PATIENCE_S))
        if self.putter == "postgres lock":
            return LockedPut(postgres_lock(self.lock_address, "race", timeout_s=PATIENCE_S))
        if self.putter == "dynamodb lock":
            os.environ.update(aws_environment())
            return LockedPut(dynamodb_lock(self.lock_address, self.uri, timeout_s=PATIENCE_S, lease_s=60))
        assert self.putter == "lock that locks nothing", self.putter
        return LockedPut(lambda _version: contextlib.nullcontext())


def path_of(number: int) -> str:
    """What is raced for in a round."""
    return ManifestNaming.V2.path(number + 1)


def bytes_of(contestant: int, number: int) -> bytes:
    """What a contestant writes in a round: bytes of its own, and too many to be written by chance at once."""
    return b"contestant %d in round %d\n" % (contestant, number) * 300


def run_race(race: Race) -> list[list[int]]:
    """The winners of each round, in the order of the rounds."""
    context = fork_context()
    barrier, answers = context.Barrier(PROCESSES), context.Queue()
    contestants = [
        context.Process(target=_compete, args=(race, number, barrier, answers)) for number in range(PROCESSES)
    ]
    for process in contestants:
        process.start()
    won: dict[int, list[int]] = {}
    try:
        for _ in contestants:
            number, won[number], failure = answers.get(timeout=PATIENCE_S + race.rounds)  # a second a round is plenty
            assert failure is None, failure
    finally:
        for process in contestants:
            process.kill() if len(won) < PROCESSES else process.join(PATIENCE_S)
    return [[number for number in sorted(won) if round_ in won[number]] for round_ in range(race.rounds)]


def assert_one_winner_each(race: Race, winners: Sequence[Sequence[int]]) -> None:
    """In every round one contestant succeeded, and what is stored is what it wrote."""
    assert [len(of_round) for of_round in winners] == [1] * race.rounds
    objects = race.objects()
    for number, (winner,) in enumerate(winners):
        assert objects.get(path_of(number)) == bytes_of(winner, number)


def _compete(race: Race, contestant: int, barrier: Barrier, answers: Answers) -> None:
    try:
        answers.put((contestant, _rounds_won(race, contestant, barrier), None))
    except BrokenBarrierError:
        answers.put((contestant, [], None))  # the process that broke it says why
    except BaseException:
        answers.put((contestant, [], traceback.format_exc()))
        barrier.abort()
        raise


def _rounds_won(race: Race, contestant: int, barrier: Barrier) -> list[int]:
    putter, objects = race.make_putter(), race.objects()
    if race.putter == "lock that locks nothing":
        # All look before anyone writes: the one interleaving that a lock is there to prevent.
        objects = FaultyObjects(objects, [call_before(lambda _: _wait(barrier), "put", times=None)])

    def wins(number: int) -> bool:
        try:
            putter.put_new(objects, path_of(number), bytes_of(contestant, number))
        except ObjectExists:
            return False
        except StoreUnavailable:
            if not race.is_failure_fine:
                raise
            return False
        return True

    won: list[int] = []
    with ThreadPoolExecutor(race.lanes) as lanes:
        for first in range(0, race.rounds, race.lanes):
            numbers = range(first, min(first + race.lanes, race.rounds))
            _wait(barrier)
            won += [number for number, has_won in zip(numbers, lanes.map(wins, numbers), strict=True) if has_won]
    return won


def _wait(barrier: Barrier) -> None:
    barrier.wait(PATIENCE_S)
