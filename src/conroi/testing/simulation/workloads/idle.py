"""Idle clients of a lake with its history in a database: transfers beside compaction, expiry and garbage collection.

Clients are idle for hours while others commit and old versions are forgotten; then they go on from what they know. A
transaction reads one table after the other with hours between: its snapshot is whole, or it says that it expired. A
version is not forgotten before it is a minute old.
"""

from __future__ import annotations

import pyarrow as pa

from conroi.errors import VersionExpired
from conroi.lake import Lake
from conroi.testing.simulation.workloads.bank import JOURNAL, START
from conroi.testing.simulation.workloads.base import EXPECTED, values
from conroi.testing.simulation.workloads.upkeep import Upkeep
from conroi.testing.simulation.world import Process
from conroi.versions.retention import ages


class Idle(Upkeep):
    """See the module."""

    name = "idle"
    uses_database = True
    upkeep_actions = ("compact", "expire", "expire", "gc")

    def step(self, process: Process, lake: Lake, number: int) -> None:
        process.sleep(process.chance.choice((0.0, 0.0, 1.0, 300.0, 4000.0)))
        name = f"{process.client.name}-{number}"
        action = process.chance.choice(("transfer", "transfer", "read", "young"))
        if action == "read":
            self.rowless.add(name)
            self.transact(process, name, lambda: self._read_slowly(process, lake))
        elif action == "young":
            self._look_back(process, lake, name)
        else:
            super().step(process, lake, number)

    def _read_slowly(self, process: Process, lake: Lake) -> None:
        with lake.begin("read") as tx:
            amounts: list[int] = []
            for table in self.tables:
                amounts += values(tx[table].to_arrow(["amount"]), "amount")
                process.sleep(process.chance.choice((0.1, 70.0, 4000.0, 9000.0)))
            if sum(amounts) != START * len(amounts):
                self.problem(f"{process.client.name} read {amounts} at version {tx.base_version}")

    def _look_back(self, process: Process, lake: Lake, name: str) -> None:
        """The version that was just made is still there a moment later, whatever came after it."""
        now = self.world.scheduler
        began_s, made = now.now, list[int]()

        def commit() -> None:
            with lake.begin("nothing") as tx:
                row = {"transfer": name, "source": 0, "target": 0, "amount": 0}
                tx["journal"].append(pa.Table.from_pylist([row], JOURNAL))
            made.append(tx.result.version)

        if self.transact(process, name, commit).outcome != "ok":
            return
        try:
            lake["journal"].set_config({"after": name})
            process.sleep(process.chance.choice((0.0, 1.0, 20.0)))
            lake.expire("1m", keep=1, dry_run=False)
            lake.at(made[0])
        except VersionExpired as error:
            if now.now - began_s < ages().version_s:
                self.problem(f"version {made[0]} was forgotten after {now.now - began_s:.0f} s: {error!r}")
        except EXPECTED as error:
            self.world.note(f"a look back ended with {error!r}"[:120])
