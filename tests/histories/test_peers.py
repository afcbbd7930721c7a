"""The same checker on other systems: pylance in separate commits, and DuckLake, which offers snapshot isolation."""

from __future__ import annotations

import importlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import lance
import pyarrow as pa
import pytest

from conroi.testing.history import Append, Operation, Outcome, Read, Report, Transaction, check
from tests.histories.conftest import SEED
from tests.support.databases import PostgresServer, duckdb_extension

pytestmark = pytest.mark.contract("H1")

NAMES, NUMBERS, WRITERS = ("x", "y"), 2, 4
TURNS = int(os.environ.get("CONROI_PEER_TURNS", "15"))


class Client(Protocol):
    """One client of a system with two tables of registers."""

    @property
    def lost(self) -> tuple[type[Exception], ...]:
        """Errors after which it is not known whether the transaction was committed."""
        ...

    def begin(self) -> None: ...

    def read(self, name: str, number: int) -> list[int]: ...

    def write(self, name: str, number: int, elements: list[int]) -> None: ...

    def commit(self) -> None: ...

    def roll_back(self) -> None: ...


class ByPylance:
    """Two Lance tables, each table committed by itself: nothing holds them together."""

    lost = (OSError, RuntimeError)

    def __init__(self, folder: Path) -> None:
        self._paths = {name: str(folder / f"{name}.lance") for name in NAMES}

    def make(self) -> None:
        rows = pa.table({"reg": pa.array(range(NUMBERS), pa.int64()), "items": [""] * NUMBERS})
        for path in self._paths.values():
            lance.write_dataset(rows, path)

    def begin(self) -> None:
        """There is nothing to begin."""

    def read(self, name: str, number: int) -> list[int]:
        rows = lance.dataset(self._paths[name]).to_table(filter=f"reg = {number}").to_pylist()
        return [int(item) for row in rows for item in row["items"].split()]

    def write(self, name: str, number: int, elements: list[int]) -> None:
        items = " ".join(map(str, elements))
        lance.dataset(self._paths[name]).update({"items": f"'{items}'"}, where=f"reg = {number}")

    def commit(self) -> None:
        """Each table was committed by its update."""

    def roll_back(self) -> None:
        """What was committed stays."""


class ByDuckLake:
    """A transaction of DuckLake, with its catalog in PostgreSQL."""

    def __init__(self, folder: Path, catalog: str) -> None:
        duckdb = cast("Any", importlib.import_module("duckdb"))
        self.lost: tuple[type[Exception], ...] = ()
        self.refused: type[Exception] = duckdb.Error
        self._connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for name in ("postgres_scanner", "ducklake"):
            self._connection.execute(f"LOAD '{duckdb_extension(name)}'")
        self._connection.execute(f"ATTACH 'ducklake:postgres:{catalog}' AS lake (DATA_PATH '{folder}/data')")

    def make(self) -> None:
        for name in NAMES:
            self._connection.execute(f"CREATE TABLE lake.{name} (reg BIGINT, items VARCHAR)")
            for number in range(NUMBERS):
                self._connection.execute(f"INSERT INTO lake.{name} VALUES ({number}, '')")

    def begin(self) -> None:
        self._connection.execute("BEGIN")

    def read(self, name: str, number: int) -> list[int]:
        rows = self._connection.execute(f"SELECT items FROM lake.{name} WHERE reg = {number}").fetchall()
        return [int(item) for (items,) in rows for item in items.split()]

    def write(self, name: str, number: int, elements: list[int]) -> None:
        items = " ".join(map(str, elements))
        self._connection.execute(f"UPDATE lake.{name} SET items = '{items}' WHERE reg = {number}")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except self.refused:
            """The failed statement had rolled back."""


