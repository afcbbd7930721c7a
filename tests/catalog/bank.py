"""Processes that move money between accounts in three tables, some of them killed, and auditors that read all along."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

import pyarrow.compute as pc

import conroi
from conroi.lake_snapshot import LakeReader
from conroi.reader import Reader
from conroi.transaction import Isolation
from conroi.writer import Writer
from tests.support.processes import fork_context

BRANCHES = ("north", "south", "west")
ACCOUNTS = 12
"""In each branch."""
MONEY = 100
TOTAL = len(BRANCHES) * ACCOUNTS * MONEY
PATIENCE_S = 600.0
LOOK_AGAIN_S = 0.01
"""So long an auditor who has seen the newest version waits for the next one."""


@dataclass(frozen=True)
class Teller:
    """Who moves money, in plain values."""

    uri: str
    seed: int
    moves: int
    isolation: Isolation = "snapshot"
    is_atomic: bool = True
    store: str | None = None
    """The address of the database that has the lake's history."""


class How(TypedDict, total=False):
    """How tellers work."""

    isolation: Isolation
    is_atomic: bool
    store: str | None


def new_bank(uri: str, store: str | None = None) -> conroi.Lake:
    lake = conroi.connect(uri, store=store)
    with lake.begin("open") as tx:
        for branch in BRANCHES:
            tx.create_table(branch, [{"id": n, "money": MONEY} for n in range(ACCOUNTS)], key="id")
    return lake


def money(table: Reader, account: int) -> int:
    return table.to_arrow(["money"], filter=f"id = {account}")["money"][0].as_py()


def pay(table: Writer, account: int, amount: int) -> None:
    table.update({"money": f"money + {amount}"}, where=f"id = {account}")


def move(teller: Teller) -> None:
    """Move money so many times."""
    chance = random.Random(teller.seed)
    lake = conroi.connect(teller.uri, store=teller.store)
    for _ in range(teller.moves):
        giver, taker = chance.sample([(b, n) for b in BRANCHES for n in range(ACCOUNTS)], 2)
        transfer = Transfer(giver, taker, chance.randint(1, 30))
        try:
            if teller.is_atomic:
                lake.run(transfer, isolation=teller.isolation, retries=1000)
            else:
                pay(lake[giver[0]], giver[1], -transfer.amount)
                pay(lake[taker[0]], taker[1], transfer.amount)
        except conroi.TooMuchContention:
            continue
    os._exit(0)


@dataclass(frozen=True)
class Transfer:
    """From one account to another, if there is enough."""

    giver: tuple[str, int]
    taker: tuple[str, int]
    amount: int

    def __call__(self, tx: conroi.Transaction) -> None:
        if money(tx[self.giver[0]], self.giver[1]) >= self.amount:
            pay(tx[self.giver[0]], self.giver[1], -self.amount)
            pay(tx[self.taker[0]], self.taker[1], self.amount)


def total(lake: LakeReader) -> int:
    """All money of the bank at a version of the lake; no balance is negative."""
    tables = [lake[branch].to_arrow() for branch in BRANCHES]
    assert all(len(table) == ACCOUNTS for table in tables)
    assert all(pc.min(table["money"]).as_py() >= 0 for table in tables), "an account was overdrawn"
    return sum(pc.sum(table["money"]).as_py() for table in tables)


def _closed(uri: str) -> Path:
    return Path(f"{uri}-is-closed")


class _Answers(Protocol):
    def put(self, answer: dict[int, int | str], /) -> None: ...


def audit(uri: str, answers: _Answers, store: str | None = None) -> None:
    """Until the bank closes: what was found at each version of the lake that was looked at."""
    found: dict[int, int | str] = {}
    lake = conroi.connect(uri, store=store)
    while not _closed(uri).exists():
        at = lake.at(lake.version)
        if at.version in found:
            time.sleep(LOOK_AGAIN_S)
            continue
        try:
            found[at.version] = total(at)
        except AssertionError as error:
            found[at.version] = str(error)
    answers.put(found)


@dataclass(frozen=True)
class Day:
    """What a day at the bank came to."""

    versions: int
    kills: int
    audits: Sequence[dict[int, int | str]]
    """Of each auditor, by version of the lake."""

    @property
    def wrong(self) -> dict[int, int | str]:
        return {version: said for each in self.audits for version, said in each.items() if said != TOTAL}


def day(
    uri: str, *, moves: int, seed: int, tellers: int = 8, kills: int = 4, kill_within_s: float = 0.3, **how: Unpack[How]
) -> Day:
    """Let them work, kill one after the other and send others in their place."""
    lake = new_bank(uri, how.get("store"))
    first, chance = lake.version, random.Random(seed)
    forks = fork_context()
    answers = forks.Queue()
    boss = Teller(uri, seed, moves, **how)
    auditors = [forks.Process(target=audit, args=(uri, answers, boss.store)) for _ in range(2)]
    working = [_start(forks, replace(boss, seed=seed + number)) for number in range(tellers)]
    for auditor in auditors:
        auditor.start()
    for number in range(kills):
        victim = chance.randrange(tellers)
        working[victim].join(chance.uniform(0.05, kill_within_s))
        working[victim].kill()
        working[victim].join(PATIENCE_S)
        working[victim] = _start(forks, replace(boss, seed=seed + 1000 + number))
    for process in working:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    _closed(uri).touch()
    audits = [answers.get(timeout=PATIENCE_S) for _ in auditors]
    for auditor in auditors:
        auditor.join(PATIENCE_S)
    return Day(lake.version - first, kills, audits)


def _start(forks: ForkServerContext, teller: Teller) -> ForkServerProcess:
    process = forks.Process(target=move, args=(teller,))
    process.start()
    return process
