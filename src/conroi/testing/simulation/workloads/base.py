"""Workload base: clients that make transactions, a record of how each ended, and what must hold in the end.

An acknowledged transaction is there, once and whole. One that was refused, with any error but CommitStateUnknown, is
not there at all. Of one without a known outcome (CommitStateUnknown, or its client crashed) either may be true.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Literal

import pyarrow as pa

from conroi.errors import CommitStateUnknown, ConflictError, ConroiError, NotFoundError, StoreError, VersionExpired
from conroi.format.naming import ManifestNaming
from conroi.format.on_disk import LAKE_MANIFEST
from conroi.lake import Lake
from conroi.storage import open_objects
from conroi.table import Table
from conroi.testing.simulation.database import SimulatedDatabase
from conroi.testing.simulation.locks import LockServer
from conroi.testing.simulation.world import Process, Script, World
from conroi.versions.retention import is_left_over

Outcome = Literal["ok", "fail", "info"]
EXPECTED = (ConflictError, CommitStateUnknown, StoreError, VersionExpired)
"""Errors that concurrent writers and a storage with faults may cause."""

MOST_S = 120.0
"""Seconds after which a last commit to each table must be over."""


@dataclass
class Attempt:
    """One transaction of a client, as its client knows it."""

    name: str
    began: int
    ended: int | None = None
    outcome: Outcome = "info"
    error: str = ""


class Workload:
    """Subclasses make the tables, the scripts of the clients, and check what is there in the end."""

    name: ClassVar[str]
    may_raise: ClassVar[tuple[type[ConroiError], ...]] = ()
    """Further errors that its transactions may end with."""
    uses_lake: ClassVar[bool] = True
    uses_database: ClassVar[bool] = False
    """Whether the history of the lake is in a SQL store."""
    threads: ClassVar[int] = 1
    """Number of threads of each client, which share one connection and the steps."""
    uses_locks: ClassVar[bool] = False
    """Whether inserts take insert locks."""
    upkeep_actions: ClassVar[tuple[str, ...]] = ("compact", "compact", "expire", "gc")
    has_forks: ClassVar[bool] = False
    """Whether its tables may have versions in other folders."""

    def __init__(self, world: World, clients: int, steps: int) -> None:
        self.world = world
        self.clients = clients
        self.steps = steps
        self.chance = random.Random(f"{world.seed} {self.name}")  # noqa: S311  # to be repeatable is the point
        self.problems: list[str] = []
        self.attempts: list[Attempt] = []
        self.rowless: set[str] = set()
        """Attempts that leave no row."""
        self._done: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        if self.uses_database:
            world.database = SimulatedDatabase(world)
        if self.uses_locks:
            world.lock_server = LockServer(world)

    # ------------------------------------------------------------------------ for subclasses

    def set_up(self, process: Process) -> None:
        """Make the tables; without faults."""
        raise NotImplementedError

    def step(self, process: Process, lake: Lake, number: int) -> None:
        """One step of a client."""
        raise NotImplementedError

    def check(self, process: Process) -> None:
        """Compare what is there with what was acknowledged; without faults."""
        raise NotImplementedError

    def scripts(self) -> dict[str, Script]:
        """What the clients do."""
        found: dict[str, Script] = {f"writer{number}": self.work for number in range(self.clients)}
        if self.uses_lake and self.chance.random() < 0.5:
            found["upkeep"] = self.keep_up
        return found

    # ------------------------------------------------------------------------ clients

    def work(self, process: Process) -> None:
        """So many steps; after a crash it goes on with the next one."""
        lake = process.patiently(process.connect)
        scheduler = self.world.scheduler
        others = [scheduler.start(partial(self._take_steps, process, lake)) for _ in range(self.threads - 1)]
        self._take_steps(process, lake)
        for each in others:
            each.result()

    def _take_steps(self, process: Process, lake: Lake) -> None:
        while (number := self._done.get(process.name, 0)) < self.steps:
            self._done[process.name] = number + 1
            if process.chance.random() < 0.3:
                process.sleep(process.chance.expovariate(2.0))
            self.step(process, lake, number)

    def transact(self, process: Process, name: str, work: Callable[[], object]) -> Attempt:
        """Do it, and record how it ended."""
        world = self.world
        attempt = Attempt(name, world.scheduler.steps)
        self.attempts.append(attempt)
        world.note(f"begins {name}")
        try:
            work()
            attempt.outcome = "ok"
        except CommitStateUnknown as error:
            attempt.error = repr(error)
        except ConroiError as error:
            attempt.outcome, attempt.error = "fail", repr(error)
            if not isinstance(error, EXPECTED + self.may_raise):
                self.problem(f"{process.client.name}: {name} raised {error!r}")
        attempt.ended = world.scheduler.steps
        world.note(f"ends {name}: {attempt.outcome} {attempt.error[:120]}")
        return attempt

    def problem(self, text: str) -> None:
        """Something that must not be."""
        self.world.note(f"PROBLEM {text}")
        self.problems.append(text)

    def saw_version(self, process: Process, version: int) -> None:
        """A process never sees the lake go back."""
        if version < self._newest.get(process.client.name, 0):
            self.problem(f"{process.client.name} saw version {version} after {self._newest[process.client.name]}")
        self._newest[process.client.name] = version

    # ------------------------------------------------------------------------ upkeep

    def keep_up(self, process: Process) -> None:
        """Compaction, expiry and garbage collection, beside the others."""
        lake = process.patiently(process.connect)
        while (number := self._done.get(process.name, 0)) < self.steps:
            self._done[process.name] = number + 1
            process.sleep(process.chance.choice((0.1, 1.0, 30.0, 3700.0)))
            action = process.chance.choice(self.upkeep_actions)
            self.world.note(f"begins {action}")
            try:
                self._upkeep(process, lake, action)
            except (*EXPECTED, NotFoundError) as error:
                self.world.note(f"{action} ended with {error!r}"[:160])
            except ConroiError as error:
                self.problem(f"{action} raised {error!r}")

    def _upkeep(self, process: Process, lake: Lake, action: str) -> None:
        if action == "expire":
            lake.expire(process.chance.choice(("1m", "10m", "1h")), keep=process.chance.randint(1, 3), dry_run=False)
        elif action == "gc":
            lake.gc(min_age="1h", dry_run=False)
        else:
            for name in lake.tables():
                lake[name].compact(rows_per_fragment=process.chance.choice((4, 1000)))

    # ------------------------------------------------------------------------ the end

    def finish(self, process: Process) -> None:
        """Liveness and integrity once faults have ended; then the oracle of the workload."""
        self.check(process)
        if self.uses_lake:
            lake = process.connect()
            self.check_history(lake)
            self.check_tables(lake)

    def check_history(self, lake: Lake) -> None:
        """Every version of the lake that is retained can be read, with all of its tables; numbers never come twice."""
        seen: set[int] = set()
        newer: datetime | None = None
        for _, members in groupby(lake.history(), lambda commit: commit.version):
            commit = next(members)  # a group commit has several, next to each other
            if self._is_left_over(commit.version):
                continue
            if newer is not None and commit.timestamp > newer:
                self.problem(f"version {commit.version} of the lake is younger than the one after it")
            newer = commit.timestamp
            if commit.version in seen:
                self.problem(f"version {commit.version} of the lake is there twice")
            seen.add(commit.version)
        for version in sorted(seen, reverse=True)[:4]:
            try:
                past = lake.at(version)
                for name in past.tables():
                    past[name].to_arrow()
            except ConroiError as error:
                if not self._is_left_over(version):
                    self.problem(f"retained version {version} of the lake cannot be read: {error!r}")

    def _is_left_over(self, version: int) -> bool:
        """Whether the number was collected: a put that landed late may leave a manifest there. Its writer does not know
        the outcome, history() lists it, and it cannot be read.
        """
        manifests = open_objects(f"{self.world.uri}/{LAKE_MANIFEST}")
        return not self.uses_database and is_left_over(manifests, version, ManifestNaming.V2.path(version))

    def check_tables(self, lake: Lake) -> None:
        """Row ids are unique; a table that is read by its path has no gap, and nothing prevents the next commit."""
        is_kept_up = any(name.startswith("upkeep") for name in self.world.clients)
        for name in lake.tables():
            table = lake[name]
            if table.has_stable_row_ids:
                ids = values(table.scan.reader(with_row_id=True).read_all(), "_rowid")
                if len(set(ids)) != len(ids):
                    self.problem(f"table {name} has a row id twice: {sorted(ids)}")
            if not is_kept_up:
                final = set(table.versions())
                gap = sorted(set(range(1, table.version)) - final)
                if gap and not self.has_forks:
                    self.problem(f"table {name} is at version {table.version}, and {gap} are not there by path")
        begun = self.world.scheduler.now
        for name in lake.tables():
            table = lake[name]
            table.set_config({"simulation": "checked"})
            if lake[name].version <= table.version:
                self.problem(f"table {name} cannot be changed any more")
        if self.world.scheduler.now - begun > MOST_S:
            self.problem(f"a commit to each table took {self.world.scheduler.now - begun:.0f} s")

    def read_by_path(self, process: Process) -> None:
        """pylance opens each table by its path alone, and reads what conroi reads."""
        for table in self.tables_at_the_end(process):
            self.world.data_files.check_by_path(table)

    def tables_at_the_end(self, process: Process) -> list[Table]:
        """All tables."""
        lake = process.connect()
        return [lake[name] for name in lake.tables()]

    def by_outcome(self, outcome: Outcome) -> Iterator[Attempt]:
        """The attempts that ended so."""
        return (attempt for attempt in self.attempts if attempt.outcome == outcome)

    def check_presence(self, found: list[str], what: str) -> None:
        """Acknowledged ones exactly once, refused ones never, no others."""
        known = {attempt.name: attempt.outcome for attempt in self.attempts if attempt.name not in self.rowless}
        counts: dict[str, int] = {}
        for name in found:
            counts[name] = counts.get(name, 0) + 1
        for name, count in sorted(counts.items()):
            if name not in known:
                self.problem(f"{what} has {name}, which no client wrote")
            elif count > 1:
                self.problem(f"{what} has {name} {count} times")
            elif known[name] == "fail":
                self.problem(f"{what} has {name}, which was refused")
        for name, outcome in known.items():
            if outcome == "ok" and name not in counts:
                self.problem(f"{what} lacks {name}, which was acknowledged")


def values(rows: pa.Table, column: str) -> list[Any]:
    """The values of a column that has no nulls."""
    return rows[column].to_pylist()