class Crew:
    """Threads that make random transactions, each by a client of its own, and write down what they saw."""

    def __init__(self, connect: Callable[[], Client], refused: tuple[type[Exception], ...] = ()) -> None:
        self._connect = connect
        self._refused = refused
        self.history: list[Transaction] = []
        self._lock = threading.Lock()

    def work(self, who: int) -> None:
        chance = random.Random(f"{SEED} {who}")
        client = self._connect()
        for turn in range(TURNS):
            self._transact(client, who, chance, turn)

    def _transact(self, client: Client, who: int, chance: random.Random, turn: int) -> None:
        number, done, invoked = chance.randrange(NUMBERS), list[Operation](), time.monotonic_ns()
        outcome: Outcome = "ok"
        try:
            client.begin()
            for name in chance.sample(NAMES, 2):
                seen = client.read(name, number)
                done.append(Read(f"{name}.{number}", tuple(seen)))
                if who > 0 and chance.random() < 0.6:  # 0 only reads
                    element = who * 1_000_000 + turn * 10 + NAMES.index(name)
                    done.append(Append(f"{name}.{number}", element))
                    client.write(name, number, [*seen, element])
            client.commit()
        except client.lost:
            outcome = "info"
        except self._refused:
            outcome = "fail"
            client.roll_back()
        with self._lock:
            self.history.append(Transaction(f"{who}/{turn}", done, outcome, invoked, time.monotonic_ns()))

    def run(self) -> list[Transaction]:
        threads = [threading.Thread(target=self.work, args=(who,)) for who in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.history.append(last(self._connect()))
        print(f"{len(self.history)} transactions: {dict(Counter(each.outcome for each in self.history))}")
        return self.history


def last(client: Client) -> Transaction:
    """A transaction that reads everything."""
    began = time.monotonic_ns()
    client.begin()
    reads = [Read(f"{name}.{number}", tuple(client.read(name, number))) for name in NAMES for number in range(NUMBERS)]
    client.commit()
    return Transaction("end", reads, "ok", began, time.monotonic_ns())


def shown(report: Report) -> set[str]:
    print(report.kinds)
    return set(report.kinds)


def test_pylance_in_separate_commits_is_found_to_be_no_transaction(tmp_path: Path) -> None:
    ByPylance(tmp_path).make()
    found = shown(check(Crew(lambda: ByPylance(tmp_path)).run(), "snapshot"))
    assert found & {"lost", "G-single", "incompatible"}


@pytest.fixture
def ducklake(tmp_path: Path, postgres: PostgresServer) -> Callable[[], ByDuckLake]:
    """A new lake, to which each call connects."""
    catalog = postgres.new_database()
    ByDuckLake(tmp_path, catalog).make()
    return lambda: ByDuckLake(tmp_path, catalog)


def test_write_skew_of_ducklake_is_found(ducklake: Callable[[], ByDuckLake]) -> None:
    """Each of two transactions reads the register that the other one writes; DuckLake commits both."""
    first, second = ducklake(), ducklake()
    history: list[Transaction] = []
    for client in (first, second):
        client.begin()
    seen = [Read("x.0", tuple(first.read("x", 0))), Read("y.0", tuple(second.read("y", 0)))]
    began = time.monotonic_ns()
    first.write("y", 0, [1])
    second.write("x", 0, [2])
    for client, read, append in ((first, seen[0], Append("y.0", 1)), (second, seen[1], Append("x.0", 2))):
        client.commit()
        history.append(Transaction(append.register, [read, append], "ok", began, time.monotonic_ns()))
    history.append(last(ducklake()))
    assert shown(check(history, "serializable")) == {"G2"}
    assert shown(check(history, "snapshot")) == set()


def test_ducklake_is_as_isolated_as_it_says(ducklake: Callable[[], ByDuckLake]) -> None:
    """Random transactions of concurrent clients have no anomaly that snapshot isolation does not permit."""
    refused = (ducklake().refused,)
    history = Crew(ducklake, refused).run()
    assert sum(each.outcome == "ok" for each in history) > TURNS
    shown(check(history, "serializable"))
    assert shown(check(history, "snapshot")) == set()
