"""Random transactions over many tables against a plain dictionary, with others committing in between."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import conroi
from conroi.testing import connect_through
from tests.support.arrow import column_values
from tests.support.instruments import CloudLike

NAMES = ["a", "b", "c", "ns.d"]
Model = dict[str, set[int]]


class Client:
    """One transaction after the other; each step happens to the transaction and to a copy of what it began with."""

    def __init__(self, uri: str, chance: random.Random, *, is_cloud: bool) -> None:
        self.lake = connect_through(uri, CloudLike) if is_cloud else conroi.connect(uri)
        self.chance = chance
        self.begin()

    def begin(self) -> None:
        self.tx: Any = self.lake.begin(isolation=self.chance.choice(["snapshot", "serializable"]))
        base = self.lake.at(version=self.tx.base_version)
        self.model: Model = {name: rows_of(base[name]) for name in base.tables()}
        self.steps = 0

    def step(self, number: int) -> None:
        """One statement, chosen by chance among those that can be done."""
        self.steps += 1
        there, free = sorted(self.model), [name for name in NAMES if name not in self.model]
        choices = (["create"] if free else []) + (["append", "delete", "drop"] if there else [])
        choices += ["rename"] if there and free else []
        verb = self.chance.choice([*choices, *(["append"] * 3 if there else [])])
        if verb == "create":
            name = self.chance.choice(free)
            self.tx.create_table(name, [{"id": number}], key="id")
            self.model[name] = {number}
            return
        name = self.chance.choice(there)
        if verb == "append":
            self.tx[name].append([{"id": number}])
            self.model[name] = self.model[name] | {number}
        elif verb == "delete":
            self.tx[name].delete("id % 3 = 0")
            self.model[name] = {i for i in self.model[name] if i % 3}
        elif verb == "drop":
            self.tx.drop_table(name)
            del self.model[name]
        else:
            new = self.chance.choice(free)
            self.tx.rename_table(name, new)
            self.model[new] = self.model.pop(name)

    def check_own_view(self) -> None:
        assert self.tx.tables() == sorted(self.model)
        for name, rows in self.model.items():
            assert rows_of(self.tx[name]) == rows


def rows_of(table: conroi.Table) -> set[int]:
    ids = column_values(table.to_arrow(columns=["id"])["id"])
    assert len(set(ids)) == len(ids), "a row is there twice"
    return set(ids)


def contents(lake: conroi.Lake) -> Model:
    return {name: rows_of(lake[name]) for name in lake.tables()}


def run(uri: str, seed: int, clients: int, steps: int, *, is_cloud: bool = False) -> tuple[int, int]:
    """How many transactions were committed and refused; every view that a transaction had is checked."""
    chance = random.Random(seed)
    everyone = [Client(uri, chance, is_cloud=is_cloud) for _ in range(clients)]
    committed = refused = 0
    for number in range(steps):
        client = chance.choice(everyone)
        if client.steps < chance.randrange(1, 6):
            client.step(number)
            continue
        client.check_own_view()
        before = contents(client.lake)
        try:
            client.tx.commit()
        except (conroi.ConflictError, conroi.AlreadyExistsError):
            assert contents(conroi.connect(uri)) == before, "a transaction that was refused left something"
            refused += 1
        else:
            if clients == 1:
                assert contents(conroi.connect(uri)) == client.model
            committed += 1
        client.begin()
    return committed, refused


@pytest.mark.contract("W6", "W8", "W12")
@pytest.mark.parametrize("seed", range(4))
def test_one_client_finds_what_it_did(tmp_path: Path, seed: int):
    committed, refused = run(str(tmp_path), seed, clients=1, steps=60)
    assert committed > 5
    assert not refused


@pytest.mark.contract("W1", "W6", "W8")
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "far away"])
@pytest.mark.parametrize("seed", range(3))
def test_several_clients_each_see_one_snapshot_and_their_own_work(tmp_path: Path, seed: int, is_cloud: bool):
    committed, refused = run(str(tmp_path), seed, clients=3, steps=60, is_cloud=is_cloud)
    assert committed > 3
    assert refused > 0


@pytest.mark.soak
@pytest.mark.contract("W1", "W6", "W8", "W12")
@pytest.mark.parametrize("clients", [1, 3])
def test_many_random_transactions(tmp_path_factory: pytest.TempPathFactory, clients: int):
    for seed in range(1000, 1100):
        run(str(tmp_path_factory.mktemp("lake")), seed, clients, steps=120, is_cloud=seed % 2 == 0)
