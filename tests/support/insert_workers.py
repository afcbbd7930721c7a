"""Worker processes that insert into one table, and what their runs look like in it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import dataclass

import pyarrow as pa

import conroi
from tests.support.together import Meet, together

SCHEMA = pa.schema([("worker", pa.int64()), ("insert", pa.int64()), ("n", pa.int64())])


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that is told and asked by its pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip


def hear(process: subprocess.Popen[str]) -> str:
    """The next line it says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    """Go on."""
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()


@dataclass(frozen=True)
class Work:
    """What one worker inserts into `shared`: so often, in so many pieces of two rows."""

    uri: str
    locks: str
    store: str | None
    worker: int
    inserts: int
    pieces: int

    def connect(self) -> conroi.Lake:
        return conroi.connect(self.uri, store=self.store, locks=self.locks)


def race(uri: str, locks: str, *, workers: int, inserts: int, pieces: int, store: str | None = None) -> None:
    """All workers at once, each a process; each must end well."""
    jobs = [Work(uri, locks, store, worker, inserts, pieces) for worker in range(workers)]
    together(insert_all, jobs, patience_s=1800)


def insert_all(work: Work, meet: Meet) -> None:
    lake = work.connect()
    meet()
    for number in range(work.inserts):
        rows = [{"worker": work.worker, "insert": number, "n": n} for n in range(2 * work.pieces)]
        lake.insert("shared", rows, chunk_rows=2)


def end(*processes: subprocess.Popen[str]) -> None:
    """Nothing is left of them."""
    for process in processes:
        process.kill()
        process.communicate()


def runs(table: conroi.Table) -> list[tuple[int, int, int]]:
    """By row id: whose insert each unbroken run of rows is, and how many rows it has."""
    rows = table.to_arrow(with_row_id=True).sort_by("_rowid").to_pylist()
    ids = [row["_rowid"] for row in rows]
    assert ids == list(range(ids[0], ids[0] + len(ids))), "no row is missing"
    found = itertools.groupby((row["worker"], row["insert"]) for row in rows)
    return [(*whose, len(list(group))) for whose, group in found]
