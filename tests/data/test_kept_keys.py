"""Keys that are kept in memory are the keys of the version at hand, whatever happened to the table since."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.data import columns as stored_columns
from conroi.data import keys
from conroi.data.columns import wanted
from conroi.data.table_version import TableVersion
from conroi.storage.cache import BoundedCache
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("K1")


def numbers(*ids: int, n: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64())})


def merged(table: conroi.Table, rows: pa.Table, on: str | list[str] = "id") -> tuple[int, int]:
    """How many rows an upsert updated and inserted."""
    done = table.merge(rows, on=on).when_matched_update_all().when_not_matched_insert_all().execute()
    return done.rows_updated, done.rows_inserted


def warm(root: str, **options: Any) -> conroi.Table:
    """A table with the ids 0 to 9 whose keys have been looked at."""
    table = conroi.create_table(root, numbers(*range(10)), **options)
    assert merged(table, numbers(0, 100)) == (1, 1)
    return table.latest()


def data_files(table: conroi.Table) -> list[Path]:
    return sorted(Path(table.uri, "data").glob("*.lance"))


def test_a_file_whose_keys_are_kept_is_not_read_again(root: str) -> None:
    table = warm(root)
    for file in data_files(table):
        file.rename(file.with_suffix(".away"))
    assert merged(table, numbers(5, 200)) == (1, 1)


def test_without_the_cache_it_is_read(root: str) -> None:
    """The negative control of the test above."""
    table = warm(root)
    for file in data_files(table):
        file.rename(file.with_suffix(".away"))
    stored_columns.COLUMNS.clear()
    keys.PARTS.clear()
    with pytest.raises(conroi.ConroiError):
        merged(table, numbers(5, 200))


def test_a_deleted_row_is_not_there(root: str) -> None:
    table = warm(root).delete("id = 3")
    assert merged(table, numbers(3, 4)) == (1, 1)


def test_a_row_that_pylance_deleted_is_not_there(root: str) -> None:
    table = warm(root)
    lance.dataset(root).delete("id = 3")
    assert merged(table, numbers(3, 4)) == (1, 1)


def test_a_row_that_was_restored_is_there_again(root: str) -> None:
    before = warm(root)
    after = before.delete("id = 3")
    assert merged(after, numbers(4)) == (1, 0)
    assert merged(after.restore(before.version), numbers(3)) == (1, 0)


@pytest.mark.parametrize("by", ["conroi", "pylance"])
def test_after_a_compaction_the_same_rows_are_found(root: str, by: str) -> None:
    table = warm(root).delete("id = 3")
    if by == "conroi":
        table.compact()
    else:
        lance.dataset(root).optimize.compact_files()
    assert merged(table, numbers(2, 3, n=7)) == (1, 1)
    assert sorted(column_values(table.latest().to_arrow(filter="n = 7")["id"])) == [2, 3]
    assert table.latest().count_rows() == 11


def test_a_key_that_was_renamed_is_the_same_key(root: str) -> None:
    table = warm(root).rename_columns({"id": "key"})
    assert merged(table, numbers(5, 200).rename_columns(["key", "n"]), on="key") == (1, 1)


def test_columns_that_changed_names_are_not_taken_for_each_other(root: str) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "n": pa.array([10, 20], pa.int64())})
    table = conroi.create_table(root, rows)
    assert merged(table, numbers(1, n=10)) == (1, 0)
    table = table.latest().rename_columns({"id": "x"}).rename_columns({"n": "id"}).rename_columns({"x": "n"})
    stored_columns.COLUMNS.clear()
    keys.PARTS.clear()
    assert merged(table, pa.table({"n": pa.array([1], pa.int64()), "id": pa.array([20], pa.int64())})) == (1, 0)


def test_new_values_in_a_key_column_count(root: str) -> None:
    table = warm(root).replace_column_data({"id": "id + 1000"})
    assert merged(table, numbers(5, 1005)) == (1, 1)


def test_an_updated_key_counts(root: str) -> None:
    table = warm(root).update({"id": "77"}, "id = 5")
    assert merged(table, numbers(5, 77)) == (1, 1)


def test_rows_of_many_files_that_were_never_read_are_found(root: str) -> None:
    table = conroi.create_table(root, numbers(0))
    for number in range(1, 20):
        lance.write_dataset(numbers(number), root, mode="append")
    lance.dataset(root).delete("id = 7")
    assert merged(table.latest(), numbers(*range(20), 50)) == (19, 2)


def test_few_keys_are_found_in_a_big_file_in_order_also_those_that_are_there_twice(root: str) -> None:
    ids = [*range(5000), *[4999] * 3, *range(5000, 10_000)]
    table = conroi.create_table(root, numbers(*ids)).delete("id = 17")
    assert merged(table, numbers(-1, 0, 17, 18, 4999, 9999, 10_000)) == (1 + 1 + 4 + 1, 3)


def test_few_keys_are_found_in_a_big_file_without_order(root: str) -> None:
    table = conroi.create_table(root, numbers(*[(number * 7919) % 10_007 for number in range(10_000)]))
    there = {(number * 7919) % 10_007 for number in range(10_000)}
    asked = list(range(50))
    assert merged(table, numbers(*asked)) == (len(there.intersection(asked)), len(set(asked) - there))


@pytest.mark.parametrize(
    ("type_", "values", "new"),
    [
        (pa.string(), ["a", "b", ""], "c"),
        (pa.binary(), [b"a", b"b\0", b""], b"c"),
        (pa.date32(), [datetime.date(2026, 1, 1), datetime.date(1969, 12, 31)], datetime.date(2026, 1, 2)),
        (pa.float64(), [0.5, 1.5], 2.5),
        (pa.uint64(), [0, 2**64 - 1], 5),
    ],
    ids=str,
)
def test_keys_of_any_type_are_found_the_second_time_too(
    root: str, type_: pa.DataType, values: list[Any], new: object
) -> None:
    def rows(*keys: object) -> pa.Table:
        return pa.table({"k": pa.array(keys, type_)})

    table = conroi.create_table(root, rows(*values))
    assert merged(table, rows(values[0]), on="k") == (1, 0)
    assert merged(table, rows(*values, new), on="k") == (len(values), 1)
    assert merged(table, rows(*values, new), on="k") == (len(values) + 1, 0)


def test_keys_of_several_columns_are_found_the_second_time_too(root: str) -> None:
    rows = pa.table({"a": ["x", "x", "y"], "b": pa.array([1, 2, 1], pa.int64())})
    table = conroi.create_table(root, rows, key=["a", "b"])
    for _ in range(2):
        assert merged(table, rows.slice(1), on=["a", "b"]) == (2, 0)
    assert merged(table, pa.table({"a": ["y"], "b": pa.array([2], pa.int64())}), on=["a", "b"]) == (0, 1)


def test_null_keys_match_nothing_also_when_they_are_kept(root: str) -> None:
    rows = pa.table({"k": pa.array([None, 1], pa.int64())})
    table = conroi.create_table(root, rows)
    assert merged(table, rows, on="k") == (1, 1)
    assert merged(table, rows, on="k") == (1, 1)


def test_a_table_that_is_too_big_to_be_kept_is_scanned_and_memory_stays_bounded(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small: BoundedCache[Any] = BoundedCache(100)
    monkeypatch.setattr(stored_columns, "COLUMNS", small)
    monkeypatch.setattr(keys, "PARTS", BoundedCache(100))
    table = warm(root)
    assert merged(table, numbers(5, 200)) == (1, 1)
    assert small.bytes <= 100


def test_an_upsert_that_is_done_again_writes_its_rows_once(root: str) -> None:
    table = conroi.create_table(root, numbers(*range(10)), key="id")
    other = conroi.open_table(root)
    seen: list[int] = []

    class Meddling:
        """Commits the same keys while the first work is done."""

        def __init__(self) -> None:
            self.rows = numbers(3, 50, n=1)

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.rows.__arrow_c_stream__(requested_schema)

    builder = table.merge(Meddling(), on="id").when_matched_update_all().when_not_matched_insert_all()
    verb_run = builder.run

    def run(verb: Any, how: Any) -> Any:
        def meddled(pinned: TableVersion) -> Any:
            plan = verb(pinned)
            if not seen:
                assert merged(other, numbers(3, 50, n=2)) == (1, 1)
            seen.append(len(data_files(table)))
            return plan

        return verb_run(meddled, how)

    from dataclasses import replace

    done = replace(builder, run=run).execute()
    assert (done.rows_updated, done.rows_inserted) == (2, 0)
    assert seen == [3, 3], "the table's file, mine and the other one's; and no other for the second time"
    assert done.table.to_arrow(filter="n = 1")["id"].to_pylist() == [3, 50]


def test_what_lies_over_a_column_or_elsewhere_is_left_to_a_scan(root: str) -> None:
    pinned = warm(root)._pinned
    what = wanted(pinned, ["id"])
    assert what is not None
    plain = pinned.manifest.fragments[0]
    assert what.place_in(plain) == (plain.files[0].path,)
    covered, elsewhere, old = (type(plain)() for _ in range(3))
    for other in (covered, elsewhere, old):
        other.CopyFrom(plain)
    covered.overlays.append(b"something")
    elsewhere.files[0].base_id = 1
    old.files[0].file_major_version = 0
    assert [what.place_in(other) for other in (covered, elsewhere, old)] == [None, None, None]


def test_a_clone_that_shares_files_finds_its_keys(root: str, tmp_path: Path) -> None:
    clone = warm(root).clone(str(tmp_path / "clone.lance"))
    assert merged(clone, numbers(5, 200)) == (1, 1)
