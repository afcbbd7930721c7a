"""Branches: each client makes a branch, appends there and on the main branch, and merges, while others do the same."""

from __future__ import annotations

import pyarrow as pa

from conroi.errors import AlreadyExistsError, NotFoundError
from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import EXPECTED, Workload, values
from conroi.testing.simulation.world import Process

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("by", pa.string())])


class Branches(Workload):
    """See the module."""

    name = "branches"
    may_raise = (AlreadyExistsError, NotFoundError)
    has_forks = True
    upkeep_actions = ("compact", "gc")

    def set_up(self, process: Process) -> None:
        self.ids = 0
        self.on_branch: dict[str, str] = {}
        """By attempt, the branch of an append."""
        self.merged: dict[str, set[str]] = {}
        """By merge, what its branch was known to have before."""
        self.made: set[str] = set()
        self.generation: dict[str, int] = {}
        """By client, how many branches of its own it has deleted."""
        lake = process.connect()
        lake.create_table("rows", ROWS, key="id", stable_row_ids=self.chance.random() < 0.5)

    def step(self, process: Process, lake: Lake, number: int) -> None:
        chance, attempt = process.chance, f"{process.client.name}-{number}"
        branch = self.branch_of(process)
        if branch not in self.made:
            try:
                lake.branches.create(branch)
            except (*EXPECTED, AlreadyExistsError, NotFoundError) as error:
                self.world.note(f"branch ended with {error!r}"[:120])
            try:
                if branch in lake.branches:
                    self.made.add(branch)
            except EXPECTED:
                return
        self.ids += 1
        rows = pa.table({"id": [self.ids], "by": [attempt]}, schema=ROWS)
        action = chance.choice(("main", "branch", "branch", "merge")) if branch in self.made else "main"
        if action == "main":
            self.transact(process, attempt, lambda: lake["rows"].append(rows))
        elif action == "branch":
            self.on_branch[attempt] = branch
            self.transact(process, attempt, lambda: lake.branch(branch)["rows"].append(rows))
        else:
            known = {name for name, of in self.on_branch.items() if of == branch}
            self.merged[attempt] = {each.name for each in self.by_outcome("ok") if each.name in known}
            self.transact(process, attempt, lambda: lake.merge(branch))

    def branch_of(self, process: Process) -> str:
        """The branch of this client."""
        generation = self.generation.get(process.name, 0)
        return f"b-{process.name}" + (f"-{generation}" if generation else "")

    def check(self, process: Process) -> None:
        lake = process.connect()
        known = {attempt.name: attempt.outcome for attempt in self.attempts}
        on_main = self._names(lake)
        merged = {name for merge, names in self.merged.items() if known[merge] == "ok" for name in names}
        for name, outcome in known.items():
            if name in self.merged:
                continue
            if outcome == "ok" and name not in on_main and (name not in self.on_branch or name in merged):
                self.problem(f"the main branch lacks {name}, which was acknowledged")
            if outcome == "fail" and name in on_main:
                self.problem(f"the main branch has {name}, which was refused")
        for branch in sorted(self.made):
            there = self._names(lake.branch(branch))
            for name, of in self.on_branch.items():
                if of == branch and known[name] == "ok" and name not in there:
                    self.problem(f"{branch} lacks {name}, which was acknowledged")
                if of == branch and known[name] == "fail" and name in there:
                    self.problem(f"{branch} has {name}, which was refused")

    def _names(self, lake: Lake) -> set[str]:
        rows = lake["rows"].to_arrow()
        for column in ("id", "by"):
            if len(set(values(rows, column))) != rows.num_rows:
                self.problem(f"a row is there twice: {sorted(values(rows, 'by'))}")
        return set(values(rows, "by"))
