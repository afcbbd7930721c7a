"""A crowd: many threads of few processes write few tables at once, so that their publications are committed in groups.

Each transaction adds rows of its name to some tables, and may change a counter, or depend on what it read. In the end
each acknowledged transaction is in all of its tables, once; each refused one is in none; the rows of each are
consecutive; the counters have been raised by the transactions that changed them.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pyarrow as pa

from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import Workload, values
from conroi.testing.simulation.world import Process
from conroi.transaction import Transaction

ROWS = pa.schema([("by", pa.string()), ("part", pa.int64())])
COUNTERS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("count", pa.int64())])
TABLES = ("a", "b", "c")
NUMBERS = 2
MOST_ROWS = 3


class Crowd(Workload):
    """See the module."""

    name = "crowd"
    threads = 6

    def set_up(self, process: Process) -> None:
        self.wanted: dict[str, dict[str, int]] = {}
        """By transaction, how many rows it adds to which table."""
        self.raised: dict[str, int] = {}
        """By transaction, the counter that it raises."""
        self.steps = 2 * self.steps  # of all threads together
        with process.connect().begin("set up") as tx:
            for table in TABLES:
                tx.create_table(table, ROWS, stable_row_ids=True)
            tx.create_table("counters", COUNTERS, key="id")
            tx["counters"].append(pa.table({"id": range(NUMBERS), "count": [0] * NUMBERS}, schema=COUNTERS))

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance = process.chance
        name = f"{process.client.name}-{number}"
        tables = chance.sample(TABLES, chance.choice((1, 1, 1, 2, 3)))
        self.wanted[name] = {table: chance.randint(1, MOST_ROWS) for table in tables}
        if chance.random() < 0.2:
            self.raised[name] = chance.randrange(NUMBERS)
        isolation = "serializable" if chance.random() < 0.2 else "snapshot"
        key = name if chance.random() < 0.3 else None
        self.transact(process, name, partial(self._write, lake, name, isolation, key))

    def _write(self, lake: Lake, name: str, isolation: str, key: str | None) -> None:
        with lake.begin(name, isolation=isolation, idempotency_key=key) as tx:  # pyright: ignore[reportArgumentType]
            if isolation == "serializable":
                tx[min(set(TABLES) - self.wanted[name].keys(), default="counters")].to_arrow()
            self._stage(tx, name)

    def _stage(self, tx: Transaction, name: str) -> None:
        for table, rows in self.wanted[name].items():
            tx[table].append(pa.table({"by": [name] * rows, "part": range(rows)}, schema=ROWS))
        if name in self.raised:
            tx["counters"].update({"count": "count + 1"}, f"id = {self.raised[name]}")

    # ------------------------------------------------------------------------ the end

    def check(self, process: Process) -> None:
        lake = process.connect()
        there: dict[str, dict[str, int]] = {}
        for table in TABLES:
            rows = lake[table].scan.reader(with_row_id=True).read_all().sort_by("_rowid")
            names, parts = values(rows, "by"), values(rows, "part")
            for name, count in Counter(names).items():
                there.setdefault(name, {})[table] = count
                first = names.index(name)
                if parts[first : first + count] != list(range(count)) or set(names[first : first + count]) != {name}:
                    self.problem(f"the rows of {name} in {table} are not consecutive")
        self._compare(there, Counter(commit.message for commit in lake.history()))
        counts = dict(zip(*(values(lake["counters"].to_arrow(), column) for column in ("id", "count")), strict=True))
        expected = Counter(number for name, number in self.raised.items() if name in there)
        if counts != {number: expected[number] for number in range(NUMBERS)}:
            self.problem(f"the counters are {counts}, and by the transactions that are there {dict(expected)}")

    def _compare(self, there: dict[str, dict[str, int]], listed: Counter[str | None]) -> None:
        self.check_presence(sorted(there), "the tables")
        for name, tables in there.items():
            if tables != self.wanted[name]:
                self.problem(f"{name} is there as {tables}, and was {self.wanted[name]}")
        for name in sorted(there):
            if listed[name] > 1:
                self.problem(f"{name} is {listed[name]} times in the history")
