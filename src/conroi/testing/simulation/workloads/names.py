"""Names: tables are created, renamed, dropped and created again under two names, while others append to them.

Each table has one row that says which creation made it, and every append repeats what it read there. A writer that
stood still while its table was dropped and created again must not touch the new one, and no folder may be mixed.
"""

from __future__ import annotations

import pyarrow as pa

from conroi.errors import AlreadyExistsError, NotFoundError
from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import EXPECTED, Workload, values
from conroi.testing.simulation.world import Process
from conroi.transaction import Transaction

ROWS = pa.schema([("maker", pa.string()), ("by", pa.string())])
NAMES = ("x", "y")


class Names(Workload):
    """See the module."""

    name = "names"
    may_raise = (AlreadyExistsError, NotFoundError)

    def set_up(self, process: Process) -> None:
        self.appended: dict[str, str] = {}
        """By attempt, the creation that its table had."""
        self.dropped: dict[str, str] = {}
        self.made: set[str] = set()
        lake = process.connect()
        lake.create_table("x", pa.table({"maker": ["set-up"], "by": ["set-up"]}, schema=ROWS))
        self.made.add("set-up")

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance = process.chance
        action = chance.choice(("append", "append", "append", "create", "drop", "rename", "again"))
        name, other = chance.sample(NAMES, 2)
        attempt = f"{process.client.name}-{number}"

        def work(tx: Transaction) -> None:
            if action == "create":
                self.made.add(attempt)
                tx.create_table(name, pa.table({"maker": [attempt], "by": [attempt]}, schema=ROWS))
                return
            maker = values(tx[name].to_arrow(["maker"]), "maker")[0]
            if chance.random() < 0.2:
                process.sleep(chance.choice((0.5, 5.0)))
            if action == "append":
                self.appended[attempt] = maker
                tx[name].append(pa.table({"maker": [maker], "by": [attempt]}, schema=ROWS))
            elif action == "rename":
                tx.rename_table(name, other)
            else:
                self.dropped[attempt] = maker
                tx.drop_table(name)
                if action == "again":
                    self.made.add(attempt)
                    tx.create_table(name, pa.table({"maker": [attempt], "by": [attempt]}, schema=ROWS))

        self.transact(process, attempt, lambda: lake.run(work, retries=3))
        if chance.random() < 0.3:
            self._look(process, lake)

    def _look(self, process: Process, lake: Lake) -> None:
        try:
            self.saw_version(process, lake.version)
        except EXPECTED as error:
            self.world.note(f"a look ended with {error!r}"[:120])

    def check(self, process: Process) -> None:
        lake = process.connect()
        known = {attempt.name: attempt.outcome for attempt in self.attempts}
        makers: dict[str, list[str]] = {}
        for name in lake.tables():
            rows = lake[name].to_arrow().to_pylist()
            found = {row["maker"] for row in rows}
            if len(found) != 1:
                self.problem(f"table {name} has rows of the creations {sorted(found)}")
            (maker, *_) = sorted(found)
            if maker in makers:
                self.problem(f"the table that {maker} created is there twice")
            makers[maker] = [row["by"] for row in rows]
            if maker != "set-up" and known.get(maker) == "fail":
                self.problem(f"table {name} was created by {maker}, which was refused")
        gone = {maker for attempt, maker in self.dropped.items() if known.get(attempt) != "fail"}
        for maker, writers in makers.items():
            if len(set(writers)) != len(writers):
                self.problem(f"the table of {maker} has a row twice: {writers}")
            for writer in writers:
                if writer != maker and known.get(writer) == "fail":
                    self.problem(f"the table of {maker} has a row of {writer}, which was refused")
        for attempt, maker in self.appended.items():
            if known.get(attempt) == "ok" and maker not in gone and attempt not in makers.get(maker, ()):
                self.problem(f"{attempt} was acknowledged, and the table of {maker} lacks its row")
        for attempt in self.made:
            if known.get(attempt) == "ok" and attempt not in gone and attempt not in makers:
                self.problem(f"the table that {attempt} created is not there")
        for attempt, maker in self.dropped.items():
            if known.get(attempt) == "ok" and maker in makers:
                self.problem(f"{attempt} dropped the table of {maker}, and it is there")
