"""One Table object in many threads: readers see whole versions, and no row of any writer is lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.environment import SYSTEM
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.testing import FaultyObjects, call_before
from conroi.versions.folder import FolderVersions, LockedPut
from tests.interop.readers import assert_seen
from tests.interop.tables import Kind, Stable
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("T5", "T15")

WRITERS, ROUNDS, ROWS = 8, 12, 5
SCHEMA = pa.schema([("writer", pa.int64()), ("round", pa.int64()), ("row", pa.int64())])


def batch(writer: int, number: int) -> pa.Table:
    rows = [{"writer": writer, "round": number, "row": row} for row in range(ROWS)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def together(*work: Callable[[], object]) -> None:
    """All start at the same moment; the first error of any of them is raised."""
    barrier = threading.Barrier(len(work))

    def one(each: Callable[[], object]) -> None:
        barrier.wait(60)
        each()

    with ThreadPoolExecutor(len(work)) as threads:
        for done in [threads.submit(one, each) for each in work]:
            done.result()


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_threads_that_append_through_one_table_lose_nothing_while_others_read(tmp_path: Path, stable: bool) -> None:
    table = conroi.create_table(tmp_path / "table", SCHEMA, stable_row_ids=stable)
    counts: list[int] = []
    is_over = threading.Event()

    def write(writer: int) -> None:
        for number in range(ROUNDS):
            made = table.append(batch(writer, number), retries=200)
            mine = made.to_arrow(filter=f"writer = {writer}")
            assert mine.num_rows == (number + 1) * ROWS  # what it wrote, it sees

    def read() -> None:
        while not is_over.is_set():
            now = table.latest()
            assert now.to_arrow().num_rows == now.count_rows()
            counts.append(now.count_rows())

    def write_all() -> None:
        try:
            together(*(lambda writer=writer: write(writer) for writer in range(WRITERS)))
        finally:
            is_over.set()

    together(write_all, read, read)
    expected = {(w, r, row) for w in range(WRITERS) for r in range(ROUNDS) for row in range(ROWS)}
    for found in (table.latest().to_arrow(), lance.dataset(str(tmp_path / "table")).to_table()):
        assert found.num_rows == len(expected)
        assert {(row["writer"], row["round"], row["row"]) for row in found.to_pylist()} == expected
    assert table.latest().version == 1 + WRITERS * ROUNDS
    assert all(count % ROWS == 0 for count in counts), "half a batch was seen"
    assert table.count_rows() == 0, "the table in hand stays at its version"
    if stable:
        ids = column_values(lance.dataset(str(tmp_path / "table")).to_table(["_rowid"])["_rowid"])
        assert sorted(ids) == list(range(len(expected)))


def test_threads_with_different_verbs_on_one_table_lose_nothing(tables: Stable) -> None:
    root, model = tables.copy(Kind("pylance"))
    table = conroi.open_table(root)
    ids = sorted(model.rows)

    def append(first: int) -> Callable[[], None]:
        def work() -> None:
            for number in range(3):
                table.append(model.new(range(first + 10 * number, first + 10 * number + 4)))

        return work

    together(
        append(1000),
        append(2000),
        lambda: [table.delete(f"id = {i}") for i in ids[:5]] and None,
        lambda: [table.delete(f"id = {i}") for i in ids[5:10]] and None,
        lambda: [table.update({"v": "-1"}, f"id = {i}", mode="rows") for i in ids[20:24]] and None,
        lambda: [table.set_config({f"key{n}": str(n)}) for n in range(4)] and None,
    )
    for first in (1000, 2000):
        for number in range(3):
            model.append(model.make(range(first + 10 * number, first + 10 * number + 4)))
    for i in ids[:10]:
        del model.rows[i]
    for i in ids[20:24]:
        model.rows[i]["v"] = -1
    assert_seen(root, model)
    assert conroi.open_table(root).config == {f"key{n}": str(n) for n in range(4)}


def test_writers_whose_lock_locks_nothing_do_lose_rows(tmp_path: Path) -> None:
    """The control: both look whether version 2 is there before either writes it, which a lock is to prevent."""
    conroi.create_table(tmp_path / "table", SCHEMA)
    both_looked = threading.Barrier(2)
    wait = call_before(lambda _: both_looked.wait(60) and None, "put", "_versions/*.manifest", times=2)
    objects = FaultyObjects(open_objects(tmp_path / "table"), [wait])
    versions = FolderVersions(objects, LockedPut(lambda _: contextlib.nullcontext()))
    files = TableStorage(objects, versions, SYSTEM)
    table = conroi.Table(files, files.head())
    together(lambda: table.append(batch(0, 0)) and None, lambda: table.append(batch(1, 0)) and None)
    found = lance.dataset(str(tmp_path / "table"))
    assert found.version == 2
    assert found.count_rows() == ROWS, "if both are there, the test above could not have failed"
