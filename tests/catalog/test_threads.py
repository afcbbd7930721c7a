"""Many threads of one process, and several clients, publish to one lake at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import conroi
from tests.support.cloud_servers import BucketServer
from tests.support.lakes import cloud, lake_with, rows, rows_by_path, settle

THREADS = 4
ROUNDS = 5
OPEN: dict[str, Callable[[str], conroi.Lake]] = {"local": conroi.connect, "cloud": cloud}


def publish(lake: conroi.Lake, number: int) -> None:
    """To a table of its own, and to one that all share."""
    for n in range(ROUNDS):
        with lake.begin() as tx:
            tx[f"own{number}"].append([{"n": n}])
            tx["shared"].append([{"n": 100 * number + n}])


def expected() -> list[int]:
    return sorted([0, *(100 * number + n for number in range(THREADS) for n in range(ROUNDS))])


@pytest.mark.contract("P5", "W4")
@pytest.mark.parametrize("clients", [1, THREADS], ids=["one client", "a client each"])
@pytest.mark.parametrize("kind", OPEN)
def test_threads_lose_nothing(kind: str, clients: int, tmp_path: Path) -> None:
    made = lake_with(tmp_path / "lake", "shared", *(f"own{number}" for number in range(THREADS)))
    lakes = [OPEN[kind](made.uri) for _ in range(clients)]
    before = len(made.history())
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: publish(lakes[number % clients], number), range(THREADS)))
    for lake in lakes:
        settle(lake)
    fresh = conroi.connect(made.uri)
    assert len(fresh.history()) == before + THREADS * ROUNDS, "one commit each"
    assert rows(fresh["shared"]) == rows_by_path(fresh["shared"].uri) == expected()
    for number in range(THREADS):
        assert rows(fresh[f"own{number}"]) == sorted([0, *range(ROUNDS)])
        assert fresh[f"own{number}"].version == 1 + ROUNDS


@pytest.mark.contract("P5", "W4")
def test_clients_of_an_object_store_lose_nothing(bucket_of_the_day: BucketServer) -> None:
    uri = bucket_of_the_day.new_uri("lake")
    lakes = [conroi.connect(uri, storage_options=bucket_of_the_day.options) for _ in range(THREADS)]
    with lakes[0].begin() as tx:
        for name in ("shared", *(f"own{number}" for number in range(THREADS))):
            tx.create_table(name, [{"n": 0}])
    before = lakes[0].version
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: publish(lakes[number], number), range(THREADS)))
    for lake in lakes:
        settle(lake)
    assert lakes[0].version == before + THREADS * ROUNDS
    assert all(rows(lake["shared"]) == expected() for lake in lakes)
