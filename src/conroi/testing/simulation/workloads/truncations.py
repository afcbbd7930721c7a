"""Truncations: one client inserts in pieces while others empty the table: an acknowledged insert is whole, or gone."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from conroi.lake import Lake
from conroi.testing.simulation.workloads.inserts import ROWS, Inserts
from conroi.testing.simulation.world import Process


class Truncations(Inserts):
    """See the module."""

    name = "truncations"

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance, name = process.chance, f"{process.client.name}-{number}"
        if process.name != "writer0":
            process.sleep(chance.expovariate(1.0))
            self.transact(process, name, lambda: lake["rows"].overwrite(ROWS.empty_table()))
            return
        length = self.lengths[name] = chance.randint(2, 5)

        def batches() -> Iterator[pa.RecordBatch]:
            for place in range(length):
                process.sleep(chance.choice((0.0, 0.5)))
                yield pa.record_batch({"insert": [name], "place": [place]}, schema=ROWS)

        rows = pa.RecordBatchReader.from_batches(ROWS, batches())
        self.transact(process, name, lambda: lake.insert("rows", rows, chunk_rows=1))

    def check(self, process: Process) -> None:
        found = process.connect()["rows"].to_arrow()["insert"].to_pylist()
        for attempt in self.by_outcome("ok"):
            there, length = found.count(attempt.name), self.lengths.get(attempt.name, 0)
            if there not in (0, length):
                self.problem(f"{attempt.name} was acknowledged with {length} rows; there are {there}")
