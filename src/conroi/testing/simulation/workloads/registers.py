"""List-append over registers: serializability or snapshot isolation by cycle search (conroi.testing.history).

A register is a list in one row (`cells`), the rows of one number in the order of a sequence (`log`, where the key makes
two that append at the same place conflict), or the rows of one number as a set (`bag`, to which all may add).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from conroi.errors import ConroiError, DuplicateKeyError
from conroi.lake import Lake
from conroi.reader import Reader
from conroi.testing.history import Append, Operation, Read, Transaction, check
from conroi.testing.simulation.workloads.base import Workload, values
from conroi.testing.simulation.world import Process

CELLS = pa.schema([pa.field("reg", pa.int64(), nullable=False), pa.field("items", pa.string())])
LOG = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("element", pa.int64())])
BAG = pa.schema([("reg", pa.int64()), ("element", pa.int64())])
SCHEMAS = {"cells": CELLS, "log": LOG, "bag": BAG}
KEYS = {"cells": "reg", "log": "id", "bag": None}
PLACES = 1_000_000
NUMBERS = 2
Opener = Callable[[str], Any]


class Registers(Workload):
    """See the module."""

    name = "registers"
    may_raise = (DuplicateKeyError,)

    def set_up(self, process: Process) -> None:
        self.isolation: Any = self.chance.choice(("snapshot", "serializable", "serializable"))
        self.history: list[tuple[Transaction, list[Operation], Any]] = []
        self.element = 0
        with process.connect().begin("set up") as tx:
            for name, schema in SCHEMAS.items():
                tx.create_table(name, schema, key=KEYS[name], stable_row_ids=name == "bag")
            rows = [{"reg": number, "items": ""} for number in range(NUMBERS)]
            tx["cells"].append(pa.Table.from_pylist(rows, CELLS))

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance = process.chance
        plan = [self._chosen(chance) for _ in range(chance.choices((1, 2, 3, 4), (2, 4, 3, 1))[0])]
        self.record(process, f"{process.client.name}-{number}", plan, lambda work: self._in_one(lake, work))

    def _chosen(self, chance: random.Random) -> tuple[str, int, int]:
        """Table, register, and the element to append; 0 to read."""
        table, number = chance.choice(list(SCHEMAS)), chance.randrange(NUMBERS)
        if chance.random() < 0.4:
            return table, number, 0
        self.element += 1
        return table, number, self.element

    def _in_one(self, lake: Lake, work: Callable[[Opener], None]) -> None:
        with lake.begin("registers", isolation=self.isolation) as tx:
            work(tx.table)

    def record(
        self,
        process: Process,
        name: str,
        plan: list[tuple[str, int, int]],
        execute: Callable[[Callable[[Opener], None]], None],
    ) -> None:
        """Do the steps of the plan in one transaction, and note what it saw."""
        done: list[Operation] = []

        def work(tables: Opener) -> None:
            done.clear()
            for table, number, element in plan:
                do(tables(table), table, number, element, done, process.chance)

        began = self.world.scheduler.steps
        planned: list[Operation] = [Append(f"{t}.{n}", e) for t, n, e in plan if e]
        entry = len(self.history)
        self.history.append((Transaction(name, planned, "info", began), done, plan))
        attempt = self.transact(process, name, lambda: execute(work))
        operations = list(done)
        if attempt.outcome != "ok":
            operations += [each for each in planned if each not in done]
        ended = self.world.scheduler.steps
        self.history[entry] = (Transaction(name, operations, attempt.outcome, began, ended), done, plan)

    def check(self, process: Process) -> None:
        lake = process.connect()
        self.check_registers(lambda: lake.at(lake.version).table)

    def check_registers(self, snapshot: Callable[[], Callable[[str], Reader]]) -> None:
        """A last transaction reads everything; then the history is searched for anomalies."""
        done: list[Operation] = []
        began = self.world.scheduler.steps
        tables = snapshot()
        for name in self.schemas():
            for number in range(NUMBERS):
                read(tables(name), name, number, done)
        last = Transaction("end", done, "ok", began, self.world.scheduler.steps + 1)
        report = check([each for each, _, _ in self.history] + [last], self.isolation)
        for anomaly in report.anomalies:
            self.problem(str(anomaly))

    def schemas(self) -> list[str]:
        """The tables."""
        return list(SCHEMAS)


def read(table: Reader, name: str, number: int, done: list[Operation]) -> list[int]:
    """One register."""
    if name == "cells":
        found = values(table.to_arrow(["items"], filter=f"reg = {number}"), "items")
        if len(found) != 1:
            raise Broken(f"register {number} of cells is there {len(found)} times")
        elements = [int(item) for item in found[0].split()]
    elif name == "log":
        where = f"id >= {number * PLACES} and id < {(number + 1) * PLACES}"
        rows = sorted(table.to_arrow(["id", "element"], filter=where).to_pylist(), key=lambda row: row["id"])
        elements = [row["element"] for row in rows]
        if [row["id"] - number * PLACES for row in rows] != list(range(len(rows))):
            raise Broken(f"log {number} has the places {[row['id'] for row in rows]}")
    else:
        elements = values(table.to_arrow(["element"], filter=f"reg = {number}"), "element")
    done.append(Read(f"{name}.{number}", tuple(elements), is_ordered=name != "bag"))
    return elements


def do(table: Any, name: str, number: int, element: int, done: list[Operation], chance: random.Random) -> None:
    """One step in a transaction; what it did and saw is added to `done`."""
    if not element:
        read(table, name, number, done)
        return
    if name == "bag":
        table.append(pa.Table.from_pylist([{"reg": number, "element": element}], BAG))
    elif name == "log":
        there = read(table, name, number, done)
        table.append(pa.Table.from_pylist([{"id": number * PLACES + len(there), "element": element}], LOG))
    elif chance.random() < 0.5:
        table.update({"items": f"concat(items, ' {element}')"}, f"reg = {number}")
    else:
        there = read(table, name, number, done)
        items = " ".join(map(str, [*there, element]))
        row = pa.Table.from_pylist([{"reg": number, "items": items}], CELLS)
        if chance.random() < 0.5:
            table.merge(row, on="reg").when_matched_update_all().when_not_matched_insert_all().execute()
        else:
            table.update({"items": f"'{items}'"}, f"reg = {number}")
    done.append(Append(f"{name}.{number}", element))


class Broken(ConroiError):
    """What was read contradicts itself."""
