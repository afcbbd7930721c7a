"""Where others write at the same time, lists of deleted rows are written once, on the version that is newest then."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.commit.fairness import Turns
from conroi.snapshots.snapshot import load_transaction
from tests.support.arrow import column_values
from tests.support.instruments import interrupted

pytestmark = pytest.mark.contract("T7")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def among_others(table: conroi.Table) -> conroi.Table:
    """The table as a writer has it that has just seen a concurrent commit."""
    other = conroi.open_table(table.uri).append(numbers(1000))
    transaction = load_transaction(other._files.objects, other._pinned.snapshot)
    assert transaction is not None
    table._files.kept(Turns).saw(other.version, transaction)
    assert table._files.kept(Turns).is_contended()
    return table


def files_in(root: str, folder: str) -> int:
    return len(list(Path(root, folder).glob("*")))


def ids(root: str) -> list[int]:
    return sorted(column_values(lance.dataset(root).to_table()["id"]))


def test_a_delete_without_contention_writes_one_list(root: str) -> None:
    table = among_others(conroi.create_table(root, numbers(*range(10))))
    table.delete("id < 3")
    assert ids(root) == [*range(3, 10), 1000]
    assert files_in(root, "_deletions") == 1


def test_concurrent_deletes_write_one_list_with_the_rows_of_both(root: str) -> None:
    table = conroi.create_table(root, numbers(*range(10)))
    writer = interrupted(
        table, lambda: conroi.open_table(root).delete("id = 7"), verb="head", at="_versions/*", times=1
    )
    after = among_others(writer).delete("id < 3")
    assert ids(root) == [3, 4, 5, 6, 8, 9, 1000]
    assert after.version == 4
    assert files_in(root, "_deletions") == 2, "one of each delete"


def test_rows_that_both_delete_are_still_a_conflict_that_is_solved_by_doing_it_again(root: str) -> None:
    table = conroi.create_table(root, numbers(*range(10)))
    writer = interrupted(table, lambda: conroi.open_table(root).delete("id = 2"), at="_deletions/*")
    after = among_others(writer).delete("id < 3")
    assert ids(root) == [*range(3, 10), 1000]
    assert after.version == 4


def test_a_fragment_of_which_the_two_leave_nothing_is_dropped(root: str) -> None:
    table = conroi.create_table(root, numbers(*range(4)))
    writer = interrupted(table, lambda: conroi.open_table(root).delete("id >= 2 AND id < 10"), at="_deletions/*")
    among_others(writer).delete("id < 2")
    assert ids(root) == [1000]
    assert [fragment.fragment_id for fragment in lance.dataset(root).get_fragments()] == [1]


def test_an_upsert_among_others_moves_its_rows(root: str) -> None:
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "n": pa.array([0] * 10, pa.int64())})
    table = conroi.create_table(root, rows, key="id")
    other = conroi.open_table(root).append(pa.table({"id": pa.array([99], pa.int64()), "n": pa.array([0], pa.int64())}))
    transaction = load_transaction(other._files.objects, other._pinned.snapshot)
    assert transaction is not None
    table._files.kept(Turns).saw(other.version, transaction)
    source = pa.table({"id": pa.array([3, 50], pa.int64()), "n": pa.array([1, 1], pa.int64())})
    done = table.merge(source, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    read = lance.dataset(root).to_table()
    assert sorted(zip(read["id"].to_pylist(), read["n"].to_pylist(), strict=True)) == sorted(
        [*((number, 0) for number in range(10) if number != 3), (3, 1), (50, 1), (99, 0)]
    )
