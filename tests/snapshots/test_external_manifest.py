"""Dictionary columns, which pylance reads from the file of a manifest, in versions whose manifest has no file."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from conroi.staged_table import TransactionTable
from conroi.storage.objects import Objects
from conroi.testing import FaultyObjects, Request, call_before, connect_through
from tests.support.instruments import CloudLike


def rows(ids: list[int], values: list[str | None]) -> pa.Table:
    return pa.table({"id": ids, "c": pa.array(values).dictionary_encode()})


def pairs(table: conroi.Table | TransactionTable) -> list[tuple[int, str | None]]:
    return sorted((row["id"], row["c"]) for row in table.to_arrow().to_pylist())


@pytest.mark.contract("W6")
@pytest.mark.parametrize("is_new", [False, True], ids=["there before", "made in the transaction"])
def test_a_transaction_reads_and_changes_what_it_wrote(is_new: bool, tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    if not is_new:
        lake.create_table("t", rows([1, 2], ["a", "b"]), key="id")
    with lake.begin() as tx:
        if is_new:
            tx.create_table("t", rows([1, 2], ["a", "b"]), key="id")
        tx["t"].append(rows([3], [None]))
        assert pairs(tx["t"])[:2] == [(1, "a"), (2, "b")]
        tx["t"].update({"c": "'q'"}, "id = 1")
        assert tx["t"].to_arrow(["id"], filter="c = 'q'")["id"].to_pylist() == [1]
        source = rows([2, 9], ["m", "n"])
        tx["t"].merge(source, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
        tx["t"].delete("id = 3")
        assert pairs(tx["t"]) == [(1, "q"), (2, "m"), (9, "n")]
    assert pairs(lake["t"]) == [(1, "q"), (2, "m"), (9, "n")]
    assert pa.types.is_dictionary(lake["t"].to_arrow().schema.field("c").type)


@pytest.mark.contract("X3")
def test_a_version_that_its_publisher_has_not_finished_is_read(tmp_path: Path) -> None:
    """Far away the final name comes a moment after the publication."""
    uri, goes_on = tmp_path / "lake", threading.Event()

    def wait(_request: Request) -> None:
        goes_on.wait(30)

    def wrap(objects: Objects) -> Objects:
        slow = call_before(wait, "put_if_absent", "_versions/*.manifest", skip=1)
        return FaultyObjects(CloudLike(objects), [slow]) if objects.root.endswith("t.lance") else CloudLike(objects)

    writer = connect_through(uri, wrap)
    try:
        writer.create_table("t", rows([1], ["a"]))
        writer["t"].append(rows([2], ["b"]))
        assert pairs(connect_through(uri, CloudLike)["t"]) == [(1, "a"), (2, "b")]
    finally:
        goes_on.set()
