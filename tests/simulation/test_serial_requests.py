"""Serial requests of a commit on an object store, counted in virtual time: each request takes as long."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from conroi.testing.simulation.world import Process, World
from conroi.transaction import Transaction

ROWS = pa.schema([("n", pa.int64())])
Work = Callable[[Transaction], object]


REQUEST_S = 0.01
"""Short, so that no request is made only because a look is old."""


class Constant:
    """The latency of each request."""

    def expovariate(self, _: float) -> float:
        return REQUEST_S


def append(table: str, tx: Transaction) -> None:
    tx[table].append(pa.table({"n": [1]}, schema=ROWS))


def serial_requests(mine: Work, others: Work | None, times: int = 1) -> int:
    """Of a commit, if another client commits as often as that between its beginning and its end."""
    took = list[float]()

    def script(process: Process) -> None:
        lake, other = process.connect(), process.connect()
        with lake.begin() as first:  # what is looked up once by each connection
            mine(first)
        process.sleep(0.5)
        tx = lake.begin()
        mine(tx)
        for _ in range(times if others is not None else 0):
            with other.begin() as before:
                assert others is not None
                others(before)
        process.sleep(0.5)  # background requests end
        began = process.world.scheduler.now
        tx.commit()
        took.append(process.world.scheduler.now - began)

    run(script)
    return round(took[0] / REQUEST_S)


def run(script: Callable[[Process], None]) -> None:
    def set_up(process: Process) -> None:
        with process.connect().begin("set up") as tx:
            for name in ("a", "b"):
                tx.create_table(name, ROWS)

    with World(1) as world:
        world.run({"set-up": set_up}, with_faults=False)
        latency: Any = Constant()
        world._latency = latency  # pyright: ignore[reportPrivateUsage]
        world.run({"client": script}, with_faults=False)


def test_a_commit_without_a_race_takes_two_serial_requests() -> None:
    assert serial_requests(partial(append, "a"), None) == 2


@pytest.mark.contract("P4")
@pytest.mark.parametrize("others", [partial(append, "a"), partial(append, "b")], ids=["same table", "other table"])
def test_a_lost_race_costs_at_most_four_serial_requests(others: Work) -> None:
    assert 2 < serial_requests(partial(append, "a"), others) <= 2 + 4


def test_control_several_lost_commits_cost_more_than_none() -> None:
    assert serial_requests(partial(append, "a"), partial(append, "b"), times=6) > 4
