"""Adding, dropping, renaming, altering and recomputing columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import conroi
from conroi import InvalidInputError, NotFoundError
from tests.support.arrow import column_values
from tests.support.refusals import refused


@pytest.fixture
def table(uri: str) -> conroi.Table:
    """Two fragments; one row is deleted, so physical and live rows differ."""
    made = conroi.create_table(uri, pa.table({"id": [1, 2, 3], "v": [10, 20, 30]}))
    return made.append(pa.table({"id": [4], "v": [40]})).delete("id = 2")


def column(table: conroi.Table, name: str) -> list[object]:
    return column_values(table.to_arrow([name])[name])


def test_columns_are_added_by_expression(table: conroi.Table) -> None:
    wider = table.add_columns({"sum": "id + v", "text": "'x'", "seven": "7"})
    assert wider.schema.names == ["id", "v", "sum", "text", "seven"]
    assert (column(wider, "sum"), column(wider, "text"), column(wider, "seven")) == ([11, 33, 44], ["x"] * 3, [7] * 3)
    assert wider.version == table.version + 1


def test_columns_are_added_by_a_function_over_batches(table: conroi.Table) -> None:
    seen: list[list[str]] = []

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.schema.names)
        return pa.record_batch({"twice": pc.multiply(batch["v"], 2)})

    assert column(table.add_columns(doubled, read_columns=["v"]), "twice") == [20, 60, 80]
    assert seen == [["v"], ["v"]]


def test_columns_of_nulls_are_added_without_touching_a_data_file(table: conroi.Table) -> None:
    wider = table.add_columns([pa.field("a", pa.string()), pa.field("b", pa.list_(pa.int8()))])
    assert column(wider, "a") == [None] * 3
    assert wider._pinned.manifest.fragments == table._pinned.manifest.fragments
    assert column(wider.append([{"id": 5, "v": 1, "a": "x"}]), "a") == [None, None, None, "x"]
    assert table.add_columns(pa.schema({"c": pa.int8()})).schema.names == ["id", "v", "a", "b", "c"]


def test_what_a_function_raises_is_named_and_changes_nothing(table: conroi.Table) -> None:
    def broken(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise RuntimeError("my mistake")

    with refused(table, InvalidInputError, "my mistake") as caught:
        table.add_columns(broken)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_function_needs_rows_to_know_its_type(uri: str) -> None:
    empty = conroi.create_table(uri, pa.schema({"id": pa.int64()}))
    with refused(empty, InvalidInputError, "pyarrow fields"):
        empty.add_columns(lambda batch: batch)
    assert empty.add_columns(pa.field("x", pa.int64())).schema.names == ["id", "x"]


def test_dropped_data_never_comes_back_under_the_same_name(table: conroi.Table) -> None:
    again = table.drop_columns(["v"]).add_columns(pa.field("v", pa.int64()))
    assert column(again, "v") == [None] * 3
    assert column(again.at(table.version), "v") == [10, 30, 40]


def test_renaming_keeps_the_data(table: conroi.Table) -> None:
    renamed = table.rename_columns({"id": "number", "v": "value"})
    assert (column(renamed, "number"), column(renamed, "value")) == ([1, 3, 4], [10, 30, 40])


def test_names_are_swapped_by_way_of_a_third(table: conroi.Table) -> None:
    with refused(table, InvalidInputError, "third name"):
        table.rename_columns({"id": "v", "v": "id"})
    swapped = table.rename_columns({"id": "x"}).rename_columns({"v": "id"}).rename_columns({"x": "v"})
    assert (column(swapped, "v"), column(swapped, "id")) == ([1, 3, 4], [10, 30, 40])


def test_fields_inside_a_struct_are_dropped_and_renamed_by_path(uri: str) -> None:
    table = conroi.create_table(uri, [{"p": {"x": 1, "y": 2}, "q": 3}])
    assert table.rename_columns({"p.x": "z"}).to_arrow().to_pylist() == [{"p": {"z": 1, "y": 2}, "q": 3}]
    assert table.drop_columns(["p.y"]).to_arrow().to_pylist() == [{"p": {"z": 1}, "q": 3}]
    with refused(table, InvalidInputError, "Drop the whole column"):
        table.drop_columns(["p.z"])
    with refused(table, InvalidInputError, "at least one column"):
        table.drop_columns(["p", "q"])


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        (pa.int32(), pa.int64(), [1, None, 3]),
        (pa.int64(), pa.int8(), [1, None, 3]),
        (pa.int64(), pa.float64(), [1, None, 3]),
        (pa.float64(), pa.float32(), [1.5, None, 2.5]),
        (pa.string(), pa.large_string(), ["a", None, "b"]),
        (pa.binary(), pa.large_binary(), [b"a", None, b"b"]),
        (pa.int64(), pa.decimal128(22, 2), [1, None, 3]),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), [[1], None, [2, 3]]),
    ],
    ids=str,
)
def test_types_change_and_values_stay(before: pa.DataType, after: pa.DataType, values: list[object], uri: str) -> None:
    data = pa.table({"id": [1, 2, 3], "x": pa.array(values, before)})
    altered = conroi.create_table(uri, data).alter_columns({"x": {"type": after}})
    assert altered.schema.field("x").type == after
    assert column(altered, "x") == values
    assert altered.schema.names == ["id", "x"]


def test_a_value_that_does_not_fit_the_new_type_refuses_the_change(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"x": [1, 300]}))
    with refused(table, InvalidInputError, "int8"):
        table.alter_columns({"x": {"type": pa.int8()}})


def test_nullability_changes_both_ways(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"x": [1, 2]}))
    strict = table.alter_columns({"x": {"nullable": False}})
    assert not strict.schema.field("x").nullable
    with refused(strict, InvalidInputError, "may not be null"):
        strict.append(pa.table({"x": pa.array([None], pa.int64())}))
    assert strict.alter_columns({"x": {"nullable": True}}).append([{"x": None}]).count_rows() == 3


def test_type_and_nullability_change_together(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"x": [1, 2]}))
    altered = table.alter_columns({"x": {"type": pa.int32(), "nullable": False}})
    assert altered.schema.field("x") == pa.field("x", pa.int32(), nullable=False)
    assert altered.version == 2


def test_whole_columns_are_computed_anew(table: conroi.Table) -> None:
    replaced = table.replace_column_data({"v": "v / 10"})
    assert (column(replaced, "v"), column(replaced, "id")) == ([1, 3, 4], [1, 3, 4])
    by_function = replaced.replace_column_data(lambda batch: pa.record_batch({"v": pc.negate(batch["v"])}))
    assert column(by_function, "v") == [-1, -3, -4]
    assert [commit.operation for commit in by_function.history(2)] == ["DataReplacement", "DataReplacement"]


def test_replacing_columns_of_an_empty_table_makes_no_version(uri: str) -> None:
    empty = conroi.create_table(uri, pa.schema({"v": pa.int64()}))
    assert empty.replace_column_data({"v": "1"}).version == 1
    with refused(empty, NotFoundError, "nope"):
        empty.replace_column_data({"nope": "1"})


def test_odd_names_work_in_every_verb(uri: str) -> None:
    names = [
        "a b",
        "a%b",
        "a#b?",
        "ünï 😀",
        "it's",
        'say "x"',
        "SELECT",
        "a/b",
        "x" * 300,
        " ",
        "--",
        "(",
        "Case",
        "case",
    ]
    table = conroi.create_table(uri, pa.table({name: [number, 7] for number, name in enumerate(names, start=100)}))
    for number, name in enumerate(names, start=100):
        assert table.to_arrow([name]).to_pylist() == [{name: number}, {name: 7}]
        updated = table.update({name: f"`{name}` + 1"}, where=f"`{name}` = 7", mode="columns")
        updated = updated.update({name: f"`{name}` - 1"}, where=f"`{name}` = 8", mode="rows")
        assert updated.to_arrow([name]).to_pylist() == [{name: number}, {name: 7}]
        renamed = updated.rename_columns({name: "plain"}).rename_columns({"plain": name})
        retyped = renamed.alter_columns({name: {"type": pa.int32(), "nullable": False}})
        assert retyped.schema.field(name).type == pa.int32()
        assert retyped.append(pa.table({other: [999] for other in names})).delete(f"`{name}` = 999").count_rows() == 2
        table = retyped.latest()


@pytest.mark.contract("K5")
@pytest.mark.parametrize("how", ["expression", "function"])
def test_a_copy_of_a_key_column_is_not_part_of_the_key(how: str, tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", [{"id": 1, "v": 1}], key="id")

    def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [batch.column("id")], schema=pa.schema([batch.schema.field(0).with_name("y")])
        )

    table = table.add_columns({"y": "id"} if how == "expression" else copied)
    assert table.key == ("id",)
    done = table.merge([{"id": 1, "v": 2, "y": 7}], on="id").when_matched_update_all().execute()
    assert done.rows_updated == 1
    assert conroi.open_table(tmp_path / "t").key == ("id",)
