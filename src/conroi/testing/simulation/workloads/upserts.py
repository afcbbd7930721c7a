"""Upserts: several changes of keyed rows in one transaction, whose own files get new numbers and are cached before."""

from __future__ import annotations

from conroi.errors import DuplicateKeyError
from conroi.lake import Lake
from conroi.testing.simulation.workloads.keyed import KEYS, Keyed
from conroi.testing.simulation.world import Process
from conroi.transaction import Transaction


class Upserts(Keyed):
    """See the module."""

    name = "upserts"
    may_raise = (DuplicateKeyError,)

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance = process.chance
        if chance.random() < 0.15:
            super().step(process, lake, number)
            return
        name = f"{process.client.name}-{number}"
        order = chance.sample(range(KEYS), KEYS)
        parts: list[list[int]] = []
        for _ in range(chance.randint(2, 3)):
            length = chance.randint(1, 2)
            parts.append(sorted(order[:length]))
            order = order[length:]
        self.keys_of[name] = {key for part in parts for key in part}
        self.leaves_its_name.add(name)

        def do(tx: Transaction) -> None:
            for part in parts:
                self._upsert(tx, part, name)

        self.transact(process, name, lambda: lake.run(do, retries=3))
        if chance.random() < 0.3:
            self._look(lake)
