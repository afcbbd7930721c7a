"""Worker processes that insert into one table, and what their runs look like in it."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pyarrow as pa

import conroi

INSERT = """
import sys
import conroi
uri, locks, worker, inserts, chunks, how = sys.argv[1:]
lake = conroi.connect(uri, locks=locks or None)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(inserts)):
    rows = [{"worker": int(worker), "insert": number, "n": n} for n in range(2 * int(chunks))]
    if how == "insert":
        lake.insert("shared", rows, chunk_rows=2)
    else:  # lock and fence off
        for start in range(0, len(rows), 2):
            lake["shared"].append(rows[start : start + 2])
print("done", flush=True)
"""

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


def race(uri: str, locks: str, *, workers: int, inserts: int, chunks: int, how: str = "insert") -> None:
    """All workers at once; each must end well."""
    processes = [start(INSERT, uri, locks, worker, inserts, chunks, how) for worker in range(workers)]
    try:
        assert [hear(process) for process in processes] == ["ready"] * workers
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [hear(process) for process in processes] == ["done"] * workers
    finally:
        end(*processes)


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
