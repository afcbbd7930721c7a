"""Processes that commit transactions over three tables and are killed on the way, and the checks of what they left."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess

import lance

import conroi
from conroi.catalog.participant import Participant
from conroi.catalog.sql_tables import LakeTables
from conroi.lake_snapshot import LakeReader
from conroi.storage.objects import Objects
from conroi.testing import FaultyObjects, NthRequest, call_before, connect_through, die
from tests.support.instruments import CloudLike
from tests.support.lake_tables import FaultyTables
from tests.support.lakes import numbers, rows
from tests.support.processes import fork_context

TABLES = ("a", "b", "c")
PATIENCE_S = 120.0
Options = Mapping[str, str] | None


@dataclass(frozen=True)
class Job:
    """What a process does, in plain values."""

    uri: str
    first: int
    """The number of its first transaction; each has its own."""
    transactions: int
    kill_at_request: int | None = None
    is_cloud: bool = False
    options: Options = None
    """Of a real object store."""
    store: str | None = None
    """The address of the database that has the lake's history."""
    is_final_before_published: bool = False
    """The negative control: what must never be done."""


def new_lake(uri: str, options: Options = None, store: str | None = None) -> conroi.Lake:
    """A lake with three tables that transaction number 0 left."""
    lake = conroi.connect(uri, store=store, storage_options=options)
    with lake.begin("0") as tx:
        for name in TABLES:
            tx.create_table(name, [{"n": 0}])
    return lake


def connect(
    uri: str,
    *,
    is_cloud: bool = False,
    kill_at_request: int | None = None,
    options: Options = None,
    store: str | None = None,
) -> conroi.Lake:
    """The lake; all its requests and SQL statements count, and the given one is the process's last."""
    plan = NthRequest(kill_at_request or sys.maxsize, call_before(die))

    def wrap(objects: Objects) -> Objects:
        return FaultyObjects(CloudLike(objects) if is_cloud else objects, plan)

    def wrap_store(tables: LakeTables) -> LakeTables:
        return FaultyTables(tables, plan)

    return connect_through(uri, wrap, store=store, wrap_store=wrap_store, storage_options=options)


def transact(lake: conroi.Lake, number: int) -> None:
    """Leave this number in all three tables: added in `a`, instead of the last one in `b` and `c`."""
    with lake.begin(str(number)) as tx:
        tx["a"].append([{"n": number}])
        tx["b"].update({"n": str(number)})
        tx["c"].delete("true")
        tx["c"].append([{"n": number}])


def run(job: Job) -> None:
    """The process."""
    if job.is_final_before_published:
        _put_final_names_first()
    lake = connect(
        job.uri, is_cloud=job.is_cloud, kill_at_request=job.kill_at_request, options=job.options, store=job.store
    )
    for number in range(job.first, job.first + job.transactions):
        for _ in range(100):
            try:
                transact(lake, number)
                break
            except conroi.RetryableConflict:
                continue
    os._exit(0)


def _put_final_names_first() -> None:
    honest = Participant.tasks

    def tasks(part: Participant) -> list[object]:
        return [*honest(part), part.finalize]

    Participant.tasks = tasks  # pyright: ignore[reportAttributeAccessIssue]


def start(job: Job) -> ForkServerProcess:
    """The process, started."""
    process = fork_context().Process(target=run, args=(job,))
    process.start()
    return process


def was_killed(job: Job) -> bool:
    """Run the process to its end; whether that was the planned one."""
    process = start(job)
    process.join(PATIENCE_S)
    assert process.exitcode in (0, -signal.SIGKILL), f"it ended with {process.exitcode}"
    return process.exitcode != 0


def killed_at_random(jobs: Sequence[Job], chance: random.Random, within_s: float = 0.3) -> None:
    """Run the processes and kill them some time: mostly after the first publication, else maybe before it.

    On a busy machine a process needs seconds to begin, so that the time counts from there.
    """
    before = _published(jobs[0])
    processes = [start(job) for job in jobs]
    deadline = time.monotonic() + (PATIENCE_S if chance.random() < 0.8 else 0.0)
    while _published(jobs[0]) == before and time.monotonic() < deadline:
        time.sleep(0.005)
    for process in processes:
        process.join(chance.uniform(0.02, within_s))
        process.kill()
    for process in processes:
        process.join(PATIENCE_S)
        assert process.exitcode == -signal.SIGKILL, f"it ended with {process.exitcode}"


def _published(job: Job) -> int:
    """How many files of versions there are; only local lakes are killed at random."""
    return len(os.listdir(f"{job.uri}/{TABLES[0]}.lance/_versions"))


class Checker:
    """Looks at every version of the lake, once."""

    def __init__(self, uri: str, options: Options = None, store: str | None = None) -> None:
        self.uri = uri
        self._options = options
        self._store = store
        lake = conroi.connect(uri, store=store, storage_options=options)
        self._first = self.checked = lake.version
        self.seen: dict[int, dict[str, list[int]]] = {}
        """What was in the tables at each version of the lake."""
        self._by_version: dict[tuple[str, int], list[int]] = {}
        self.behind: set[int] = set()
        """How far behind a reader by path was found to be."""
        self._look(lake)

    def check(self) -> int:
        """All that is new is whole, also for a reader by path; how many versions the lake has."""
        options = None if self._options is None else dict(self._options)
        by_path = {name: lance.dataset(f"{self.uri}/{name}.lance", storage_options=options) for name in TABLES}
        found = {name: (dataset.version, numbers(dataset.to_table())) for name, dataset in by_path.items()}
        alone = None if self._store is None else conroi.connect(self.uri, storage_options=options)
        lake = conroi.connect(self.uri, store=self._store, storage_options=options)
        for version in range(self.checked + 1, lake.version + 1):
            self._look(lake.at(version))
        self.checked = lake.version
        for name, (version, of_version) in found.items():
            behind = lake[name].version - version
            assert behind in (0, 1), f"{name} by path is {behind} versions behind"
            assert of_version == self._by_version[name, version]
            self.behind.add(behind)
        if alone is not None:
            assert lake.version - alone.version in (0, 1), "the folder without its store is at most one behind"
            assert {name: rows(alone[name]) for name in TABLES} == self.seen[alone.version]
        return self.checked - self._first

    def _look(self, at: LakeReader) -> None:
        """All tables at one version of the lake show the same transactions."""
        version = at.version
        found = self.seen[version] = {name: rows(at[name]) for name in TABLES}
        self._by_version |= {(name, at[name].version): found[name] for name in TABLES}
        message = f"lake version {version}: {found}"
        assert found["b"] == found["c"], message
        assert found["b"][0] in found["a"], message
        assert len(found["b"]) == 1, message
        if version > self._first:
            before = self.seen[version - 1]
            assert set(found["a"]) - set(before["a"]) == set(found["b"]), f"{message} after {before}"
            assert len(found["a"]) == len(before["a"]) + 1, message
