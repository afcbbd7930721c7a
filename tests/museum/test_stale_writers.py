"""Writers that decided on an old version: an overwrite, a check that came too early, a retry that is not one."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.testing import call_before
from tests.museum.peers import column, commit, deltalake, outcome, upsert, written
from tests.support.lakes import faulty, rows

pytestmark = pytest.mark.contract("H7")


@pytest.mark.contract("P2")
def test_the_second_of_two_overwrites_is_refused(tmp_path: Path) -> None:
    """delta-rs#3622: the second overwrite removed the file that the first had just added. Fixed; pylance still does
    so, by design."""
    delta, uri = deltalake(), str(tmp_path / "delta")
    delta.write_deltalake(uri, pa.table({"p": ["a", "b"], "n": [1, 2]}), partition_by=["p"])
    handles = [delta.DeltaTable(uri), delta.DeltaTable(uri)]
    overwrites = [
        lambda handle=handle, n=n: delta.write_deltalake(
            handle, pa.table({"p": ["a"], "n": [n]}), mode="overwrite", predicate="p = 'a' AND n > 0"
        )
        for handle, n in zip(handles, (10, 20), strict=True)
    ]
    assert [outcome(each) for each in overwrites] == ["committed", "CommitFailedError"]
    assert sorted(delta.DeltaTable(uri).to_pyarrow_table()["n"].to_pylist()) == [2, 10]

    uri = str(tmp_path / "pylance")
    lance.write_dataset(pa.table({"n": [1]}), uri)
    stale = lance.dataset(uri)
    lance.write_dataset(pa.table({"n": [10]}), uri, mode="append")
    lance.write_dataset(pa.table({"n": [20]}), stale, mode="overwrite")
    assert column(uri, "n") == [20], "the row 10 was acknowledged"

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"n": 1}])
    ann, bob = (conroi.connect(lake.uri).begin() for _ in range(2))
    ann["t"].overwrite([{"n": 10}])
    bob["t"].overwrite([{"n": 20}])
    assert [outcome(ann.commit), outcome(bob.commit)] == ["committed", "ExpectedVersionMismatch"]
    assert rows(lake["t"]) == [10]


@pytest.mark.contract("P3")
def test_no_publisher_slips_between_the_check_and_the_put(tmp_path: Path) -> None:
    """Our own: two publishers of different tables share no row, so a check of another row before the commit proves
    nothing. pylance commits both updates of its table of versions."""
    uri = str(tmp_path / "versions")
    lance.write_dataset(pa.table({"id": ["orders", "rates"], "version": [1, 1]}), uri)
    mine = lance.dataset(uri)
    assert mine.to_table(filter="id = 'rates'")["version"].to_pylist() == [1], "the check holds"
    upsert(lance.dataset(uri), pa.table({"id": ["rates"], "version": [2]}))
    upsert(mine, pa.table({"id": ["orders"], "version": [2]}))
    assert column(uri, "version") == [2, 2], "orders was computed with the rates of version 1"

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", [{"n": 1}])
    lake.create_table("rates", [{"n": 1}])

    def slip_past(_request: object) -> None:
        conroi.connect(lake.uri)["rates"].append([{"n": 2}])

    slow = faulty(lake.uri, [call_before(slip_past, "put_if_absent", "_versions/*.manifest")], only="__manifest")
    tx = slow.begin(expect={"rates": 1})
    tx["orders"].append([{"n": 2}])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("rates", 1, 2)
    assert (rows(lake["orders"]), rows(lake["rates"])) == ([1], [1, 2])


@pytest.mark.contract("W8", "T27")
def test_a_stale_change_is_not_committed_by_asking_again(tmp_path: Path) -> None:
    """Our own: a change that was computed from an old version, sent again as if it were made on the new one. pylance
    takes the version that it is told, and the row is there twice."""
    uri = str(tmp_path / "pylance")
    lance.write_dataset(pa.table({"n": [10]}), uri)
    base = lance.dataset(uri)
    ids = [fragment.fragment_id for fragment in base.get_fragments()]
    first, second = (
        lance.LanceOperation.Update(
            removed_fragment_ids=ids,
            updated_fragments=[],
            new_fragments=[written(uri, pa.table({"n": [n]}))],
            fields_modified=[],
        )
        for n in (11, 15)
    )
    commit(uri, first, read_version=1)
    assert outcome(lambda: commit(uri, second, read_version=1)) == "CommitConflictError"
    assert outcome(lambda: commit(uri, second, read_version=2)) == "committed"
    assert column(uri, "n") == [11, 15], "right: [11], and the change 10 + 5 is computed again"

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"n": 10}])
    ann, bob = (conroi.connect(lake.uri).begin() for _ in range(2))
    ann["t"].update({"n": "n + 1"})
    bob["t"].update({"n": "n + 5"})
    ann.commit()
    assert [outcome(bob.commit), outcome(bob.commit)] == ["RetryableConflict", "ClosedError"]
    assert rows(lake["t"]) == [11]
    lake.run(lambda tx: tx["t"].update({"n": "n + 5"}))
    assert rows(lake["t"]) == [16]
