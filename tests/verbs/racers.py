"""What the processes do that race for the same new keys."""

from __future__ import annotations

from dataclasses import dataclass

import lance
import pyarrow as pa

import conroi
from conroi.testing import FaultyObjects, call_before
from conroi.verbs.key_check import KeyGuard
from tests.support.instruments import table_on
from tests.support.together import Meet

PROCESSES = 8


@dataclass(frozen=True)
class Racer:
    """One process: in each round it offers the same new keys as all others."""

    root: str
    number: int
    rounds: int
    keys_per_round: int
    verb: str
    has_guard: bool = True
    is_pylance: bool = False

    def offer(self, round_: int) -> pa.Table:
        first = 1000 * (round_ + 1)
        keys = range(first, first + self.keys_per_round)
        return pa.table({"id": keys, "n": [1] * len(keys), "by": [self.number] * len(keys)})


@dataclass
class Told:
    """What a process was told that it did."""

    inserted: int = 0
    updated: int = 0
    refused: int = 0


def race(racer: Racer, meet: Meet) -> Told:
    """All do their work on the same version: no process commits before all have done it once."""
    if not racer.has_guard:
        KeyGuard.__call__ = lambda *_: None  # type: ignore[method-assign]
    told = Told()
    for round_ in range(racer.rounds):
        meet()
        (_pylance if racer.is_pylance else _conroi)(racer, round_, meet, told)
    return told


def _conroi(racer: Racer, round_: int, meet: Meet, told: Told) -> None:
    at_once = call_before(lambda _: meet(), "put", "_transactions/*")
    table = table_on(FaultyObjects(conroi.open_table(racer.root)._files.objects, [at_once]))
    merge = table.merge(racer.offer(round_), on="id")
    if racer.verb == "append":
        try:
            table.append(racer.offer(round_), retries=100)
            told.inserted += racer.keys_per_round
        except conroi.DuplicateKeyError:
            told.refused += racer.keys_per_round
        return
    if racer.verb == "add up":
        merge = merge.when_matched_update({"n": "target.n + source.n"})
    elif racer.verb == "upsert":
        merge = merge.when_matched_update_all()
    done = merge.when_not_matched_insert_all().execute(retries=100)
    told.inserted += done.rows_inserted
    told.updated += done.rows_updated


def _pylance(racer: Racer, round_: int, meet: Meet, told: Told) -> None:
    dataset = lance.dataset(racer.root)
    rows = racer.offer(round_).cast(dataset.schema)
    meet()
    while True:
        merge = dataset.merge_insert("id").when_not_matched_insert_all()
        if racer.verb == "upsert":
            merge = merge.when_matched_update_all()
        try:
            done = merge.conflict_retries(0).execute(rows)
        except OSError:  # a conflict, and nothing was done
            dataset = lance.dataset(racer.root)
            continue
        told.inserted += done["num_inserted_rows"]
        told.updated += done["num_updated_rows"]
        return
