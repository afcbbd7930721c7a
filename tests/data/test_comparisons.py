"""Conditions that are answered from memory mean what they mean to pylance."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.data.predicates import Comparison, comparisons, find_rows
from tests.support.arrow import column_values

ROWS = pa.table(
    {
        "id": pa.array([5, -3, 0, 7, 5, None, 9223372036854775807], pa.int64()),
        "tiny": pa.array([1, -128, 127, None, 5, 6, 7], pa.int8()),
        "name": pa.array(["a", "it's", "", None, "B", "b", "a\\b"]),
        "date": pa.array([1, 2, 3, 4, 5, 6, 7], pa.int32()),
    }
)
SIMPLE = [
    "id = 5",
    "id <> 5",
    "id != 5",
    "id>=0 and id<7",
    "id > -4 AND tiny <= 5",
    "id IN (5, 7, 100)",
    "id in(-3)",
    "id BETWEEN 0 AND 7",
    "id between -3 and 5 AND tiny = 5",
    "((id = 7))",
    "id = 999999999999999999",
    "tiny < 127",
    "name = 'it''s'",
    "name = ''",
    "name IN ('a', 'b', 'x')",
    "tiny = 1 AND name = 'a'",
]
LEFT_TO_PYLANCE = [
    "id = 5 OR id = 7",
    "NOT id = 5",
    "id % 2 = 1",
    "id = 5.0",
    "id + 1 = 6",
    "5 = id",
    "id = tiny",
    "id IS NULL",
    "name LIKE 'a%'",
    'name = "a"',
    "name = 'a\\b'",
    "ID = 5",
    "`id` = 5",
    "date = 3",
    "id = 10 - 3",
    "id = 5 AND",
    "(id = 5) AND (tiny = 1)",
    "id = 5 -- and so on",
    "id NOT IN (5)",
    "id = 1e3",
    "true",
]


@pytest.fixture
def table(root: str) -> conroi.Table:
    conroi.create_table(root, ROWS)
    lance.write_dataset(ROWS, root, mode="append")
    return conroi.open_table(root).delete("tiny = 127 OR tiny = 7")


def found_by_pylance(table: conroi.Table, condition: str) -> list[int]:
    rows = lance.dataset(table.uri).scanner(columns=[], filter=condition, with_row_address=True).to_table()
    return sorted(column_values(rows["_rowaddr"]))


def found(table: conroi.Table, condition: str) -> list[int]:
    rows = find_rows(table._pinned, condition)
    return sorted(fragment << 32 | offset for fragment, offsets in rows.items() for offset in offsets)


@pytest.mark.parametrize("condition", SIMPLE)
def test_a_simple_condition_finds_what_pylance_finds(table: conroi.Table, condition: str) -> None:
    assert comparisons(condition) is not None
    assert found(table, condition) == found_by_pylance(table, condition)
    assert "dataset" not in table._pinned.__dict__, "pylance was not asked"


@pytest.mark.parametrize("condition", LEFT_TO_PYLANCE)
def test_anything_else_is_left_to_pylance(condition: str) -> None:
    assert comparisons(condition) is None


@pytest.mark.parametrize("condition", ["tiny < 300", "name > 'a'", "id = 'a'", "name = 5", "nothing = 5"])
def test_what_needs_a_conversion_or_is_wrong_is_left_to_pylance(table: conroi.Table, condition: str) -> None:
    try:
        expected = found_by_pylance(table, condition)
    except Exception:  # noqa: BLE001 (whatever pylance raises, we raise an error of ours)
        with pytest.raises(conroi.ConroiError):
            found(table, condition)
        return
    assert found(table, condition) == expected


def test_what_was_read_is_what_was_written() -> None:
    assert comparisons("id BETWEEN -1 AND 2 AND name IN ('a', 'it''s')") == [
        Comparison("id", ">=", (-1,)),
        Comparison("id", "<=", (2,)),
        Comparison("name", "IN", ("a", "it's")),
    ]


def test_an_indexed_column_is_left_to_its_index(table: conroi.Table) -> None:
    indexed = table.create_index("id")
    assert found(indexed, "id = 5") == found_by_pylance(indexed, "id = 5")
    assert "dataset" in indexed._pinned.__dict__


def test_deletes_by_simple_conditions_delete_what_they_say(root: str) -> None:
    table = conroi.create_table(root, ROWS)
    table = table.delete("id = 5").delete("id >= 7 AND id <= 100")
    assert table.to_arrow()["id"].to_pylist() == [-3, 0, None, 9223372036854775807]
    assert lance.dataset(root).to_table()["id"].to_pylist() == [-3, 0, None, 9223372036854775807]


def test_a_column_that_is_compared_twice_is_found_in_many_files_that_were_never_read(root: str) -> None:
    for number in range(12):
        lance.write_dataset(
            pa.table({"id": [10 * number, 10 * number + 5]}), root, mode="append" if number else "create"
        )
    table = conroi.open_table(root).delete("id BETWEEN 20 AND 90 AND id <> 55")
    assert table.to_arrow()["id"].to_pylist() == [0, 5, 10, 15, 55, 95, 100, 105, 110, 115]
