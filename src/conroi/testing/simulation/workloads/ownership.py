"""Ownership: a table leaves the lake and comes back, and its owner writes it by its path, beside expiry and collection.

What is not the lake's is not collected, and a version of the lake that has the table has always the same rows of it.
"""

from __future__ import annotations

import pyarrow as pa

from conroi.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from conroi.lake import Lake
from conroi.opening import open_table
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.table import Table
from conroi.testing.simulation.workloads.base import EXPECTED, Workload, values
from conroi.testing.simulation.world import Process, Script
from conroi.versions.folder import FolderVersions

ROWS = pa.schema([("by", pa.string()), ("n", pa.int64())])


class Ownership(Workload):
    """See the module."""

    name = "ownership"
    may_raise = (NotFoundError, AlreadyExistsError, InvalidInputError)
    upkeep_actions = ("expire", "gc", "gc")

    def set_up(self, process: Process) -> None:
        lake = process.connect()
        lake.create_table("t", self._row("set-up"))
        lake.create_table("other", self._row("set-up"))
        self.location = lake["t"].uri
        self.is_listed = True
        self.seen: dict[int, list[str]] = {}
        """By version of the lake, the rows that it had."""

    def _row(self, name: str) -> pa.Table:
        return pa.table({"by": [name], "n": [0]}, schema=ROWS)

    def scripts(self) -> dict[str, Script]:
        found: dict[str, Script] = {f"writer{number}": self.work for number in range(max(1, self.clients - 1))}
        return found | {"owner": self.own, "upkeep": self.keep_up}

    def step(self, process: Process, lake: Lake, number: int) -> None:
        name, table = f"{process.client.name}-{number}", process.chance.choice(("t", "other", "other"))
        process.sleep(process.chance.choice((0.1, 60.0, 1000.0)))
        self.transact(process, name, lambda: lake[table].append(self._row(name)))
        self._look(lake)

    def _look(self, lake: Lake) -> None:
        try:
            past = lake.at(lake.version)
            if "t" in past.tables():
                rows = sorted(values(past["t"].to_arrow(), "by"))
                before = self.seen.setdefault(past.version, rows)
                if rows != before:
                    self.problem(f"version {past.version} of the lake had {before} in t, and has {rows}")
        except (*EXPECTED, NotFoundError) as error:
            self.world.note(f"a look ended with {error!r}"[:120])

    def own(self, process: Process) -> None:
        """The owner takes the table out of the lake, writes it by its path, and brings it back."""
        lake = process.patiently(process.connect)
        while (number := self._done.get(process.name, 0)) < 2 * self.steps:
            self._done[process.name] = number + 1
            process.sleep(process.chance.choice((0.1, 100.0, 3700.0, 4000.0)))
            name = f"{process.client.name}-{number}"
            try:
                is_listed = "t" in lake.tables()
            except EXPECTED:
                continue
            action = process.chance.choice(("leave", "write") if is_listed else ("come", "write", "write", "write"))
            if action in ("leave", "come"):
                self.rowless.add(name)
            if action == "leave":
                self.transact(process, name, lambda: lake.deregister("t"))
            elif action == "come":
                self.transact(process, name, lambda: lake.register("t", self.location.rpartition("/")[2]))
            elif not is_listed:
                self.transact(process, name, lambda name=name: self._append(process, name))
            self._look(lake)

    def _append(self, process: Process, name: str) -> None:
        objects = open_objects(self.location)
        files = TableStorage(objects, FolderVersions(objects, None, process.environment), process.environment)
        Table(files, files.head()).append(self._row(name))

    def check(self, process: Process) -> None:
        lake = process.connect()
        if "t" in lake.tables():
            lake.mend("t")
            lake.adopt()
        tables = [lake["other"], lake["t"] if "t" in lake.tables() else self._by_path(process)]
        found = [by for table in tables for by in values(table.to_arrow(), "by") if by != "set-up"]
        self.check_presence(found, "the tables")
        for version in sorted(self.seen):
            try:
                rows = sorted(values(lake.at(version)["t"].to_arrow(), "by"))
            except NotFoundError:
                continue
            if rows != self.seen[version]:
                self.problem(f"version {version} of the lake had {self.seen[version]} in t, and has {rows}")

    def _by_path(self, process: Process) -> Table:
        return open_table(self.location, environment=process.environment)
