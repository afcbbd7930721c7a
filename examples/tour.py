"""Eight conroi workers and two pylance workers write one table at once, while it is compacted; then every row is
accounted for.

Run it with `python examples/tour.py`. It needs nothing but a temporary folder.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import conroi

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("worker", pa.string()), pa.field("hits", pa.int64())]
)
SHARED_KEYS = 20


@dataclass
class Told:
    """What one worker says it did."""

    name: str
    appended: list[int] = field(default_factory=list[int])
    deleted: list[int] = field(default_factory=list[int])
    hits: int = 0
    slowest_ms: float = 0.0


def conroi_worker(number: int, uri: str, rounds: int) -> Told:
    """Append rows of its own, delete some again, and count up rows that all workers share."""
    told = Told(f"conroi-{number}")
    table = conroi.open_table(uri)
    for turn in range(rounds):
        started = time.perf_counter()
        first = 1_000_000 * (number + 1) + 100 * turn
        ids = list(range(first, first + 10))
        table = table.append([{"id": i, "worker": told.name, "hits": 0} for i in ids], message=f"{told.name} load")
        table = table.delete(f"id IN ({ids[0]}, {ids[1]})")
        shared = [{"id": (number + turn + step) % SHARED_KEYS, "worker": "shared", "hits": 1} for step in range(3)]
        merge = table.merge(shared, on="id").when_matched_update({"hits": "target.hits + source.hits"})
        table = merge.when_not_matched_insert_all().execute().table
        told.appended += ids
        told.deleted += ids[:2]
        told.hits += 3
        told.slowest_ms = max(told.slowest_ms, (time.perf_counter() - started) * 1000)
    return told


def pylance_worker(number: int, uri: str, rounds: int) -> Told:
    """Plain pylance, which knows nothing of us."""
    import lance

    told = Told(f"pylance-{number}")
    for turn in range(rounds):
        first = 100_000_000 * (number + 1) + 100 * turn
        ids = list(range(first, first + 10))
        rows = pa.Table.from_pylist([{"id": i, "worker": told.name, "hits": 0} for i in ids], schema=SCHEMA)
        lance.write_dataset(rows, uri, mode="append")
        told.appended += ids
    return told


def compactor(uri: str, rounds: int) -> int:
    """Compacts while the others write; says how many compactions landed."""
    table, landed = conroi.open_table(uri), 0
    for _ in range(rounds):
        before = table.latest().version
        table = table.compact()
        landed += table.version > before
    return landed


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=8, help="loads per worker")
    rounds: int = arguments.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder) / "orders.lance")
        conroi.create_table(uri, SCHEMA, key="id", message="the table")
        print(f"Eight conroi workers, two pylance workers and a compactor write {uri}")
        started = time.perf_counter()
        with multiprocessing.get_context("spawn").Pool(11) as pool:
            ours = [pool.apply_async(conroi_worker, (n, uri, rounds)) for n in range(8)]
            theirs = [pool.apply_async(pylance_worker, (n, uri, rounds)) for n in range(2)]
            compacted = pool.apply_async(compactor, (uri, 5))
            told = [work.get() for work in ours + theirs]
            landed = compacted.get()
        account_for(uri, told, landed, time.perf_counter() - started)


def account_for(uri: str, told: list[Told], landed: int, seconds: float) -> None:
    """Compare the table with what the workers say they did; raises if a single row is wrong."""
    table = conroi.open_table(uri)
    rows = table.to_arrow().to_pylist()
    expected = {i for worker in told for i in worker.appended} - {i for worker in told for i in worker.deleted}
    own = [row["id"] for row in rows if row["worker"] != "shared"]
    shared = [row for row in rows if row["worker"] == "shared"]
    print(f"\n{'worker':<12} rows kept   slowest round")
    for worker in told:
        kept = len(worker.appended) - len(worker.deleted)
        slowest = f"{worker.slowest_ms:8.0f} ms" if worker.slowest_ms else ""
        print(f"{worker.name:<12} {kept:9} {slowest}")
    print(f"\n{table.version} versions in {seconds:.1f} s; {landed} compactions committed beside them")
    checks = {
        "rows of their own, each once": sorted(own) == sorted(expected),
        f"{len(shared)} shared keys, each once": len({row["id"] for row in shared}) == len(shared),
        "every count-up is there": sum(row["hits"] for row in shared) == sum(worker.hits for worker in told),
    }
    for claim, holds in checks.items():
        print(f"  {'ok ' if holds else 'BAD'} {claim}")
    print("\nThe last commits:")
    for commit in table.history(limit=6):
        print(f"  {commit.version:>4}  {commit.operation:<10} {commit.writer:<14} {commit.message or ''}")
    if not all(checks.values()):
        raise SystemExit("The table is not what the workers wrote.")


if __name__ == "__main__":
    main()
