"""A seeded world repeats itself, in virtual time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from conroi.environment import Environment
from conroi.storage import open_objects
from conroi.testing import SeededEnvironment, SlowObjects


def life(world: Environment) -> list[object]:
    world.sleep(world.uniform(0.5, 1.5))
    return [world.now_ns(), world.monotonic(), world.random_u64(), world.new_uuid(), world.uniform(0, 1)]


def test_one_seed_is_one_world() -> None:
    assert life(SeededEnvironment(3)) == life(SeededEnvironment(3))
    assert life(SeededEnvironment(3)) != life(SeededEnvironment(4))


def test_time_passes_only_in_sleep_and_costs_none() -> None:
    world, started = SeededEnvironment(1), time.monotonic()
    before = world.now_ns()
    assert world.now_ns() == before
    world.sleep(3600.5)
    assert world.now_ns() - before == 3_600_500_000_000
    assert world.monotonic() == 3600.5
    assert world.sleeps == [3600.5]
    assert time.monotonic() - started < 60


def test_ids_and_draws_are_what_they_should_be() -> None:
    world = SeededEnvironment(1)
    ids = {world.new_uuid() for _ in range(1000)}
    assert len(ids) == 1000
    assert {one.version for one in ids} == {4}
    assert all(0 <= world.random_u64() < 1 << 64 for _ in range(1000))
    assert max(world.random_u64() for _ in range(1000)) > 1 << 63
    assert all(2 <= world.uniform(2, 5) <= 5 for _ in range(1000))
    with pytest.raises(ValueError, match="sleep"):
        world.sleep(-1)


def test_a_slow_store_waits_before_each_request(tmp_path: Path) -> None:
    world = SeededEnvironment(1)
    slow = SlowObjects(open_objects(tmp_path / "t"), 0.1, environment=world)
    slow.put("a", b"x")
    slow.get("a")
    list(slow.list(""))
    assert world.sleeps == [0.1, 0.1, 0.1]


def test_a_slow_store_can_be_slow_for_some(tmp_path: Path) -> None:
    world = SeededEnvironment(1)
    slow = SlowObjects(
        open_objects(tmp_path / "t"), lambda request: 2.0 if request.verb == "put" else 0.0, environment=world
    )
    slow.put("a", b"x")
    slow.get("a")
    assert world.monotonic() == 2.0
