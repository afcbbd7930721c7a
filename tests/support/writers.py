"""Many processes that write to one table at the same time, and what each of them says it did."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Protocol

import pyarrow as pa

import conroi
from conroi.locks.file import FileLock
from tests.support.arrow import column_values
from tests.support.processes import fork_context

PROCESSES = 8
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Job:
    """What each process does, in plain values."""

    uri: str
    commits: int
    """How many tables each tries to create, or how many rows each appends, one by one."""
    is_creating: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    lock_file: str = ""
    store: str = ""
    put: str = "conditional"
    processes: int = PROCESSES
    is_failure_fine: bool = False
    """Whether a process may stop early because the storage broke under it."""

    def settings(self) -> dict[str, object]:
        settings: dict[str, object] = {"storage_options": dict(self.options), "put": self.put}
        if self.lock_file:
            settings["commit_lock"] = FileLock(self.lock_file, timeout_s=PATIENCE_S)
        if self.store:
            settings["store"] = self.store
        return settings

    def place(self, number: int) -> str:
        """Where the table of a round is, if tables are created."""
        return f"{self.uri}-{number}"


Claims = dict[int, int]
"""By row (or round), the version that a process says it made."""


class Answers(Protocol):
    """The part of a queue that a process needs."""

    def put(self, answer: tuple[int, Claims, str | None], /) -> None: ...


def run_job(job: Job) -> list[Claims]:
    """What each process says it did."""
    context = fork_context()
    barrier, answers = context.Barrier(job.processes), context.Queue()
    workers = [context.Process(target=_work, args=(job, number, barrier, answers)) for number in range(job.processes)]
    for worker in workers:
        worker.start()
    claims: dict[int, Claims] = {}
    try:
        for _ in workers:
            number, claims[number], failure = answers.get(timeout=PATIENCE_S)
            assert failure is None, failure
    finally:
        for worker in workers:
            worker.kill() if len(claims) < job.processes else worker.join(PATIENCE_S)
    return [claims[number] for number in sorted(claims)]


def _work(job: Job, number: int, barrier: Barrier, answers: Answers) -> None:
    try:
        work = _create if job.is_creating else _append
        answers.put((number, work(job, number, barrier), None))
    except BrokenBarrierError:
        answers.put((number, {}, None))  # the process that broke it says why
    except BaseException:
        answers.put((number, {}, traceback.format_exc()))
        barrier.abort()
        raise


def row_of(process: int, number: int) -> int:
    """A row that only this process writes."""
    return process * 1_000_000 + number


def _append(job: Job, process: int, barrier: Barrier) -> Claims:
    table = conroi.open_table(job.uri, **job.settings())  # type: ignore[arg-type]
    claims: Claims = {}
    barrier.wait(PATIENCE_S)
    for number in range(job.commits):
        row = row_of(process, number)
        try:
            table = table.append(pa.table({"row": [row]}), retries=1000)
        except conroi.ConroiError:
            if not job.is_failure_fine:
                raise
            break
        claims[row] = table.version
    return claims


def _create(job: Job, process: int, barrier: Barrier) -> Claims:
    claims: Claims = {}
    for number in range(job.commits):
        barrier.wait(PATIENCE_S)
        try:
            made = conroi.create_table(job.place(number), pa.table({"row": [process]}), **job.settings())  # type: ignore[arg-type]
        except conroi.AlreadyExistsError:
            continue
        claims[number] = made.version
    return claims


def assert_exact(job: Job, claims: list[Claims]) -> None:
    """Every row is there once, in the version that its writer was told, and every version has one author."""
    table = conroi.open_table(job.uri, **job.settings())  # type: ignore[arg-type]
    rows = [row_of(process, number) for process in range(job.processes) for number in range(job.commits)]
    assert sorted(column_values(table.to_arrow()["row"])) == sorted([-1, *rows])
    versions = sorted(version for of_process in claims for version in of_process.values())
    assert versions == list(range(2, len(rows) + 2))
    assert table.versions() == list(range(1, len(rows) + 2))
    authors = {commit.transaction_uuid for commit in table.history()}
    assert len(authors) == len(rows) + 1
    for of_process in claims:
        row, version = next(reversed(of_process.items()))
        before = table.at(version - 1).to_arrow()["row"].to_pylist()
        assert [*before, row] == table.at(version).to_arrow()["row"].to_pylist()


def assert_one_creator_each(job: Job, claims: list[Claims]) -> None:
    """Every table has one creator, and its row is the one in the table."""
    for number in range(job.commits):
        creators = [process for process, of_process in enumerate(claims) if number in of_process]
        assert len(creators) == 1, f"table {number} was created by {creators}"
        table = conroi.open_table(job.place(number), **job.settings())  # type: ignore[arg-type]
        assert (table.version, table.to_arrow()["row"].to_pylist()) == (1, creators)


def new_table(job: Job) -> None:
    """The table that the processes write to, with one row."""
    conroi.create_table(job.uri, pa.table({"row": [-1]}), **job.settings())  # type: ignore[arg-type]
