"""Old branches: branches that were merged are deleted and collected while others are made, written and merged."""

from __future__ import annotations

from conroi.errors import NotFoundError
from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import EXPECTED
from conroi.testing.simulation.workloads.branches import Branches
from conroi.testing.simulation.world import Process, Script, World


class OldBranches(Branches):
    """See the module."""

    name = "old_branches"
    upkeep_actions = ("gc", "gc", "expire")

    def __init__(self, world: World, clients: int, steps: int) -> None:
        super().__init__(world, min(clients, 3), 3 * steps)  # a branch lives for several steps

    def scripts(self) -> dict[str, Script]:
        return super().scripts() | {"upkeep": self.keep_up}

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance = process.chance
        process.sleep(chance.choice((0.1, 1.0, 1000.0, 4000.0)))
        branch = self.branch_of(process)
        if branch in self.made and self._is_merged(branch) and chance.random() < 0.6:
            self.made.discard(branch)
            self.generation[process.name] = self.generation.get(process.name, 0) + 1
            try:
                lake.branches.delete(branch)
            except (*EXPECTED, NotFoundError) as error:
                self.world.note(f"deletion ended with {error!r}"[:120])
            return
        super().step(process, lake, number)

    def _is_merged(self, branch: str) -> bool:
        """Whether everything that may be on it was merged."""
        written = {name for name, of in self.on_branch.items() if of == branch}
        known = {attempt.name: attempt.outcome for attempt in self.attempts}
        merged = {name for merge, names in self.merged.items() if known.get(merge) == "ok" for name in names}
        return bool(written) and all(known.get(name) == "fail" or name in merged for name in written)
