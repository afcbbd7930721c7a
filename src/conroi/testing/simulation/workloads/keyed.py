"""Keyed rows: concurrent inserts, upserts, increments and deletes of the same few keys, beside compaction.

There is never a key twice. Every change of a row adds one to its count and its own name to its list, on top of what it
read, so the row that is there says which changes made it; all later ones must follow from it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from conroi.errors import DuplicateKeyError
from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import EXPECTED, Workload, values
from conroi.testing.simulation.world import Process
from conroi.transaction import Transaction

ROWS = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("n", pa.int64()), pa.field("by", pa.string())])
KEYS = 6
ACTIONS = ("insert", "insert", "upsert", "upsert", "bump", "delete", "delete", "compact", "compact")


class Keyed(Workload):
    """See the module."""

    name = "keyed"
    may_raise = (DuplicateKeyError,)

    def set_up(self, process: Process) -> None:
        self.deletes: set[str] = set()
        self.leaves_its_name: set[str] = set()
        """Inserts and upserts. An increment of keys that are not there changes nothing."""
        self.keys_of: dict[str, set[int]] = {}
        lake = process.connect()
        lake.create_table("rows", ROWS, key="k", stable_row_ids=self.chance.random() < 0.5)

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance = process.chance
        name = f"{process.client.name}-{number}"
        keys = sorted(chance.sample(range(KEYS), chance.randint(1, 3)))
        action = chance.choice(
            ("insert", "insert", "upsert", "upsert", "bump", "delete", "delete", "compact", "compact")
        )
        if action == "compact":
            try:
                lake["rows"].compact(rows_per_fragment=chance.choice((3, 1000)))
            except EXPECTED as error:
                self.world.note(f"compact ended with {error!r}"[:120])
            return
        self.keys_of[name] = set(keys)
        if action == "delete":
            self.deletes.add(name)
        if action in ("insert", "upsert"):
            self.leaves_its_name.add(name)
        works: dict[str, Callable[[Transaction], object]] = {
            "insert": lambda tx: tx["rows"].append(_rows([(key, 1, name) for key in keys])),
            "upsert": lambda tx: self._upsert(tx, keys, name),
            "bump": lambda tx: tx["rows"].update(
                {"n": "n + 1", "by": f"concat(by, ' {name}')"}, f"k in ({', '.join(map(str, keys))})"
            ),
            "delete": lambda tx: tx["rows"].delete(f"k = {keys[0]}"),
        }
        work = works[action]

        def do(tx: Transaction) -> None:
            work(tx)

        self.transact(process, name, lambda: lake.run(do, retries=3))
        if chance.random() < 0.3:
            self._look(lake)

    def _upsert(self, tx: Transaction, keys: list[int], name: str) -> None:
        table = tx["rows"]
        there = {row["k"]: row for row in table.to_arrow(filter=f"k in ({', '.join(map(str, keys))})").to_pylist()}
        rows = [
            (key, there[key]["n"] + 1, f"{there[key]['by']} {name}") if key in there else (key, 1, name) for key in keys
        ]
        table.merge(_rows(rows), on="k").when_matched_update_all().when_not_matched_insert_all().execute()

    def _look(self, lake: Lake) -> None:
        try:
            past = lake.at(lake.version)
            self._audit(past["rows"].to_arrow(), f"version {past.version}")
        except EXPECTED as error:
            self.world.note(f"a look ended with {error!r}"[:120])

    def _audit(self, rows: pa.Table, where: str) -> None:
        keys = values(rows, "k")
        if len(set(keys)) != len(keys):
            self.problem(f"{where} has a key twice: {sorted(keys)}")
        known = {attempt.name: attempt.outcome for attempt in self.attempts}
        for key, n, by in zip(keys, values(rows, "n"), values(rows, "by"), strict=True):
            names = by.split()
            if len(names) != n or len(set(names)) != n:
                self.problem(f"{where}: key {key} was changed {n} times, by {by}")
            for name in names:
                if known.get(name, "fail") == "fail" or key not in self.keys_of[name]:
                    self.problem(f"{where}: key {key} was changed by {name}, which was refused, or changed another")

    def check(self, process: Process) -> None:
        lake = process.connect()
        rows = lake["rows"].to_arrow()
        self._audit(rows, "the end")
        # What was acknowledged after the last deletion of any kind must be there.
        by = {row["k"]: row["by"].split() for row in rows.to_pylist()}
        unknown = {name for name in self.deletes if self._outcome(name) != "fail"}
        last = max((self._ended(name) for name in unknown), default=0)
        for attempt in self.by_outcome("ok"):
            if attempt.name in self.deletes or attempt.began <= last:
                continue
            present = [key for key in self.keys_of[attempt.name] if attempt.name in by.get(key, ())]
            if len(present) < len(self.keys_of[attempt.name]) and attempt.name in self.leaves_its_name:
                self.problem(f"{attempt.name} was acknowledged, and only the keys {present} have it")

    def _ended(self, name: str) -> int:
        """When the attempt was over; one that has no known outcome may land later."""
        found = next(attempt for attempt in self.attempts if attempt.name == name)
        return found.ended if found.ended is not None and found.outcome == "ok" else self.world.scheduler.steps

    def _outcome(self, name: str) -> str:
        return next((attempt.outcome for attempt in self.attempts if attempt.name == name), "info")


def _rows(rows: list[tuple[int, int, str]]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "n": n, "by": by} for k, n, by in rows], ROWS)
