"""Inserts in one commit and in pieces: the rows of each acknowledged insert have consecutive row ids.

The lake has no insert locks, so inserts of several pieces are interrupted by others; the fence notices, and what a
crashed client left is removed by the next insert.
"""

from __future__ import annotations

import pyarrow as pa

from conroi.errors import ConroiError
from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import EXPECTED, Workload
from conroi.testing.simulation.world import Process

ROWS = pa.schema([("insert", pa.string()), ("place", pa.int64())])


class Inserts(Workload):
    """See the module."""

    name = "inserts"
    upkeep_actions = ("compact", "gc")

    def set_up(self, process: Process) -> None:
        self.lengths: dict[str, int] = {}
        process.connect().create_table("rows", ROWS, stable_row_ids=True)

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance = process.chance
        name, length = f"{process.client.name}-{number}", chance.randint(1, 6)
        self.lengths[name] = length
        rows = pa.table({"insert": [name] * length, "place": list(range(length))}, schema=ROWS)
        pieces = chance.choice((None, None, 1, 2))
        self.transact(process, name, lambda: lake.insert("rows", rows, chunk_rows=pieces))
        if chance.random() < 0.2:
            self._look(lake)

    def _look(self, lake: Lake) -> None:
        try:
            self._audit(lake.at(lake.version)["rows"].scan.reader(with_row_id=True).read_all(), "a look")
        except EXPECTED as error:
            self.world.note(f"a look ended with {error!r}"[:120])
        except ConroiError as error:
            self.problem(f"a look raised {error!r}")

    def _audit(self, rows: pa.Table, where: str) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        columns = (rows[name].to_pylist() for name in ("insert", "place", "_rowid"))
        for name, place, row_id in zip(*columns, strict=True):
            found.setdefault(name, []).append((place, row_id))
        for name, places in found.items():
            places.sort()
            if [place for place, _ in places] != list(range(len(places))):
                self.problem(f"{where}: {name} has the rows {places}")
            first = places[0][1]
            if [row_id - first for _, row_id in places] != list(range(len(places))):
                self.problem(f"{where}: the rows of {name} are no run: {places}")
        return found

    def check(self, process: Process) -> None:
        lake = process.connect()
        found = self._audit(lake["rows"].scan.reader(with_row_id=True).read_all(), "the end")
        for attempt in self.by_outcome("ok"):
            there = len(found.get(attempt.name, ()))
            if there != self.lengths[attempt.name]:
                self.problem(
                    f"{attempt.name} was acknowledged with {self.lengths[attempt.name]} rows; there are {there}"
                )
