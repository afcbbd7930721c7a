"""Idempotency keys: two clients do the same jobs, each until it is acknowledged; every job is done exactly once.

A client repeats a job after any error and after a crash, as a scheduler of batches does. Also of a single table.
"""

from __future__ import annotations

import pyarrow as pa

from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import Workload, values
from conroi.testing.simulation.world import Process

ROWS = pa.schema([("job", pa.string()), ("by", pa.string())])
TRIES = 12


class Jobs(Workload):
    """See the module."""

    name = "jobs"
    upkeep_actions = ("compact", "gc")  # a key is known as long as its version of the lake is

    def set_up(self, process: Process) -> None:
        self.done: set[str] = set()
        self.started: set[str] = set()
        with process.connect().begin("set up") as tx:
            tx.create_table("one", ROWS)
            tx.create_table("two", ROWS)

    def step(self, process: Process, lake: Lake, number: int) -> None:
        # Two clients each share their jobs.
        job = f"job-{int(process.name.removeprefix('writer')) // 2}-{number}"
        self.started.add(job)
        for attempt in range(TRIES):
            name = f"{process.client.name}-{number}-{attempt}"
            found = self.transact(process, name, lambda name=name: self._do(lake, job, name))
            if found.outcome == "ok":
                self.done.add(job)
                return
            process.sleep(process.chance.expovariate(0.5))

    def _do(self, lake: Lake, job: str, name: str) -> None:
        with lake.begin("a job", idempotency_key=job) as tx:
            if tx.is_done:
                return
            for table in ("one", "two"):
                tx[table].append(pa.table({"job": [job], "by": [name]}, schema=ROWS))

    def check(self, process: Process) -> None:
        lake = process.connect()
        for table in ("one", "two"):
            jobs = values(lake[table].to_arrow(), "job")
            for job in sorted(set(jobs)):
                if jobs.count(job) > 1:
                    self.problem(f"{table} has {job} {jobs.count(job)} times")
            for job in sorted(self.done - set(jobs)):
                self.problem(f"{table} lacks {job}, which was acknowledged")
        one, two = (sorted(values(lake[table].to_arrow(), "by")) for table in ("one", "two"))
        if one != two:
            self.problem(f"a job is only in one of the tables: {sorted(set(one) ^ set(two))}")
