"""Guards: a table may be dropped only while the other one is there, decided inside a serializable transaction.

At least one of the two is there at every version of the lake, by whatever a transaction asked. What it sees of the past
of a table ends with its own beginning.
"""

from __future__ import annotations

import pyarrow as pa

from conroi.errors import AlreadyExistsError, NotFoundError
from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import EXPECTED, Workload
from conroi.testing.simulation.world import Process, Script
from conroi.transaction import Transaction

ROWS = pa.schema([("by", pa.string())])
NAMES = ("t", "u")


class Guards(Workload):
    """See the module."""

    name = "guards"
    may_raise = (AlreadyExistsError, NotFoundError)

    def set_up(self, process: Process) -> None:
        with process.connect().begin("set up") as tx:
            for name in NAMES:
                tx.create_table(name, pa.table({"by": ["set-up"]}, schema=ROWS))

    def scripts(self) -> dict[str, Script]:
        return {f"writer{number}": self.work for number in range(self.clients)}

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance, attempt = process.chance, f"{process.client.name}-{number}"
        one, other = chance.sample(NAMES, 2)
        action = chance.choice(("drop", "drop", "append", "look"))
        way = chance.choice(("in", "open", "list"))
        pause_s = chance.choice((0.0, 0.0, 1.0, 5.0))

        def work() -> None:
            with lake.begin(action, isolation="serializable") as tx:
                if action == "look":
                    self._look(process, tx, one)
                elif action == "append":
                    tx[one].append(pa.table({"by": [attempt]}, schema=ROWS))
                elif not _is_there(tx, other, way):
                    tx.create_table(other, pa.table({"by": [attempt]}, schema=ROWS))
                else:
                    process.sleep(pause_s)
                    tx.drop_table(one)

        self.transact(process, attempt, work)

    def _look(self, process: Process, tx: Transaction, name: str) -> None:
        if name not in tx:
            return
        table = tx[name]
        process.sleep(process.chance.choice((0.1, 1.0)))
        newer = [version for version in table.versions() if version > table.version]
        if newer:
            self.problem(f"a transaction at version {table.version} of {name} sees the versions {newer}")

    def check(self, process: Process) -> None:
        lake = process.connect()
        for commit in lake.history():
            try:
                if commit.version > 1 and not lake.at(commit.version).tables():
                    self.problem(f"version {commit.version} of the lake has no table")
            except EXPECTED as error:
                self.problem(f"version {commit.version} of the lake cannot be read: {error!r}")


def _is_there(tx: Transaction, name: str, way: str) -> bool:
    """Three ways to ask for a name."""
    if way == "in":
        return name in tx
    if way == "list":
        return name in tx.tables()
    try:
        tx[name]
    except NotFoundError:
        return False
    return True
