"""Bank: transfers between accounts in several tables, each with a line in a journal.

No money appears or vanishes in any snapshot, and the balances are those of the journal: a lost update, a transaction of
which one table is missing, or a line that is there twice shows.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from conroi.lake import Lake
from conroi.lake_snapshot import LakeSnapshot
from conroi.testing.simulation.workloads.base import EXPECTED, Workload, values
from conroi.testing.simulation.world import Process
from conroi.transaction import Transaction

ACCOUNTS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.int64())])
JOURNAL = pa.schema([("transfer", pa.string()), ("source", pa.int64()), ("target", pa.int64()), ("amount", pa.int64())])
PER_TABLE, START = 3, 100


class Bank(Workload):
    """See the module."""

    name = "bank"

    def set_up(self, process: Process) -> None:
        self.tables = ["a", "b", "c"][: self.chance.randint(2, 3)]
        self.is_stable = self.chance.random() < 0.5
        with process.connect().begin("set up") as tx:
            for number, table in enumerate(self.tables):
                tx.create_table(table, ACCOUNTS, key="id", stable_row_ids=self.is_stable)
                ids = range(number * 100, number * 100 + PER_TABLE)
                tx[table].append(pa.table({"id": list(ids), "amount": [START] * PER_TABLE}, schema=ACCOUNTS))
            tx.create_table("journal", JOURNAL)
        assert tx.result.version is not None
        self.first = tx.result.version

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance = process.chance
        if chance.random() < 0.2:
            self._look(process, lake)
            return
        first, second = chance.sample(range(len(self.tables)), 2)
        source = first * 100 + chance.randrange(PER_TABLE)
        target = second * 100 + chance.randrange(PER_TABLE)
        amount = chance.randint(1, 9)
        name = f"{process.client.name}-{number}"
        reads_first = chance.random() < 0.5

        def transfer(tx: Transaction) -> None:
            for account, change in ((source, -amount), (target, amount)):
                table = tx[self.tables[account // 100]]
                if reads_first:
                    there = values(table.to_arrow(["amount"], filter=f"id = {account}"), "amount")[0]
                    table.update({"amount": there + change}, f"id = {account}")
                else:
                    table.update({"amount": f"amount + {change}"}, f"id = {account}")
            row = {"transfer": name, "source": source, "target": target, "amount": amount}
            tx["journal"].append(pa.Table.from_pylist([row], JOURNAL))
            self.before_commit(process, tx)

        self.transact(process, name, lambda: lake.run(transfer, retries=3))

    def before_commit(self, process: Process, tx: Transaction) -> None:
        """For subclasses: all statements are staged."""

    def _look(self, process: Process, lake: Lake) -> None:
        try:
            past = lake.at(lake.version)
            self.saw_version(process, past.version)
            if process.chance.random() < 0.3:
                process.sleep(process.chance.choice((0.1, 5.0)))
            self._audit(past)
        except EXPECTED as error:
            self.world.note(f"a look ended with {error!r}"[:120])

    def _audit(self, lake: LakeSnapshot | Lake) -> dict[int, int]:
        balances: dict[int, int] = {}
        rows = 0
        for table in self.tables:
            found = lake[table].to_arrow(["id", "amount"])
            rows += found.num_rows
            balances |= dict(zip(values(found, "id"), values(found, "amount"), strict=True))
        if rows != len(balances) or rows != PER_TABLE * len(self.tables):
            self.problem(f"version {lake.version} has {rows} accounts: {sorted(balances)}")
        if sum(balances.values()) != START * rows:
            self.problem(f"version {lake.version} has {sum(balances.values())} in all, not {START * rows}")
        return balances

    def check(self, process: Process) -> None:
        lake = process.connect()
        lake = lake if self.chance.random() < 0.5 else process.connect()
        past = lake.at(lake.version)
        balances = self._audit(past)
        journal = past["journal"].to_arrow().to_pylist()
        self.check_presence([row["transfer"] for row in journal], "the journal")
        expected: Counter[int] = Counter(dict.fromkeys(balances, START))
        for row in journal:
            expected[row["source"]] -= row["amount"]
            expected[row["target"]] += row["amount"]
        if dict(expected) != balances:
            self.problem(f"the balances are {balances}, and by the journal {dict(expected)}")
