"""One table without a lake: list-append over its rows, with keys of commits, expiry and garbage collection."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from conroi.errors import NotFoundError, VersionExpired
from conroi.format.naming import ManifestNaming
from conroi.lake import Lake
from conroi.opening import create_table, open_table
from conroi.storage import open_objects
from conroi.table import Table
from conroi.testing.simulation.workloads.base import EXPECTED
from conroi.testing.simulation.workloads.registers import NUMBERS, Opener, Registers
from conroi.testing.simulation.world import Process, Script
from conroi.versions.retention import is_left_over

CELLS = pa.schema([pa.field("reg", pa.int64(), nullable=False), pa.field("items", pa.string())])


class LoneTable(Registers):
    """See the module."""

    name = "lone_table"
    uses_lake = False

    def set_up(self, process: Process) -> None:
        self.isolation: Any = "snapshot"
        self.history = []
        self.element = 0
        self.is_slow = self.chance.random() < 0.5
        """Whether minutes pass between the steps, so that versions expire while a writer stands still."""
        rows = pa.Table.from_pylist([{"reg": number, "items": ""} for number in range(NUMBERS)], CELLS)
        create_table(self._uri, rows, key="reg", environment=process.environment)

    @property
    def _uri(self) -> str:
        return self.world.uri.removesuffix("/lake") + "/alone.lance"

    def scripts(self) -> dict[str, Script]:
        found: dict[str, Script] = {f"writer{number}": self._work for number in range(self.clients)}
        if self.is_slow or self.chance.random() < 0.6:
            found["upkeep"] = self._keep_up
        return found

    def open_table(self, process: Process) -> Table:
        """At its newest version."""
        return process.patiently(lambda: open_table(self._uri, environment=process.environment))

    def _work(self, process: Process) -> None:
        table = self.open_table(process)
        while (number := self._done.get(process.name, 0)) < self.steps:
            self._done[process.name] = number + 1
            if self.is_slow:
                process.sleep(process.chance.choice((1.0, 70.0, 1000.0)))
            elif process.chance.random() < 0.3:
                process.sleep(process.chance.expovariate(2.0))
            plan = [self._chosen(process.chance) for _ in range(process.chance.randint(1, 2))]
            name = f"{process.client.name}-{number}"
            self.record(process, name, plan, lambda work: self._in_table(table, work))

    def _chosen(self, chance: random.Random) -> tuple[str, int, int]:
        number = chance.randrange(NUMBERS)
        if chance.random() < 0.3:
            return "cells", number, 0
        self.element += 1
        return "cells", number, self.element

    def _in_table(self, table: Table, work: Callable[[Opener], None]) -> None:
        with table.latest().begin("registers") as tx:
            work(lambda _: tx)

    def tables_at_the_end(self, process: Process) -> list[Table]:
        return [self.open_table(process)]

    def step(self, process: Process, lake: Lake, number: int) -> None:
        raise NotImplementedError

    def _keep_up(self, process: Process) -> None:
        table = self.open_table(process)
        steps = self.steps * (4 if self.is_slow else 1)
        while (number := self._done.get(process.name, 0)) < steps:
            self._done[process.name] = number + 1
            process.sleep(process.chance.choice((0.1, 1.0, 30.0, 3700.0)))
            action = process.chance.choice(("compact", "compact", "expire", "gc"))
            self.world.note(f"begins {action}")
            try:
                if action == "compact":
                    table.latest().compact(rows_per_fragment=process.chance.choice((2, 1000)))
                elif action == "expire":
                    table.expire(process.chance.choice(("1m", "1h")), keep=process.chance.randint(1, 3), dry_run=False)
                else:
                    table.gc(min_age="1h", dry_run=False)
            except (*EXPECTED, NotFoundError) as error:
                self.world.note(f"{action} ended with {error!r}"[:160])

    def check(self, process: Process) -> None:
        table = open_table(self._uri, environment=process.environment)
        self.check_registers(lambda: lambda _: table)
        versions = table.versions()
        if len(set(versions)) != len(versions):
            self.problem(f"a version is there twice: {versions}")
        for version in versions[-4:]:
            try:
                table.at(version).to_arrow()
            except VersionExpired:
                # A put that landed late may leave a manifest under a collected number; its writer knows no outcome.
                if not is_left_over(open_objects(self._uri), version, ManifestNaming.V2.path(version)):
                    raise

    def schemas(self) -> list[str]:
        return ["cells"]
