"""Fairness of the real commit loop, in virtual time: equal writers get equal shares, and no writer starves.

The table's loop and the lake's are driven through the public verbs; only the clock and the storage's latency are ours.
"""

from __future__ import annotations

import importlib
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable

import pyarrow as pa
import pytest

import conroi
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.testing import connect_through
from tests.support.instruments import CloudLike, table_on
from tests.support.schedule import Schedule, ScheduledEnvironment, ScheduledObjects, scheduled

WRITERS = "abcdef"
WARM_UP = 0.3
"""The part of the time in which writers learn of each other; commits in it are not counted."""
REQUEST_S = {"near": 0.0005, "far": 0.01}
ROWS = pa.table({"id": [1, 2, 3]})
pytestmark = pytest.mark.contract("T4")

Writer = Callable[[], None]
"""Commits again and again, until its time is over."""


class Race:
    """Writers of one place, each with handles of its own, as in processes."""

    def __init__(self, distance: str, seed: int, *, seconds: float) -> None:
        self.distance = distance
        self.seed = seed
        self.schedule = Schedule(seed, seconds=seconds)
        self._seconds = seconds
        self.commits = Counter[str]()
        self.all_commits = Counter[str]()
        self.longest_wait_s = defaultdict[str, float](float)

    def environment(self, name: str) -> ScheduledEnvironment:
        return ScheduledEnvironment(self.schedule, self.seed * 100 + ord(name))

    def objects(self, inner: Objects, name: str, slowness: float = 1.0) -> Objects:
        chance = random.Random(self.seed * 1000 + ord(name))
        latency_s = REQUEST_S[self.distance] * slowness
        near = inner if self.distance == "near" else CloudLike(inner)
        return ScheduledObjects(near, self.schedule, lambda: latency_s * chance.uniform(0.9, 1.1))

    def run(self, writers: dict[str, Writer]) -> None:
        with scheduled(self.schedule):
            self.schedule.run(writers)

    def repeat(self, name: str, commit: Callable[[int], object]) -> Writer:
        def work() -> None:
            number = 0
            while True:
                started = self.schedule.now
                commit(number)
                self.all_commits[name] += 1
                if started >= WARM_UP * self._seconds:
                    self.commits[name] += 1
                self.longest_wait_s[name] = max(self.longest_wait_s[name], self.schedule.now - started)
                number += 1

        return work


def table_race(race: Race, slowness: dict[str, float] | None = None) -> Race:
    """Each writer sets a setting of its own: no two commits conflict, all of them compete for the next version."""
    inner = open_objects(f"memory://{uuid.uuid4().hex}")
    conroi.create_table(inner.root, ROWS)
    tables = {
        name: table_on(
            race.objects(open_objects(inner.root), name, (slowness or {}).get(name, 1.0)),
            environment=race.environment(name),
        )
        for name in WRITERS
    }
    writers = {
        name: race.repeat(name, lambda number, name=name: tables[name].set_config({name: str(number)}, retries=200))
        for name in WRITERS
    }
    race.run(writers)
    assert conroi.open_table(inner.root).version == 1 + sum(race.all_commits.values()) + _unacknowledged(
        inner.root, race
    )
    return race


def _unacknowledged(root: str, race: Race) -> int:
    """Commits that landed while their writer's time was over."""
    config = conroi.open_table(root).config
    return sum(int(config[name]) + 1 - race.all_commits[name] for name in WRITERS if name in config)


def lake_race(race: Race, slowness: dict[str, float] | None = None) -> Race:
    """Each writer changes two tables in one transaction."""
    root = f"memory://{uuid.uuid4().hex}"
    with conroi.connect(root).begin() as tx:
        tx.create_table("orders", ROWS)
        tx.create_table("items", ROWS)
    lakes = {
        name: connect_through(
            root,
            lambda inner, name=name: race.objects(inner, name, (slowness or {}).get(name, 1.0)),
            environment=race.environment(name),
        )
        for name in WRITERS
    }

    def commit(name: str, number: int) -> None:
        with lakes[name].begin(retries=200, timeout=1e6) as tx:
            tx["orders"].set_config({name: str(number)})
            tx["items"].set_config({name: str(number)})

    race.run({name: race.repeat(name, lambda number, name=name: commit(name, number)) for name in WRITERS})
    lake = conroi.connect(root)
    assert lake["orders"].config == lake["items"].config
    return race


RACES = {"table": table_race, "lake": lake_race}
SECONDS = {("table", "near"): 0.6, ("table", "far"): 6.0, ("lake", "near"): 0.6, ("lake", "far"): 5.0}
"""Virtual ones."""


def run(kind: str, distance: str, *, slow: dict[str, float] | None = None, seconds: float | None = None) -> Race:
    return RACES[kind](Race(distance, seed=1, seconds=seconds or SECONDS[kind, distance]), slow)


def shares(race: Race) -> list[int]:
    return sorted(race.commits[name] for name in WRITERS)


@pytest.mark.parametrize(("kind", "distance"), SECONDS)
def test_equal_writers_get_equal_shares(kind: str, distance: str) -> None:
    found = shares(run(kind, distance))
    assert found[0] >= 3
    assert found[0] >= found[-1] / 3


def test_control_without_a_look_for_those_that_wait_the_fastest_wins_every_race(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = importlib.import_module("conroi.commit.fairness").Turns
    for name in ("is_contended", "is_look_due"):
        monkeypatch.setattr(turns, name, lambda *_, **__: False)  # pyright: ignore[reportUnknownLambdaType]
    found = shares(run("lake", "far", seconds=3.0))
    assert found[0] < found[-1] / 3


@pytest.mark.parametrize("kind", RACES)
def test_a_writer_on_a_slow_connection_does_not_starve(kind: str) -> None:
    """Its requests take ten times as long as those of five writers that never pause."""
    race = run(kind, "far", slow={"a": 10.0}, seconds=15.0)
    assert race.all_commits["a"] >= 1
    assert min(race.commits[name] for name in WRITERS if name != "a") >= 3


def test_a_seed_gives_the_same_race_each_time() -> None:
    first, second = (run("table", "far", seconds=2.0).all_commits for _ in range(2))
    assert first == second
