"""Columns: they are added, with values and without, and dropped, while others append and change rows.

No column that may not be null has a null, and a column that was added with a value has it in all rows from before.
"""

from __future__ import annotations

import pyarrow as pa

from conroi.errors import InvalidInputError, NotFoundError
from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import EXPECTED, Workload, values
from conroi.testing.simulation.world import Process
from conroi.transaction import Transaction

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("by", pa.string())])
ACTIONS = ("append", "append", "append", "update", "constant", "constant", "nullable", "drop", "compact")


class Columns(Workload):
    """See the module."""

    name = "columns"
    may_raise = (InvalidInputError, NotFoundError)
    """Data without a column that may not be null; a column that is there already, or is not there any more."""
    upkeep_actions = ("compact", "gc")

    def set_up(self, process: Process) -> None:
        self.ids = 1
        self.appends: set[str] = set()
        first = pa.table({"id": [1], "by": ["set-up"]}, schema=ROWS)
        process.connect().create_table("rows", first, stable_row_ids=self.chance.random() < 0.5)

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance, attempt = process.chance, f"{process.client.name}-{number}"
        action, column = chance.choice(ACTIONS), f"c{chance.randrange(3)}"
        pause_s = chance.choice((0.0, 0.5, 3.0))
        self.ids += 1
        row = {"id": self.ids, "by": attempt}
        if action == "append":
            self.appends.add(attempt)

        def work(tx: Transaction) -> None:
            table = tx["rows"]
            if action == "append":
                known = {name: 7 for name in table.schema.names if name.startswith("c")}
                table.append(pa.Table.from_pylist([row | known], _schema(table.schema)))
            elif action == "update":
                table.update({"by": "by"}, f"id = {chance.randrange(1, self.ids)}")
            elif action == "constant":
                table.add_columns({column: "7"})
            elif action == "nullable":
                table.add_columns(pa.field(column, pa.int64()))
            elif action == "drop":
                table.drop_columns([column])
            else:
                table.compact(rows_per_fragment=4)
            process.sleep(pause_s)

        self.transact(process, attempt, lambda: lake.run(work, retries=2))
        if chance.random() < 0.2:
            try:
                self._audit(lake["rows"].to_arrow(), "a look")
            except EXPECTED as error:
                self.world.note(f"a look ended with {error!r}"[:120])

    def _audit(self, rows: pa.Table, where: str) -> None:
        for field in rows.schema:
            if not field.nullable and rows[field.name].null_count:
                self.problem(f"{where}: column {field.name} may not be null, and is in {rows[field.name].to_pylist()}")
            elif field.name.startswith("c") and not set(values(rows, field.name)) <= {7, None}:
                self.problem(f"{where}: column {field.name} has the values {values(rows, field.name)}")

    def check(self, process: Process) -> None:
        rows = process.connect()["rows"].to_arrow()
        self._audit(rows, "the end")
        known = {attempt.name: attempt.outcome for attempt in self.attempts}
        found = values(rows, "by")
        for name in self.appends:
            if found.count(name) > 1 or (known[name] == "ok" and name not in found):
                self.problem(f"{name} was acknowledged, and its row is there {found.count(name)} times")
            elif known[name] == "fail" and name in found:
                self.problem(f"{name} was refused, and its row is there")


def _schema(columns: pa.Schema) -> pa.Schema:
    """Without metadata of the table."""
    return pa.schema([pa.field(each.name, each.type, each.nullable) for each in columns])
