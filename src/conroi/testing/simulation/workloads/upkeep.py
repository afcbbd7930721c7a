"""Upkeep: transfers by slow writers beside compaction, expiry and garbage collection by two clients at once.

Time passes by minutes and hours: versions expire while transactions are open, writers stand still between their files
and their put, readers go back to older versions, which must be whole or gone, never wrong.
"""

from __future__ import annotations

from conroi.errors import VersionExpired
from conroi.lake import Lake
from conroi.testing.simulation.workloads.bank import Bank
from conroi.testing.simulation.workloads.base import EXPECTED
from conroi.testing.simulation.world import Process, Script
from conroi.transaction import Transaction


class Upkeep(Bank):
    """See the module."""

    name = "upkeep"
    upkeep_actions = ("compact", "expire", "gc", "gc")

    def scripts(self) -> dict[str, Script]:
        found: dict[str, Script] = {f"writer{number}": self.work for number in range(max(2, self.clients - 1))}
        return found | {"upkeep0": self.keep_up, "upkeep1": self.keep_up}

    def step(self, process: Process, lake: Lake, number: int) -> None:
        process.sleep(process.chance.choice((0.0, 0.1, 30.0, 90.0, 2000.0)))
        if process.chance.random() < 0.25:
            self._go_back(process, lake)
        super().step(process, lake, number)

    def before_commit(self, process: Process, tx: Transaction) -> None:
        """Some writers stand still with their files written."""
        del tx
        if process.chance.random() < 0.3:
            process.sleep(process.chance.choice((1.0, 80.0, 4000.0, 9000.0)))

    def _go_back(self, process: Process, lake: Lake) -> None:
        """An older version is whole, or it is gone."""
        try:
            newest = lake.version
            past = lake.at(max(self.first, newest - process.chance.randint(0, 3)))
            if process.chance.random() < 0.5:
                process.sleep(process.chance.choice((0.1, 70.0)))
            self._audit(past)
        except VersionExpired:
            return
        except EXPECTED as error:
            self.world.note(f"a look back ended with {error!r}"[:120])
