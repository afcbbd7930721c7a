"""Columns by expression on a table without rows; and what is said of decimals that pylance does not compare."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi

SCHEMA = pa.schema([("n", pa.int32()), ("s", pa.string())])
EXPRESSIONS = {"c": "n + 1", "t": "concat(s, 'x')", "one": "1"}


def test_an_expression_says_its_type_without_rows(tmp_path: Path) -> None:
    """I19: was refused. The types are those that the same expressions give in a table with rows."""
    empty = conroi.create_table(str(tmp_path / "empty"), SCHEMA).add_columns(EXPRESSIONS)
    filled = conroi.create_table(str(tmp_path / "filled"), pa.Table.from_pylist([{"n": 1, "s": "a"}], SCHEMA))

    assert empty.schema == filled.add_columns(EXPRESSIONS).schema
    assert lance.dataset(tmp_path / "empty").schema.names == ["n", "s", "c", "t", "one"]
    rows = [{"n": 5, "s": "b", "c": 7, "t": "y", "one": 3}]
    assert empty.append(rows).to_arrow().to_pylist() == rows


def test_on_an_empty_table_of_a_branch_and_in_a_transaction(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", SCHEMA)
    lake.branches.create("dev")
    dev = lake.branch("dev")
    dev["t"].add_columns({"c": "n + 1"})
    with dev.begin() as tx:
        tx.create_table("new", SCHEMA)
        tx["new"].add_columns({"c": "n + 1"})

    for name in ("t", "new"):
        assert conroi.connect(lake.uri, branch="dev")[name].schema.field("c").type == pa.int32()
    assert lake["t"].schema.names == ["n", "s"]


def test_concurrent_rows_have_the_column(tmp_path: Path) -> None:
    """The column is never null, and rows without it came first: the work is done again on them."""
    table = conroi.create_table(str(tmp_path / "t"), SCHEMA)
    tx = table.begin()
    tx.add_columns({"one": "1"})
    table.append([{"n": 5, "s": "b"}])
    with pytest.raises(conroi.ConflictError):
        tx.commit()
    assert table.add_columns({"one": "1"}).to_arrow().to_pylist() == [{"n": 5, "s": "b", "one": 1}]


@pytest.mark.parametrize(
    "verb",
    [
        lambda table, where: table.delete(where),
        lambda table, where: table.update({"id": "id + 1"}, where),
        lambda table, where: table.to_arrow(filter=where),
    ],
    ids=["delete", "update", "read"],
)
def test_a_decimal_is_compared_with_a_decimal(tmp_path: Path, verb: Any) -> None:
    """pylance takes 1.5 for a float, which it does not compare with a decimal; the hint says what it does compare."""
    amounts = pa.array([Decimal("1.00"), Decimal("2.00")], pa.decimal128(10, 2))
    table = conroi.create_table(str(tmp_path / "t"), pa.table({"id": [1, 2], "m": amounts}))
    with pytest.raises(conroi.InvalidInputError) as refused:
        verb(table, "m > 1.5")
    assert "CAST(1.5 AS DECIMAL(10, 2))" in str(refused.value.hint)
    verb(table, "m > CAST(1.5 AS DECIMAL(10, 2))")


def test_a_column_is_given_a_type_that_values_of_deleted_rows_do_not_fit(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    table = lake.create_table("t", [{"n": 1}, {"n": 2**40}, {"n": 3}])
    table.delete("n > 3")
    table.alter_columns({"n": {"type": pa.int32()}})
    assert lake["t"].to_arrow().to_pydict() == {"n": [1, 3]}
    assert lance.dataset(table.uri).to_table().to_pydict() == {"n": [1, 3]}


def test_columns_that_were_never_written_are_read_when_all_others_are_dropped(tmp_path: Path) -> None:
    """pylance reads no fragment that has no data for any column of the table."""
    lake = conroi.connect(tmp_path / "lake")
    table = lake.create_table("t", [{"n": 1}, {"n": 2}])
    table.append([{"n": 3}])
    table.delete("n = 2")
    table.add_columns(pa.schema([pa.field("x", pa.int32()), pa.field("y", pa.struct([("p", pa.string())]))]))
    table.drop_columns(["n"])
    expected = [{"x": None, "y": None}] * 2
    assert lake["t"].to_arrow().to_pylist() == expected
    assert lance.dataset(table.uri).to_table().to_pylist() == expected
    table.append([{"x": 1, "y": {"p": "a"}}])
    table.compact()
    assert lake["t"].to_arrow().to_pylist() == [*expected, {"x": 1, "y": {"p": "a"}}]


@pytest.mark.parametrize("how", ["not null", "key"])
def test_nulls_of_deleted_rows_do_not_stand_in_the_way_of_a_column_that_is_never_null(tmp_path: Path, how: str) -> None:
    """pylance refuses to read deleted rows that are null where the column may not be."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"id": ["a", None, "b", "c"], "n": [1, 2, 3, 4]}))
    lake["t"].delete("id IS NULL")
    if how == "key":
        lake["t"].declare_key("id")
    else:
        lake["t"].alter_columns({"id": {"nullable": False}})
    lake["t"].alter_columns({"n": {"type": pa.int32()}})
    lake["t"].add_columns({"m": "concat(id, 'x')"})
    lake["t"].update({"n": "9"}, "id = 'c'", mode="columns")
    with lake.begin() as tx:
        tx["t"].delete("id = 'a'")
        tx["t"].delete("id = 'b'")
    assert lake["t"].key == (("id",) if how == "key" else ())
    assert lake["t"].schema.field("id").nullable is False
    expected = [{"id": "c", "n": 9, "m": "cx"}]
    assert lake["t"].to_arrow().to_pylist() == expected
    assert lance.dataset(lake["t"].uri).to_table().to_pylist() == expected
    assert lake.doctor(deep=True).is_healthy
