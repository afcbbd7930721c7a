"""Rows without a key that were moved: compacted, sorted, or updated to what they had."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

import conroi
from conroi.data.keys import row_codes, same_values

pytestmark = pytest.mark.contract("B16")


@pytest.fixture
def lake() -> conroi.Lake:
    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    lake.create_table("t", [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}])
    lake["t"].append([{"n": 3, "s": "c"}, {"n": 4, "s": "d"}])
    lake.branches.create("dev")
    return lake


def rows(lake: conroi.Lake) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in lake["t"].to_arrow().to_pylist()), key=repr)


def test_values_of_an_added_column_are_kept_beside_a_compaction_and_other_changes(lake: conroi.Lake) -> None:
    """The compacted rows came by value, and the added column was null in all of them."""
    dev = lake.branch("dev")
    dev["t"].add_columns({"m": "n * 10"})
    lake["t"].compact()
    lake["t"].append([{"n": 5, "s": "e"}])
    lake["t"].delete("n = 2")

    lake.merge("dev")

    assert rows(lake) == [(1, "a", 10), (3, "c", 30), (4, "d", 40), (5, "e", None)]


def test_rows_that_one_side_changed_are_taken_out_where_a_compaction_put_them(lake: conroi.Lake) -> None:
    dev = lake.branch("dev")
    lake["t"].compact()
    dev["t"].update({"s": "'B'"}, "n = 2", mode="rows")
    dev["t"].delete("n = 3")

    lake.merge("dev")

    assert rows(lake) == [(1, "a"), (2, "B"), (4, "d")]


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_an_update_to_what_the_rows_had_is_no_change(lake: conroi.Lake, mode: Any) -> None:
    dev = lake.branch("dev")
    lake["t"].update({"s": "s"}, "n < 4", mode=mode)
    dev["t"].update({"s": "'B'"}, "n = 2", mode="rows")
    dev["t"].add_columns({"m": "n * 10"})

    lake.merge("dev")

    assert rows(lake) == [(1, "a", 10), (2, "B", 20), (3, "c", 30), (4, "d", 40)]


def test_a_table_whose_rows_only_moved_is_dropped_without_a_conflict(lake: conroi.Lake) -> None:
    dev = lake.branch("dev")
    dev["t"].update({"s": "s"}, "n = 1", mode="rows")
    lake.drop_table("t")

    dev.merge("main")

    assert dev.tables() == []


def test_rows_that_both_really_changed_are_a_conflict_still(lake: conroi.Lake) -> None:
    dev = lake.branch("dev")
    lake["t"].compact()
    lake["t"].update({"s": "'x'"}, "n = 2", mode="rows")
    dev["t"].update({"s": "'y'"}, "n = 2", mode="rows")

    assert [(each.table, each.kind) for each in lake.merge("dev", dry_run=True).conflicts] == [("t", "rows")]


def test_equal_rows_that_both_brought_are_two(lake: conroi.Lake) -> None:
    dev = lake.branch("dev")
    for each in (lake, dev):
        each["t"].append([{"n": 9, "s": "z"}])

    lake.merge("dev")

    assert rows(lake) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (9, "z"), (9, "z")]


def restored_on_both(lake: conroi.Lake, deleted: str) -> conroi.Lake:
    """A new branch, whose base has these rows deleted; it and main have restored them since."""
    version = lake["t"].version
    lake["t"].delete(deleted)
    lake.branches.create("next")
    branch = lake.branch("next")
    for each in (lake, branch):
        each["t"].restore(version)
    return branch


@pytest.mark.parametrize("change", ["nothing", "retyped above", "retyped below", "renamed"])
def test_deleted_rows_that_both_restored_are_not_doubled(lake: conroi.Lake, change: str) -> None:
    """Seed 9001210: they are in the same files on both sides, and came on both since the base."""
    branch = restored_on_both(lake, "n < 4")
    branch["t"].append([{"n": 5, "s": "e"}])
    if change.startswith("retyped"):
        (branch if change == "retyped above" else lake)["t"].alter_columns({"n": {"type": pa.float64()}})
    if change == "renamed":
        lake["t"].rename_columns({"s": "z"})

    merged = lake.merge("next")

    assert rows(lake) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    brought = 0 if change == "retyped above" else 1  # there main's rows are put on top of the branch's
    assert [(each.inserted, each.updated, each.deleted) for each in merged.tables] == [(brought, 0, 0)]
    assert not lake.merge("next", dry_run=True).has_changes


@pytest.mark.parametrize("compacted", ["main", "next"])
@pytest.mark.parametrize(("prefer", "expected"), [("source", [1, 2, 3, 4, 5]), ("target", [1, 2, 3, 4])])
def test_deleted_rows_that_both_restored_and_one_side_rewrote_are_a_conflict(
    lake: conroi.Lake, compacted: str, prefer: Any, expected: list[int]
) -> None:
    """They may be the same rows, or other ones with the same values: neither is taken for granted."""
    branch = restored_on_both(lake, "n < 4")
    branch["t"].append([{"n": 5, "s": "e"}])
    (lake if compacted == "main" else branch)["t"].compact()

    assert [each.kind for each in lake.merge("next", dry_run=True).conflicts] == ["rows"]
    lake.merge("next", prefer=prefer)

    assert [n for n, _ in rows(lake)] == expected


def test_a_restored_row_that_one_side_changed_is_another_row(lake: conroi.Lake) -> None:
    """Without a key an updated row is a new row: the row as it was and as it is now are both there."""
    branch = restored_on_both(lake, "n < 3")
    branch["t"].update({"s": "'B'"}, "n = 2", mode="columns")

    lake.merge("next")

    assert rows(lake) == [(1, "a"), (2, "B"), (2, "b"), (3, "c"), (4, "d")]


def test_a_column_that_got_its_own_type_again_is_no_change_of_the_columns(lake: conroi.Lake) -> None:
    dev = lake.branch("dev")
    lake["t"].alter_columns({"n": {"type": pa.int32()}})
    lake["t"].alter_columns({"n": {"type": pa.int64()}})
    lake["t"].append([{"n": 5, "s": "e"}])
    dev["t"].add_columns({"m": "n * 10"})
    dev["t"].delete("n = 1")

    lake.merge("dev")

    assert rows(lake) == [(2, "b", 20), (3, "c", 30), (4, "d", 40), (5, "e", None)]


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "float": (pa.float64(), [0.0, -0.0, float("nan"), None, 1.5]),
    "text": (pa.string(), ["a", "a", "", None, "b"]),
    "bool": (pa.bool_(), [True, False, None, True, None]),
    "null": (pa.null(), [None, None, None, None, None]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None, "a", "c"]),
    "binary view": (pa.binary_view(), [b"a", b"b", None, b"a", b""]),
    "list": (pa.list_(pa.float32()), [[0.0], [-0.0], None, [], [None]]),
    "list of lists": (pa.list_(pa.list_(pa.int8())), [[[1], []], [[1, 2]], [[1], [2]], None, [[1], []]]),
    "vector": (pa.list_(pa.float32(), 2), [[0.0, 1.0], [-0.0, 1.0], None, [float("nan"), 1.0], [float("nan"), 1.0]]),
    "struct": (
        pa.struct([("p", pa.int64()), ("q", pa.list_(pa.string()))]),
        [{"p": None, "q": None}, None, {"p": 1, "q": ["a"]}, {"p": 1, "q": ["a"]}, {"p": 1, "q": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", None)], None, [], [("a", 1)]]),
}


@pytest.mark.parametrize("name", VALUES)
def test_rows_have_the_same_number_where_their_values_are_the_same(name: str) -> None:
    type_, values = VALUES[name]
    column = pa.array(values, type_)
    codes = row_codes(pa.table({"x": column, "y": pa.array([1] * len(values))}))
    for place in range(len(values)):
        repeated = pa.array([values[place]] * len(values), type_)
        assert (codes == codes[place]).tolist() == same_values(column, repeated).tolist()


def test_a_row_that_took_the_place_of_a_moved_one_stays(lake: conroi.Lake) -> None:
    """The new row equals the old value of the updated one, so it counts as the moved row; the updated one was lost."""
    dev = lake.branch("dev")
    dev["t"].update({"s": "'D'"}, "n = 4", mode="columns")
    dev["t"].append([{"n": 4, "s": "d"}])
    lake["t"].delete("n = 4")

    dev.merge("main")

    assert rows(dev) == [(1, "a"), (2, "b"), (3, "c"), (4, "D")]


def test_without_a_common_column_rows_that_were_rewritten_on_both_sides_are_no_conflict(lake: conroi.Lake) -> None:
    """Both sides dropped all columns of the other; after `prefer` the base has none of the target's columns."""
    dev = lake.branch("dev")
    lake["t"].drop_columns(["s"])
    dev["t"].drop_columns(["n"])
    lake["t"].update({"n": "n"}, "n = 2", mode="rows")
    dev.merge("main", prefer="target")
    lake["t"].update({"n": "n"}, "n = 2", mode="rows")
    lake["t"].append([{"n": 9}])

    dev.merge("main")

    assert rows(dev) == [("a",), ("b",), ("c",), ("d",), (None,)]
