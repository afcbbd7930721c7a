"""Processes that insert many keys, each of which is offered by two of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pyarrow as pa

import conroi
from tests.support.together import Meet

PROCESSES = 8


@dataclass(frozen=True)
class Inserter:
    """One process. Its keys follow from the seed, so that the test knows them too."""

    root: str
    number: int
    seed: int
    total: int
    batch: int

    def keys(self) -> list[int]:
        """Those that are this one's in rotation, and those that fall to it by chance, in an order of its own."""
        mine = [key for key, offering in enumerate(offered_by(self.seed, self.total)) if self.number in offering]
        random.Random(f"{self.seed} {self.number}").shuffle(mine)
        return mine


def offered_by(seed: int, total: int) -> list[tuple[int, int]]:
    """The two processes that offer each key."""
    chance = random.Random(seed)
    return [(key % PROCESSES, (key + chance.randrange(1, PROCESSES)) % PROCESSES) for key in range(total)]


def insert_all(inserter: Inserter, meet: Meet) -> tuple[int, int]:
    """How many rows it was told to have inserted, and in how many versions."""
    table, keys = conroi.open_table(inserter.root), inserter.keys()
    meet()
    inserted = versions = 0
    for start in range(0, len(keys), inserter.batch):
        part = keys[start : start + inserter.batch]
        rows = pa.table({"id": part, "by": [inserter.number] * len(part)})
        done = table.merge(rows, on="id").when_not_matched_insert_all().execute(retries=1000)
        table, before = done.table, table.version
        inserted += done.rows_inserted
        versions += table.version > before and done.rows_inserted > 0
        if inserter.number == 0 and start // inserter.batch % 8 == 7:
            table = table.compact(retries=1000)
    return inserted, versions
