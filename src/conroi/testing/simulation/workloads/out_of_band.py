"""Out-of-band writers: some clients commit to a table of the lake by its path, as pylance does.

What they committed is adopted by the lake's next publication, or, if it came between a publication and its final name,
the table has diverged: it refuses further publications until it is mended. Nothing is lost either way.
"""

from __future__ import annotations

import pyarrow as pa

from conroi.errors import ForkedTableError
from conroi.lake import Lake
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.table import Table
from conroi.testing.simulation.workloads.base import EXPECTED, Workload, values
from conroi.testing.simulation.world import Process, Script
from conroi.versions.folder import FolderVersions

ROWS = pa.schema([("by", pa.string()), ("n", pa.int64())])


class OutOfBand(Workload):
    """See the module."""

    name = "out_of_band"
    may_raise = (ForkedTableError,)

    def set_up(self, process: Process) -> None:
        process.connect().create_table("rows", pa.table({"by": ["set-up"], "n": [0]}, schema=ROWS))
        self.location = f"{self.world.uri}/rows.lance"

    def scripts(self) -> dict[str, Script]:
        found: dict[str, Script] = {f"writer{number}": self.work for number in range(self.clients)}
        return found | {"foreign": self._by_path}

    def step(self, process: Process, lake: Lake, number: int) -> None:
        name = f"{process.client.name}-{number}"
        rows = pa.table({"by": [name], "n": [number]}, schema=ROWS)

        def append() -> None:
            with lake.begin("append") as tx:
                tx["rows"].append(rows)

        attempt = self.transact(process, name, append)
        if "ForkedTableError" in attempt.error:
            try:
                lake.mend("rows")
            except (*EXPECTED, ForkedTableError) as error:
                self.world.note(f"mend ended with {error!r}"[:160])

    def _by_path(self, process: Process) -> None:
        while (number := self._done.get(process.name, 0)) < self.steps:
            self._done[process.name] = number + 1
            process.sleep(process.chance.expovariate(1.0))
            name = f"{process.client.name}-{number}"
            rows = pa.table({"by": [name], "n": [number]}, schema=ROWS)
            self.transact(process, name, lambda rows=rows: self._append(process, rows))

    def _append(self, process: Process, rows: pa.Table) -> None:
        objects = open_objects(self.location)
        files = TableStorage(objects, FolderVersions(objects, None, process.environment), process.environment)
        Table(files, files.head()).append(rows)

    def check(self, process: Process) -> None:
        lake = process.connect()
        lake.mend("rows")
        lake.adopt()
        with lake.begin("the end") as tx:
            tx["rows"].append(pa.table({"by": ["set-up"], "n": [0]}, schema=ROWS))
        found = [by for by in values(lake["rows"].to_arrow(), "by") if by != "set-up"]
        self.check_presence(found, "the table")
