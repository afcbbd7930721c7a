"""What is left of a table's other properties after a merge: row ids, indices, versions of rows, past versions."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.merge.builder import MergeResult
from tests.support.arrow import column_values


def data(*ids: int, n: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64())})


def mixed(table: conroi.Table) -> MergeResult:
    """2 and 5 are updated, 3 is deleted, 8 and 9 are new, 1 and 7 are changed although the source lacks them."""
    return (
        table.merge(data(2, 3, 5, 8, 9, n=1), on="id")
        .when_matched_delete("source.id = 3")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"n": "2"}, "target.id in (1, 7)")
        .execute()
    )


EXPECTED = {1: 2, 2: 1, 4: 0, 5: 1, 6: 0, 7: 2, 8: 1, 9: 1}


def row_ids(table: conroi.Table, column: str = "_rowid") -> dict[int, int]:
    found = table.to_lance().scanner(columns=["id", column], with_row_id=column == "_rowid").to_table()
    return dict(zip(column_values(found["id"]), column_values(found[column]), strict=True))


def test_rows_keep_their_stable_ids(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), data(1, 2, 3), stable_row_ids=True).append(data(4, 5, 6, 7))
    before = row_ids(table)
    after = row_ids(mixed(table).table)
    assert {key: after[key] for key in EXPECTED if key < 8} == {key: before[key] for key in EXPECTED if key < 8}
    assert sorted((after[8], after[9])) == [7, 8], "new rows get the next ids, no old one comes back"


def test_rows_know_in_which_version_they_were_made_and_changed(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), data(1, 2, 3), stable_row_ids=True).append(data(4, 5, 6, 7))
    done = mixed(table).table
    assert row_ids(done, "_row_created_at_version") == {1: 1, 2: 1, 4: 2, 5: 2, 6: 2, 7: 2, 8: 3, 9: 3}
    assert row_ids(done, "_row_last_updated_at_version") == {1: 3, 2: 3, 4: 2, 5: 3, 6: 2, 7: 3, 8: 3, 9: 3}


def test_as_pylance_does_it(tmp_path: Path) -> None:
    """The same upsert by pylance and by us: the same ids and row versions."""
    roots = [str(tmp_path / name) for name in ("pylance", "conroi")]
    for root in roots:
        lance.write_dataset(data(1, 2, 3, 4, 5, 6, 7), root, enable_stable_row_ids=True, max_rows_per_file=3)
    merge = lance.dataset(roots[0]).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(data(2, 5, 8, 9, n=1))
    ours = conroi.open_table(roots[1]).merge(data(2, 5, 8, 9, n=1), on="id")
    ours.when_matched_update_all().when_not_matched_insert_all().execute()
    theirs, mine = (conroi.open_table(root) for root in roots)
    for column in ("_rowid", "_row_created_at_version", "_row_last_updated_at_version"):
        assert row_ids(mine, column) == row_ids(theirs, column)


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_indices_answer_correctly_afterwards(stable_row_ids: bool, tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), data(1, 2, 3), stable_row_ids=stable_row_ids)
    table = table.append(data(4, 5, 6, 7)).create_index("id", "BTREE").create_index("n", "BITMAP")
    after = mixed(table).table
    for step in (after, after.compact(), after.delete("id = 4")):
        dataset = lance.dataset(step.uri, version=step.version)
        for column, values in {"id": range(11), "n": range(4)}.items():
            for value in values:
                by_index, by_scan = (
                    dataset.scanner(filter=f"{column} = {value}", use_scalar_index=use).to_table().to_pylist()
                    for use in (True, False)
                )
                assert sorted(map(str, by_index)) == sorted(map(str, by_scan))
    found = {row["id"]: row["n"] for row in after.to_arrow(filter="id >= 0").to_pylist()}
    assert found == EXPECTED


def test_a_second_merge_through_the_index_sees_the_first(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), data(1, 2, 3, 4, 5, 6, 7), key="id").create_index("id", "BTREE")
    first = mixed(table)
    again = (
        first.table.merge(data(3, 8, n=5), on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    )
    assert (again.rows_inserted, again.rows_updated) == (1, 1)
    assert {row["id"]: row["n"] for row in again.table.to_arrow().to_pylist()} == {**EXPECTED, 3: 5, 8: 5}


def test_the_version_before_stays_as_it_was(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), data(1, 2, 3, 4, 5, 6, 7))
    done = mixed(table)
    assert table.at(1).to_arrow().equals(table.to_arrow())
    assert done.table.at(1).to_arrow()["n"].to_pylist() == [0] * 7
    assert done.version == 2


def test_columns_that_were_added_since_are_carried_along(tmp_path: Path) -> None:
    """The handle is at a version that lacks a column; the merge works on the newest one."""
    table = conroi.create_table(str(tmp_path / "t"), data(1, 2, 3, 4, 5, 6, 7))
    table.add_columns({"twice": "n * 2 + id"})
    after = mixed(table).table
    assert {row["id"]: row["twice"] for row in after.to_arrow().to_pylist()} == {
        **{key: key for key in EXPECTED},
        8: None,
        9: None,
    }


def test_the_counts_are_those_of_the_execution_that_landed(tmp_path: Path) -> None:
    from tests.support.instruments import interrupted

    table = conroi.create_table(str(tmp_path / "t"), data(1, 2), key="id")
    writer = interrupted(table, lambda: table.append(data(3)))
    done = writer.merge(data(2, 3, 4, n=1), on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.rows_inserted, done.rows_updated, done.version) == (1, 2, 3)
