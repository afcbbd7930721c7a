"""Standing still: writers of one table lose answers and stand still for minutes and hours, while versions expire.

A writer that goes on after its version was committed and collected does not know what became of it, and says so.
"""

from __future__ import annotations

from conroi.errors import NotFoundError
from conroi.testing.simulation.workloads.base import EXPECTED
from conroi.testing.simulation.workloads.lone_table import LoneTable
from conroi.testing.simulation.world import Process, Script, World


class StandingStill(LoneTable):
    """See the module."""

    name = "standing_still"

    def __init__(self, world: World, clients: int, steps: int) -> None:
        super().__init__(world, clients, steps)
        world.faults.rates = {"lost_after": 0.1, "late": 0.05, "pause": 0.05}

    def scripts(self) -> dict[str, Script]:
        return super().scripts() | {"upkeep": self._expire}

    def _expire(self, process: Process) -> None:
        table = self.open_table(process)
        while (number := self._done.get(process.name, 0)) < 4 * self.steps:
            self._done[process.name] = number + 1
            process.sleep(process.chance.choice((10.0, 50.0, 100.0, 1000.0)))
            try:
                table.expire("1m", keep=1, dry_run=False)
            except (*EXPECTED, NotFoundError) as error:
                self.world.note(f"expire ended with {error!r}"[:160])
