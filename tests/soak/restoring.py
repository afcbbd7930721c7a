"""Processes that append, and others that take the table back to an earlier version; both kinds of library."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import lance
import pyarrow as pa

import conroi
from tests.soak.writers import ByConroi, ByPylance, Refused
from tests.support.together import Meet

SCHEMA = pa.schema([("id", pa.int64())])


@dataclass(frozen=True)
class Traveller:
    """One process: it appends, or it restores."""

    root: str
    number: int
    seed: int
    steps: int
    is_pylance: bool
    is_restoring: bool


@dataclass
class Diary:
    """What it was told: which version has which new rows, or is which older version again."""

    appended: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    restored: dict[int, int] = field(default_factory=dict[int, int])
    refused: int = 0


def travel(traveller: Traveller, meet: Meet) -> Diary:
    diary = Diary()
    chance = random.Random(f"{traveller.seed} {traveller.number}")
    meet()
    for step in range(traveller.steps):
        try:
            if traveller.is_restoring:
                _restore(traveller, chance, diary)
            else:
                ids = [traveller.number * 1_000_000 + step * 10 + more for more in range(chance.randint(1, 3))]
                hand = ByPylance(traveller.root) if traveller.is_pylance else ByConroi(traveller.root)
                diary.appended[hand.append(pa.table({"id": ids}, schema=SCHEMA))] = ids
        except Refused:
            diary.refused += 1
    return diary


def _restore(traveller: Traveller, chance: random.Random, diary: Diary) -> None:
    if traveller.is_pylance:
        newest = lance.dataset(traveller.root).latest_version
        back = chance.randint(max(1, newest - 6), newest)
        dataset = lance.dataset(traveller.root, version=back)
        try:
            dataset.restore()
        except OSError as error:
            raise Refused(str(error)) from error
        diary.restored[dataset.version] = back
        return
    table = conroi.open_table(traveller.root)
    back = chance.randint(max(1, table.version - 6), table.version)
    try:
        diary.restored[table.restore(back).version] = back
    except conroi.ConflictError as error:
        raise Refused(str(error)) from error
