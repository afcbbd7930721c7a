"""One branch changes columns, the other rows: values are carried over, or the table is a conflict."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import conroi
from tests.support.arrow import column_values

Prefer = Literal["source", "target"]
NAN = float("nan")


def lake_with(rows: Any, key: str | None = "id") -> tuple[conroi.Lake, conroi.Lake]:
    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    lake.create_table("t", rows, key=key)
    lake.branches.create("dev")
    return lake, lake.branch("dev")


def rows(lake: conroi.Lake) -> list[dict[str, Any]]:
    return sorted(lake["t"].to_arrow().to_pylist(), key=repr)


def kinds(lake: conroi.Lake, source: str = "dev") -> list[tuple[str, str]]:
    """The conflicts, which a merge and a dry run tell alike."""
    dry = lake.merge(source, dry_run=True)
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge(source)
    assert len(caught.value.conflicts) == len(dry.conflicts)
    return [(each.table, each.kind) for each in dry.conflicts]


def numbers(v: pa.DataType = pa.int32()) -> pa.Table:  # noqa: B008
    return pa.table({"id": [1, 2], "v": pa.array([10, 20], v)})


# ---------------------------------------------------------------------------- retyped


@pytest.mark.parametrize("into", ["main", "dev"])
@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.contract("B8")
def test_what_one_side_writes_into_a_column_that_the_other_retyped_is_cast(into: str, key: str | None) -> None:
    """I3, both directions, with and without a key."""
    lake, dev = lake_with(numbers(), key)
    dev["t"].alter_columns({"v": {"type": pa.int64()}})
    lake["t"].update({"v": "99"}, where="id = 1")
    lake["t"].append(pa.table({"id": [3], "v": pa.array([30], pa.int32())}))
    target = lake if into == "main" else dev
    target.merge("dev" if into == "main" else "main")
    assert rows(target) == [{"id": 1, "v": 99}, {"id": 2, "v": 20}, {"id": 3, "v": 30}]
    assert target["t"].schema.field("v").type == pa.int64()
    assert not target.merge("dev" if into == "main" else "main").has_changes


@pytest.mark.parametrize("how", ["columns", "rows"])
@pytest.mark.contract("B8")
def test_rows_that_the_retyping_side_changed_too_are_conflicts(how: Literal["columns", "rows"]) -> None:
    lake, dev = lake_with(numbers())
    dev["t"].alter_columns({"v": {"type": pa.float64()}})
    dev["t"].update({"v": "11.5"}, where="id = 1", mode=how)
    lake["t"].update({"v": "12"}, where="id < 3")
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    (conflict,) = caught.value.conflicts
    assert (conflict.base, conflict.source, conflict.target) == (
        {"id": 1, "v": 10.0},
        {"id": 1, "v": 11.5},
        {"id": 1, "v": 12.0},
    )
    lake.merge("dev", prefer="source")
    assert rows(lake) == [{"id": 1, "v": 11.5}, {"id": 2, "v": 12.0}]


@pytest.mark.contract("B8")
def test_a_retyped_column_is_followed_through_renames_and_further_types() -> None:
    lake, dev = lake_with(numbers())
    dev["t"].alter_columns({"v": {"type": pa.int64()}})
    dev["t"].rename_columns({"v": "w"})
    dev["t"].alter_columns({"w": {"type": pa.float64()}})
    lake["t"].update({"v": "99"}, where="id = 1")
    lake.merge("dev")
    assert rows(lake) == [{"id": 1, "w": 99.0}, {"id": 2, "w": 20.0}]


@pytest.mark.parametrize(("prefer", "expected"), [("source", [1, 2]), ("target", [1, 2**40])])
@pytest.mark.contract("B8")
def test_a_value_that_cannot_be_cast_makes_the_table_a_conflict(prefer: Prefer, expected: list[int]) -> None:
    lake, dev = lake_with(pa.table({"id": [1, 2], "v": [1, 2]}))
    dev["t"].alter_columns({"v": {"type": pa.int32()}})
    lake["t"].update({"v": str(2**40)}, where="id = 2")
    assert kinds(lake) == [("t", "schema")]
    lake.merge("dev", prefer=prefer)
    assert [row["v"] for row in rows(lake)] == expected
    assert lake["t"].schema.field("v").type == (pa.int32() if prefer == "source" else pa.int64())


def test_a_value_that_cannot_be_cast_is_no_matter_if_the_other_side_deleted_the_row_and_left_it_alone() -> None:
    lake, dev = lake_with(pa.table({"id": [1, 2], "v": [2**40, 2]}))
    dev["t"].delete("id = 1")
    dev["t"].compact()
    dev["t"].alter_columns({"v": {"type": pa.int32()}})
    lake["t"].append(pa.table({"id": [3], "v": [3]}))
    lake["t"].compact()  # row 1 is in another file now, and still the same row
    lake.merge("dev")
    assert rows(lake) == [{"id": 2, "v": 2}, {"id": 3, "v": 3}]


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.contract("B8")
def test_a_field_inside_a_struct_that_one_side_renamed(key: str | None) -> None:
    """I3."""
    lake, dev = lake_with([{"id": 1, "s": {"a": 1}}], key)
    dev["t"].rename_columns({"s.a": "z"})
    lake["t"].append([{"id": 3, "s": {"a": 3}}])
    lake["t"].update({"s": "named_struct('a', 7)"}, where="id = 1")
    lake.merge("dev")
    assert rows(lake) == [{"id": 1, "s": {"z": 7}}, {"id": 3, "s": {"z": 3}}]


@pytest.mark.contract("B8")
def test_fields_inside_structs_and_lists_that_were_dropped_retyped_and_added() -> None:
    lake, dev = lake_with(
        [{"id": 1, "s": {"a": 1, "b": "x"}, "l": [{"p": 1, "q": 2}]}, {"id": 2, "s": None, "l": None}]
    )
    dev["t"].drop_columns(["s.b"])
    dev["t"].alter_columns({"s": {"type": pa.struct([("a", pa.float64()), ("c", pa.string())])}})
    dev["t"].rename_columns({"l.item.p": "r"} if "l.item.p" in _paths(dev) else {"l.p": "r"})
    lake["t"].append([{"id": 3, "s": {"a": 3, "b": "y"}, "l": [{"p": 5, "q": 6}, None]}])
    lake["t"].update({"s": "named_struct('a', 8, 'b', 'n')"}, where="id = 1")
    lake.merge("dev")
    assert rows(lake) == [
        {"id": 1, "s": {"a": 8.0, "c": None}, "l": [{"r": 1, "q": 2}]},
        {"id": 2, "s": None, "l": None},
        {"id": 3, "s": {"a": 3.0, "c": None}, "l": [{"r": 5, "q": 6}, None]},
    ]


def _lake_with_a_field_that_only_main_has(key: str | None) -> tuple[conroi.Lake, conroi.Lake]:
    """`dev` dropped a field of a struct, main kept it when it merged: only main sees its values, in shared files."""
    lake, dev = lake_with([{"id": 1, "s": {"p": 5, "q": "a"}, "l": [{"x": 1}]}, {"id": 2, "s": None, "l": None}], key)
    dev["t"].drop_columns(["s.p"])
    lake["t"].rename_columns({"l": "m"})
    lake.merge("dev", prefer="target")
    assert rows(lake)[0] == {"id": 1, "s": {"p": 5, "q": "a"}, "m": [{"x": 1}]}
    return lake, dev


@pytest.mark.parametrize("value", ["NULL", "named_struct('q', 'z')"])
@pytest.mark.parametrize("into", ["main", "dev"])
@pytest.mark.parametrize(("key", "kind"), [("id", "row"), (None, "rows")])
@pytest.mark.contract("B8")
def test_a_field_that_one_side_has_in_a_struct_that_the_other_changed_is_a_conflict(
    key: str | None, kind: str, into: str, value: str
) -> None:
    """Seed 8000771: both versions have the same files, and only one of them sees the field that they hold."""
    lake, dev = _lake_with_a_field_that_only_main_has(key)
    dev["t"].update({"s": value}, where="id = 1")
    target, source = (lake, "dev") if into == "main" else (dev, "main")
    assert kinds(target, source) == [("t", kind)]
    target.merge(source, prefer="target" if into == "main" else "source")
    assert rows(target)[0] == {"id": 1, "s": {"p": 5, "q": "a"}, "m": [{"x": 1}]}


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.contract("B8")
def test_a_field_that_one_side_has_in_a_struct_stays_where_the_other_changed_other_rows(key: str | None) -> None:
    _, dev = _lake_with_a_field_that_only_main_has(key)
    dev["t"].update({"s": "named_struct('q', 'z')"}, where="id = 2")  # its struct is null on main, too
    dev.merge("main")
    assert rows(dev) == [
        {"id": 1, "s": {"p": 5, "q": "a"}, "m": [{"x": 1}]},
        {"id": 2, "s": {"p": None, "q": "z"}, "m": None},
    ]


def _paths(lake: conroi.Lake) -> set[str]:
    from conroi.format.fields import fields_by_path

    return set(fields_by_path(lake["t"].pinned.manifest.fields))


# ---------------------------------------------------------------------------- dropped, added, not null, key


def test_a_dropped_column_goes_with_what_the_other_side_wrote_into_it() -> None:
    lake, dev = lake_with([{"id": 1, "v": 10, "w": 1}])
    dev["t"].drop_columns(["v"])
    lake["t"].update({"v": "99"}, where="id = 1")
    lake["t"].append([{"id": 2, "v": 20, "w": 2}])
    lake.merge("dev")
    assert rows(lake) == [{"id": 1, "w": 1}, {"id": 2, "w": 2}]


def test_a_column_that_was_dropped_and_added_again_is_another_column() -> None:
    lake, dev = lake_with([{"id": 1, "v": 10}])
    dev["t"].drop_columns(["v"])
    dev["t"].add_columns(pa.field("v", pa.int64()))
    lake["t"].append([{"id": 2, "v": 20}])
    lake.merge("dev")
    assert rows(lake) == [{"id": 1, "v": None}, {"id": 2, "v": None}]


def test_an_added_column_is_null_in_rows_that_the_other_side_inserted_and_kept_in_those_it_updated() -> None:
    lake, dev = lake_with([{"id": 1, "v": 10}])
    dev["t"].add_columns({"w": "v + 1"})
    dev["t"].alter_columns({"w": {"nullable": True}})
    lake["t"].update({"v": "99"}, where="id = 1")
    lake["t"].append([{"id": 2, "v": 20}])
    lake.merge("dev")
    assert rows(lake) == [{"id": 1, "v": 99, "w": 11}, {"id": 2, "v": 20, "w": None}]


@pytest.mark.contract("B8")
def test_an_update_needs_no_value_for_an_added_column_that_is_never_null() -> None:
    lake, dev = lake_with([{"id": 1, "v": 10}])
    dev["t"].add_columns({"one": "1"})
    lake["t"].update({"v": "99"}, where="id = 1")
    lake.merge("dev")
    assert rows(lake) == [{"id": 1, "one": 1, "v": 99}]


def _never_null(dev: conroi.Lake, lake: conroi.Lake) -> None:
    dev["t"].add_columns({"one": "1"})
    lake["t"].append([{"id": 2, "v": 2}])


def _never_null_again(dev: conroi.Lake, lake: conroi.Lake) -> None:
    dev["t"].drop_columns(["v"])
    dev["t"].add_columns({"v": "7"})
    lake["t"].append([{"id": 2, "v": 2}])


def _made_not_null(dev: conroi.Lake, lake: conroi.Lake) -> None:
    dev["t"].alter_columns({"v": {"nullable": False}})
    lake["t"].append([{"id": 2, "v": None}])


def _updated_to_null(dev: conroi.Lake, lake: conroi.Lake) -> None:
    dev["t"].alter_columns({"v": {"nullable": False}})
    lake["t"].update({"v": "NULL"}, where="id = 1")


@pytest.mark.parametrize("change", [_never_null, _never_null_again, _made_not_null, _updated_to_null])
@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("prefer", ["source", "target"])
@pytest.mark.parametrize("into", ["main", "dev"])
@pytest.mark.contract("B8")
def test_rows_that_do_not_fit_the_columns_of_the_other_side_are_a_conflict_of_the_table(
    change: Any, key: str | None, prefer: Prefer, into: str
) -> None:
    """I14: a dry run lists it, and `prefer` settles it."""
    lake, dev = lake_with(pa.table({"id": [1], "v": [10]}), key)
    change(dev, lake)
    target, source = (lake, "dev") if into == "main" else (dev, "main")
    expected = {"source": rows(dev if into == "main" else lake), "target": rows(target)}[prefer]
    assert kinds(target, source) == [("t", "schema")]
    target.merge(source, prefer=prefer)
    assert rows(target) == expected
    assert not target.merge(source).has_changes


def test_a_null_that_does_not_fit_is_a_conflict_of_the_table_also_in_a_row_that_both_changed() -> None:
    lake, dev = lake_with([{"id": 1, "v": 1, "w": 1}])
    dev["t"].alter_columns({"v": {"nullable": False}})
    dev["t"].update({"w": "5"})
    lake["t"].update({"v": "NULL"})
    assert kinds(lake) == [("t", "schema")]


@pytest.mark.parametrize("second", [{"id": 1, "v": 5}, {"id": None, "v": 5}])
@pytest.mark.contract("B8")
def test_rows_that_break_a_key_which_the_other_side_declared_are_a_conflict(second: dict[str, Any]) -> None:
    """I14."""
    lake, dev = lake_with(pa.table({"id": [1, 2], "v": [1, 2]}), None)
    dev["t"].declare_key("id")
    lake["t"].append(pa.Table.from_pylist([second], schema=pa.schema([("id", pa.int64()), ("v", pa.int64())])))
    assert kinds(lake) == [("t", "schema")]
    lake.merge("dev", prefer="source")
    assert rows(lake) == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]


def test_rows_that_fit_a_key_which_the_other_side_declared_come_in() -> None:
    lake, dev = lake_with([{"id": 1, "v": 1}, {"id": 2, "v": 2}], None)
    dev["t"].declare_key("id")
    lake["t"].update({"v": "9"}, where="id = 1")  # the row goes out and comes in: its key is there once
    lake["t"].append([{"id": 3, "v": 3}])
    lake.merge("dev")
    assert rows(lake) == [{"id": 1, "v": 9}, {"id": 2, "v": 2}, {"id": 3, "v": 3}]


def test_a_row_that_would_come_back_by_choice_must_fit_too() -> None:
    """Deleted where the column was added, updated on the other side: if that is chosen, it has no value for the column.

    The dry run said that it is a conflict of the row, and with prefer="target" the whole table was the target's.
    """
    lake, dev = lake_with([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    dev["t"].delete("id = 1")
    dev["t"].add_columns({"one": "1"})
    lake["t"].update({"v": "9"}, where="id = 1")
    assert kinds(lake) == [("t", "schema")]
    lake.merge("dev", prefer="target")
    assert rows(lake) == [{"id": 1, "v": 9}, {"id": 2, "v": 2}]


@pytest.mark.contract("B8")
def test_columns_that_both_changed_alike_are_merged() -> None:
    lake, dev = lake_with(numbers())
    for each in (lake, dev):
        each["t"].alter_columns({"v": {"type": pa.int64()}})
        each["t"].rename_columns({"v": "w"})
    dev["t"].update({"w": "99"}, where="id = 1")
    lake["t"].append([{"id": 3, "w": 30}])
    lake.merge("dev")
    assert rows(lake) == [{"id": 1, "w": 99}, {"id": 2, "w": 20}, {"id": 3, "w": 30}]


def test_columns_that_both_added_alike_are_a_conflict() -> None:
    lake, dev = lake_with(numbers())
    for each in (lake, dev):
        each["t"].add_columns({"w": "v + 1"})
    assert kinds(lake) == [("t", "schema")]


def test_all_columns_replaced_and_a_row_inserted() -> None:
    lake, dev = lake_with([{"a": 1}], None)
    dev["t"].add_columns({"b": "a + 1"})
    dev["t"].alter_columns({"b": {"nullable": True}})
    dev["t"].drop_columns(["a"])
    lake["t"].append([{"a": 2}])
    lake.merge("dev")
    assert rows(lake) == [{"b": 2}, {"b": None}]


def test_a_conflict_of_the_table_and_its_name_are_two_decisions() -> None:
    lake, dev = lake_with(numbers())
    dev["t"].add_columns({"x": "v"})
    lake["t"].add_columns({"y": "v"})
    dev.rename_table("t", "u")
    lake.rename_table("t", "w")
    assert sorted(kinds(lake)) == [("w", "name"), ("w", "schema")]
    lake.merge("dev", prefer=lambda conflict: "source" if conflict.kind == "name" else "target")
    assert lake["u"].schema.names == ["id", "v", "y"]


# ---------------------------------------------------------------------------- diff


@pytest.mark.contract("B8")
def test_a_diff_compares_values_of_a_retyped_column() -> None:
    """I3: rows with other values were called the same."""
    lake, dev = lake_with(numbers())
    dev["t"].alter_columns({"v": {"type": pa.int64()}})
    assert lake.diff("main", "dev")["t"].keys is not None
    assert not lake.diff("main", "dev")["t"].keys.is_different  # pyright: ignore[reportOptionalMemberAccess]
    dev["t"].update({"v": "99"}, where="id = 1")
    changed = lake.diff("main", "dev")["t"].keys
    assert changed is not None
    assert changed.updated["id"].to_pylist() == [1]
    dev["t"].update({"v": str(2**40)}, where="id = 2")
    back = lake.diff("dev", "main")["t"].keys  # 2**40 is no int32: another value
    assert back is not None
    assert sorted(column_values(back.updated["id"])) == [1, 2]


def test_a_diff_without_a_key_counts_rows_that_differ_after_the_cast() -> None:
    lake, dev = lake_with(numbers(), None)
    dev["t"].alter_columns({"v": {"type": pa.int64()}})
    assert (lake.diff("main", "dev")["t"].rows_added, lake.diff("main", "dev")["t"].rows_removed) == (0, 0)
    dev["t"].update({"v": "99"}, where="id = 1", mode="columns")
    assert (lake.diff("main", "dev")["t"].rows_added, lake.diff("main", "dev")["t"].rows_removed) == (1, 1)


# ---------------------------------------------------------------------------- values


@pytest.mark.parametrize(("prefer", "value"), [("source", 5), ("target", 6), (lambda _: "target", 6)])
@pytest.mark.contract("B10")
def test_a_key_that_is_nan(prefer: Any, value: int) -> None:
    """I6."""
    lake, dev = lake_with(pa.table({"id": [NAN], "v": [1]}))
    dev["t"].update({"v": "5"})
    lake["t"].update({"v": "6"})
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    (conflict,) = caught.value.conflicts
    found = [row and row["v"] for row in (conflict.base, conflict.source, conflict.target)]
    assert (found, conflict.message) == ([1, 5, 6], "changed on both branches")
    lake.merge("dev", prefer=prefer)
    assert lake["t"].to_arrow()["v"].to_pylist() == [value]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[NAN], [1.0]]),
        pa.array([[NAN, 1.0], [0.0, 2.0]], pa.list_(pa.float32(), 2)),
        pa.array([{"x": NAN}, {"x": 1.0}]),
        pa.array([{"x": [NAN, None]}, None]),
        pa.array([NAN, -0.0]),
    ],
    ids=["list", "vector", "struct", "nested", "number"],
)
@pytest.mark.contract("B10")
def test_values_that_are_the_same_are_no_change_where_their_files_were_rewritten(values: Any) -> None:
    """I12."""
    lake, dev = lake_with(pa.table({"id": [1, 2], "s": values, "v": [1, 2]}))
    dev["t"].update({"v": "5"}, where="id = 2")
    dev["t"].compact()
    lake["t"].update({"v": "7"}, where="id = 1")
    lake.merge("dev")
    assert sorted((row["id"], row["v"]) for row in rows(lake)) == [(1, 7), (2, 5)]


def test_vectors_that_were_retyped_beside_an_added_column(tmp_path: Path) -> None:
    """The two sides have other columns for good, and the rows that are carried over may be none."""
    narrow, wide = pa.list_(pa.float32(), 2), pa.list_(pa.float64(), 2)
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"id": ["b", "a"], "x": pa.array([[0.5, 1.5]] * 2, narrow)}), key="id")
    lake.branches.create("dev")
    dev = lake.branch("dev")
    lake["t"].alter_columns({"x": {"type": wide}})
    dev["t"].add_columns(pa.schema([pa.field("z", pa.int64())]))
    dev.merge("main", prefer="target")
    source = pa.table({"id": ["b", "f"], "x": pa.array([[0.25, 0.5]] * 2, wide)})
    lake["t"].merge(source, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert dev.merge("main", dry_run=True).conflicts == ()
    dev.merge("main")
    found = {row["id"]: (row["x"], row["z"]) for row in dev["t"].to_arrow().to_pylist()}
    assert found == {"a": ([0.5, 1.5], None), "b": ([0.25, 0.5], None), "f": ([0.25, 0.5], None)}


def test_columns_of_two_branches_that_got_the_same_field_id(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1}], key="id")
    lake.branches.create("dev")
    dev = lake.branch("dev")
    lake["t"].add_columns(pa.schema([pa.field("y", pa.int64())]))
    dev["t"].add_columns(pa.schema([pa.field("x", pa.int64())]))
    lake.branches.create("try", from_="dev")
    third = lake.branch("try")
    dev.merge("main", prefer="source")
    assert dev["t"].schema.names == ["id", "y"]
    third["t"].append([{"id": 2, "x": 3}])
    dev.merge("try")
    assert dev["t"].to_arrow().to_pylist() == [{"id": 1, "y": None}, {"id": 2, "y": None}]


def test_columns_of_one_name_that_were_added_on_both_sides_are_two(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1}], key="id")
    lake.branches.create("dev")
    for side in (lake, lake.branch("dev")):
        side["t"].add_columns(pa.schema([pa.field("x", pa.int64())]))
    assert [conflict.kind for conflict in lake.merge("dev", dry_run=True).conflicts] == ["schema"]


def test_a_copy_of_a_column_that_was_retyped_is_another_column(tmp_path: Path) -> None:
    """The marks by which a merge knows a column are not copied with its values."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"id": [1, 2], "v": pa.array([10, 20], pa.int32())}), key="id")
    lake["t"].alter_columns({"v": {"type": pa.int64()}})
    lake["t"].add_columns({"y": "v"})
    lake.create_table("copy", lake["t"].to_arrow())
    lake.branches.create("dev")
    dev = lake.branch("dev")
    for name in ("t", "copy"):
        dev[name].update({"y": "7"}, "id = 1")
        lake[name].update({"v": "99"}, "id = 2")
    lake.merge("dev")
    for name in ("t", "copy"):
        rows = sorted((row["id"], row["v"], row["y"]) for row in lake[name].to_arrow().to_pylist())
        assert rows == [(1, 10, 7), (2, 99, 20)]


@pytest.mark.contract("B16")
def test_a_column_that_got_the_field_id_of_one_that_was_dropped_is_another_column(tmp_path: Path) -> None:
    """The value of the dropped column was taken for one of the new column."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1}], key="id")
    lake["t"].add_columns({"old": "2"})
    lake.branches.create("dev")
    lake["t"].drop_columns(["old"])
    lake["t"].add_columns(pa.schema([pa.field("new", pa.float64())]))
    lake.branch("dev")["t"].append([{"id": 2, "old": 7}])

    lake.merge("dev")

    assert sorted(lake["t"].to_arrow().to_pylist(), key=str) == [{"id": 1, "new": None}, {"id": 2, "new": None}]
