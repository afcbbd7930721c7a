"""What may stand in a condition or a value, and what is said about what may not."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import InvalidInputError
from conroi.merge.builder import MergeBuilder
from conroi.merge.outcome import unqualified
from tests.support.arrow import column_values
from tests.support.refusals import refused


def merge(table: conroi.Table) -> MergeBuilder:
    return table.merge([{"id": 1, "n": 5, "s": "z"}, {"id": 9, "n": 9, "s": "new"}], on="id")


def value_of(table: conroi.Table, key: int = 1, column: str = "n") -> Any:
    return table.to_arrow([column], f"id = {key}")[column].to_pylist()[0]


# ----------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        ("7", 7),
        (None, None),
        ("NULL", None),
        ("source.n", 5),
        ("target.n", 10),
        ("target.n * 2 - source.n", 15),
        ("coalesce(NULL, source.n)", 5),
        ("CAST('12' AS BIGINT)", 12),
        ("length(source.s) + length(target.s)", 2),
        ("(source.n) -- a comment", 5),
        ("SOURCE.n + TARGET.n", 15),
    ],
    ids=str,
)
def test_values_of_matched_rows(value: object, expected: object, table: conroi.Table) -> None:
    assert value_of(merge(table).when_matched_update({"n": value}).execute().table) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7), ("source.n + 1", 10), (None, None)],
    ids=str,
)
def test_values_of_new_rows(value: object, expected: object, table: conroi.Table) -> None:
    done = merge(table).when_not_matched_insert({"id": "source.id", "n": value}).execute()
    assert value_of(done.table, key=9) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7), ("target.n + 1", 21), ("n + 1", 21), (None, None), ("TARGET . n", 20), ("abs(-target.n)", 20)],
    ids=str,
)
def test_values_of_rows_that_the_source_does_not_have(value: object, expected: object, table: conroi.Table) -> None:
    done = merge(table).when_not_matched_by_source_update({"n": value}, "target.id = 2").execute()
    assert value_of(done.table, key=2) == expected


def test_values_need_not_be_computed_from_any_column(table: conroi.Table) -> None:
    done = (
        merge(table)
        .when_matched_update({"n": 0, "s": "'fixed'"}, "true")
        .when_not_matched_insert({"id": 77, "n": 1})
        .when_not_matched_by_source_delete("1 = 1")
        .execute()
    )
    assert done.table.to_arrow().to_pylist() == [{"id": 1, "n": 0, "s": "fixed"}, {"id": 77, "n": 1, "s": None}]


def test_a_value_may_change_the_key_that_was_matched_on(table: conroi.Table) -> None:
    done = merge(table).when_matched_update({"id": "target.id + 100"}).execute()
    assert sorted(column_values(done.table.to_arrow()["id"])) == [2, 3, 101]


def test_keys_may_be_swapped_in_one_merge(table: conroi.Table) -> None:
    source = [{"id": 1, "other": 2}, {"id": 2, "other": 1}]
    done = table.merge(source, on="id").when_matched_update({"id": "source.other"}).execute()
    assert {row["id"]: row["n"] for row in done.table.to_arrow().to_pylist()} == {1: 20, 2: 10, 3: None}


# ------------------------------------------------------------------------------------- types

TYPED: dict[str, tuple[pa.DataType, Any, Any]] = {
    "bool": (pa.bool_(), True, False),
    "int8": (pa.int8(), 1, -7),
    "uint64": (pa.uint64(), 1, 2**64 - 1),
    "float32": (pa.float32(), 1.5, -0.25),
    "decimal": (pa.decimal128(10, 2), Decimal("1.50"), Decimal("-7.25")),
    "date": (pa.date32(), datetime.date(2026, 1, 1), datetime.date(2026, 11, 15)),
    "timestamp": (pa.timestamp("us"), datetime.datetime(2026, 1, 1), datetime.datetime(2026, 11, 15, 12)),
    "large_string": (pa.large_string(), "a", "it's"),
    "binary": (pa.binary(), b"a", b"\0"),
    "fixed binary": (pa.binary(2), b"aa", b"\0\1"),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), "a", "b"),
    "list": (pa.list_(pa.int32()), [1], [2, None]),
    "struct": (pa.struct([("x", pa.int32()), ("y", pa.string())]), {"x": 1, "y": "a"}, {"x": None, "y": "b"}),
    "vector": (pa.list_(pa.float32(), 2), [1.0, 2.0], [3.0, 4.0]),
}


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize("how", ["all", "by expression"])
def test_values_of_every_type_pass_through(name: str, how: str, uri: str) -> None:
    type_, old, new = TYPED[name]
    schema = pa.schema([("id", pa.int64()), ("v", type_), ("w", type_)])
    table = conroi.create_table(uri, pa.table({"id": [1, 2], "v": [old, old], "w": [old, None]}, schema=schema))
    source = pa.table({"id": [2, 3, 4], "v": [new, new, None], "w": [None, new, new]}, schema=schema)
    builder = table.merge(source, on="id")
    if how == "all":
        builder = builder.when_matched_update_all().when_not_matched_insert_all()
    else:
        builder = builder.when_matched_update({"v": "source.v", "w": "source.w"}, "source.w IS NULL")
        builder = builder.when_not_matched_insert({"id": "source.id", "v": "source.v", "w": "source.w"})
    done = builder.when_not_matched_by_source_update({"w": "target.v"}).execute()
    assert sorted(done.table.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "v": old, "w": old},
        {"id": 2, "v": new, "w": None},
        {"id": 3, "v": new, "w": new},
        {"id": 4, "v": None, "w": new},
    ]
    assert done.table.schema == table.schema


def test_parts_of_structs_can_be_compared(uri: str) -> None:
    table = conroi.create_table(uri, [{"id": 1, "at": {"x": 1, "y": 2}}])
    done = table.merge([{"id": 1, "at": {"x": 5, "y": 6}}], on="id").when_matched_update(
        {"at": "source.at"}, "source.at.x > target.at.y"
    )
    assert done.execute().table.to_arrow()["at"].to_pylist() == [{"x": 5, "y": 6}]


# ------------------------------------------------------------------------------------- names

ODD = ["order id", "Größe", "UPPER", "select", "it's", 'with "quotes"', "source", "target", "a-b", "1st", "  x "]


@pytest.mark.parametrize("name", ODD)
def test_columns_with_any_name_are_quoted_with_backticks(name: str, uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"id": [1, 2, 3], name: [10, 20, 30]}))
    source = pa.table({"id": [1, 2, 9], name: [5, 6, 7]})
    done = (
        table.merge(source, on="id")
        .when_matched_update({name: f"target.`{name}` + source.`{name}`"}, f"source.`{name}` < target.`{name}`")
        .when_not_matched_insert({"id": "source.id", name: f"source.`{name}`"}, f"source.`{name}` > 0")
        .when_not_matched_by_source_update({name: f"target.`{name}` * 2"}, f"target.`{name}` = 30")
        .execute()
    )
    assert dict(zip(*(done.table.to_arrow()[c].to_pylist() for c in ("id", name)), strict=True)) == {
        1: 15,
        2: 26,
        3: 60,
        9: 7,
    }


@pytest.mark.parametrize("name", ODD)
def test_and_can_be_matched_on(name: str, uri: str) -> None:
    table = conroi.create_table(uri, pa.table({name: [1, 2], "n": [0, 0]}), key=name).create_index(name, "BTREE")
    done = (
        table.merge([{name: 2, "n": 5}, {name: 3, "n": 6}], on=name)
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert sorted(column_values(done.table.to_arrow()["n"])) == [0, 5, 6]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("target.n > 1", "n > 1"),
        ("TARGET . n + target.m", "n + m"),
        ("s = 'target.n' and target.s = 'it''s target.x'", "s = 'target.n' and s = 'it''s target.x'"),
        ("target.`my target.x` > 1", "`my target.x` > 1"),
        ('target."target.y" = 2', '"target.y" = 2'),
        ("target.target.x = my_target.x", "target.x = my_target.x"),
        ("target.at.target.x = 1", "at.target.x = 1"),
    ],
)
def test_target_is_taken_off_only_where_a_column_begins(text: str, expected: str) -> None:
    assert unqualified(text) == expected


# ------------------------------------------------------------------------------- what is refused

BAD: dict[str, tuple[Any, str]] = {
    "unknown column of the source": (lambda m: m.when_matched_update({"n": "source.zz"}), "source.name (id, n, s)"),
    "unknown column of the table": (lambda m: m.when_matched_update({"n": "target.zz"}), "target.name (id, n, s)"),
    "column of neither": (lambda m: m.when_matched_update({"n": "n + 1"}), "source.name"),
    "target of a new row": (lambda m: m.when_not_matched_insert({"id": "target.id"}), "no target"),
    "source of a row without one": (lambda m: m.when_not_matched_by_source_update({"n": "source.n"}), "no source"),
    "half a condition": (lambda m: m.when_matched_delete("source.n > 1 AN source.n < 3"), "AN"),
    "half a condition on new rows": (lambda m: m.when_not_matched_insert_all("source.n > 1 AN true"), "AN"),
    "half a condition on old rows": (lambda m: m.when_not_matched_by_source_delete("target.n > 1 AN true"), "AN"),
    "no condition": (lambda m: m.when_matched_delete("  "), "blank"),
    "condition that is none": (lambda m: m.when_matched_delete("source.n"), "int64"),
    "condition on new rows that is none": (lambda m: m.when_not_matched_insert_all("source.s"), "string"),
    "condition on old rows that is none": (lambda m: m.when_not_matched_by_source_delete("target.n"), "boolean"),
    "condition that is no text": (lambda m: m.when_matched_delete(True), "True"),
    "parenthesis too many": (lambda m: m.when_matched_delete("source.n > 1) OR (true"), "parenthesis"),
    "value of another type": (lambda m: m.when_matched_update({"n": "'abc'"}), "CAST"),
    "value of a new row of another type": (lambda m: m.when_not_matched_insert({"id": "source.s"}), "CAST"),
    "value of an old row of another type": (lambda m: m.when_not_matched_by_source_update({"n": "target.s"}), "CAST"),
    "value that is cut": (lambda m: m.when_matched_update({"n": "1.5"}), "CAST"),
    "no value": (lambda m: m.when_matched_update({}), "column"),
    "blank value": (lambda m: m.when_matched_update({"n": " "}), "expression"),
    "value that is no expression": (lambda m: m.when_matched_update({"n": [1]}), "value"),
    "null in a column that has none": (lambda m: m.when_not_matched_insert({"n": "1"}), "id"),
    "nothing to do": (lambda m: m, "when_matched"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_cannot_be_done_is_refused_and_leaves_no_trace(bad: str, table: conroi.Table) -> None:
    build, mention = BAD[bad]
    with refused(table, InvalidInputError, mention):
        build(merge(table)).execute()


def test_an_unknown_column_to_set_is_refused(table: conroi.Table) -> None:
    with refused(table, conroi.NotFoundError, "'zz'"):
        merge(table).when_matched_update({"zz": "1"}).execute()


@pytest.mark.parametrize("bad", [name for name in BAD if "null" not in name])
def test_a_mistake_does_not_wait_for_its_first_row(bad: str, table: conroi.Table) -> None:
    """Nothing in this source matches and nothing is new, and the table is empty: the clauses find no rows."""
    empty = table.delete("true")
    build, mention = BAD[bad]
    with refused(empty, InvalidInputError, mention):
        build(
            empty.merge(pa.schema([("id", pa.int64()), ("n", pa.int64()), ("s", pa.string())]).empty_table(), on="id")
        ).execute()


def test_a_value_that_does_not_fit_is_refused(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"id": [1], "n": pa.array([1], pa.int8())}))
    with refused(table, InvalidInputError, "1000"):
        table.merge([{"id": 1}], on="id").when_matched_update({"n": "1000"}).execute()


# ----------------------------------------------------------------------------------- vectors

VECTOR = pa.list_(pa.float32(), 2)
PLAIN = pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("type_", "given", "value"),
    [
        (VECTOR, PLAIN, [1.0, 2.0]),
        (pa.struct([("v", VECTOR)]), pa.struct([("v", PLAIN)]), {"v": [1.0, 2.0]}),
        (pa.list_(VECTOR), pa.list_(PLAIN), [[1.0, 2.0]]),
        (pa.list_(VECTOR, 1), pa.list_(PLAIN), [[1.0, 2.0]]),
    ],
    ids=["vector", "in a struct", "in a list", "in a vector"],
)
def test_null_vectors_come_in_by_expression(tmp_path: Any, type_: pa.DataType, given: pa.DataType, value: Any):
    """I11: pyarrow's cast crashes the process for lists of pylance whose values have no memory."""
    table = conroi.create_table(
        str(tmp_path / "t"), pa.table({"id": [1, 2], "x": pa.array([value, value], type_)}), key="id"
    )
    source = pa.table({"id": [1, 3], "x": pa.array([None, None], given)})

    table = (
        table.merge(source, on="id")
        .when_matched_update({"x": "source.x"})
        .when_not_matched_insert({"id": "source.id", "x": "source.x"})
        .execute()
        .table
    )

    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "x": None}, {"id": 2, "x": value}, {"id": 3, "x": None}]


def test_null_vectors_that_pylance_read_are_taken_for_a_column_of_vectors(tmp_path: Any):
    lance.write_dataset(pa.table({"id": [5, 6], "x": pa.array([None, None], PLAIN)}), tmp_path / "lists")
    table = conroi.create_table(str(tmp_path / "t"), pa.table({"id": [1], "x": pa.array([[1.0, 2.0]], VECTOR)}))

    table = table.append(lance.dataset(tmp_path / "lists").to_table())

    assert table.to_arrow()["x"].to_pylist() == [[1.0, 2.0], None, None]
