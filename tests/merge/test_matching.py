"""Which rows have the same key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import conroi
from conroi import DuplicateKeyError, InvalidInputError, NotFoundError
from conroi.data.keys import FEW_KEYS
from conroi.merge.builder import MergeResult
from tests.support.arrow import column_values
from tests.support.refusals import refused


def upsert(table: conroi.Table, source: Any, on: Any = "id") -> MergeResult:
    return table.merge(source, on=on).when_matched_update_all().when_not_matched_insert_all().execute()


def counts(result: MergeResult) -> tuple[int, int, int]:
    return result.rows_inserted, result.rows_updated, result.rows_deleted


# ------------------------------------------------------------------------------------ nulls


def test_null_keys_match_nothing_not_even_each_other(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"id": [1, None], "n": [1, 2]}))
    done = upsert(table, pa.table({"id": [1, None, None], "n": [10, 20, 30]}))
    assert counts(done) == (2, 1, 0)
    assert sorted(column_values(done.table.to_arrow()["n"])) == [2, 10, 20, 30]


def test_rows_with_null_keys_are_among_those_that_the_source_does_not_have(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"id": [1, None], "n": [1, 2]}))
    done = table.merge([{"id": 1}, {"id": None}], on="id").when_not_matched_by_source_delete().execute()
    assert (counts(done), done.table.to_arrow()["n"].to_pylist()) == ((0, 0, 1), [1])


def test_one_null_part_makes_a_composite_key_null(uri: str) -> None:
    data = pa.table({"a": [1, 1], "b": ["x", None], "n": [1, 2]})
    done = upsert(conroi.create_table(uri, data), data, on=["a", "b"])
    assert counts(done) == (1, 1, 0)


def test_under_a_declared_key_a_null_key_may_not_come_in(table: conroi.Table) -> None:
    with refused(table, InvalidInputError, "'id'", "null"):
        upsert(table, [{"id": None, "n": 1}])
    done = table.merge([{"id": None, "n": 1}, {"id": 1, "n": 5}], on="id").when_matched_update_all().execute()
    assert counts(done) == (0, 1, 0), "but it does no harm where nothing is inserted"


# ------------------------------------------------------------------------------------ doubles


@pytest.mark.parametrize("clause", ["when_matched_update_all", "when_not_matched_insert_all"])
@pytest.mark.parametrize("key", [1, 9])
def test_source_keys_that_come_twice_are_named(clause: str, key: int, table: conroi.Table) -> None:
    source = [{"id": key, "n": 1}, {"id": 7, "n": 2}, {"id": key, "n": 3}]
    with refused(table, DuplicateKeyError, str(key)) as caught:
        getattr(table.merge(source, on="id"), clause)().execute()
    assert isinstance(caught.value, DuplicateKeyError)
    assert caught.value.keys == ({"id": key},)


def test_of_many_doubles_a_few_are_named_and_the_rest_counted(table: conroi.Table) -> None:
    source = pa.table({"id": [*range(100), *range(100)]})
    with refused(table, DuplicateKeyError, "95 more") as caught:
        upsert(table, source)
    assert isinstance(caught.value, DuplicateKeyError)
    assert len(caught.value.keys) == 5


def test_composite_doubles_are_named_in_full(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"a": [1], "b": ["x"]}))
    with refused(table, DuplicateKeyError, "(2, 'y')") as caught:
        upsert(table, [{"a": 2, "b": "y"}, {"a": 2, "b": "z"}, {"a": 2, "b": "y"}], on=["a", "b"])
    assert isinstance(caught.value, DuplicateKeyError)
    assert caught.value.keys == ({"a": 2, "b": "y"},)


def test_keys_are_compared_in_the_tables_type(uri: str) -> None:
    """As text these differ; as numbers of the table they are the same."""
    table = conroi.create_table(uri, pa.table({"id": pa.array([1], pa.float32()), "n": [1]}))
    source = pa.table({"id": pa.array([0.5, 1], pa.float64()), "n": [5, 6]})
    assert counts(upsert(table, source)) == (1, 1, 0)


def test_nanoseconds_are_named_without_help_from_pandas(uri: str) -> None:
    stamps = pa.array([1, 1], pa.timestamp("ns"))
    table = conroi.create_table(uri, pa.table({"id": stamps.slice(0, 1), "n": [1]}))
    with refused(table, DuplicateKeyError):
        upsert(table, pa.table({"id": stamps, "n": [1, 2]}))


def test_without_a_declared_key_one_row_may_update_several(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"id": [1, 1, 2], "n": [1, 2, 3]}))
    done = upsert(table, [{"id": 1, "n": 9}])
    assert (counts(done), sorted(column_values(done.table.to_arrow()["n"]))) == ((0, 2, 0), [3, 9, 9])


# -------------------------------------------------------------- on columns that are not the key


def test_a_merge_on_other_columns_still_keeps_the_declared_key(table: conroi.Table) -> None:
    with refused(table, DuplicateKeyError, "1"):
        table.merge([{"id": 1, "n": 99}], on="n").when_not_matched_insert_all().execute()
    with refused(table, DuplicateKeyError, "2"):
        table.merge([{"id": 2, "n": 10}], on="n").when_matched_update_all().execute()
    with refused(table, DuplicateKeyError, "5"):
        table.merge([{"id": 1, "n": 10}, {"id": 2, "n": 20}], on="id").when_matched_update({"id": "5"}).execute()
    with refused(table, DuplicateKeyError, "3"):
        table.merge([{"id": 9}], on="id").when_not_matched_insert({"id": "source.id - 6"}).execute()
    with refused(table, DuplicateKeyError, "1"):
        table.merge([{"id": 1}], on="id").when_not_matched_by_source_update({"id": "target.id - 1"}).execute()


def test_a_key_that_one_clause_frees_may_be_taken_by_another(table: conroi.Table) -> None:
    done = (
        table.merge([{"id": 1}, {"id": 9}], on="id")
        .when_matched_delete()
        .when_not_matched_insert({"id": "source.id - 8", "n": "77"})
        .execute()
    )
    assert counts(done) == (1, 0, 1)
    assert done.table.to_arrow(filter="id = 1")["n"].to_pylist() == [77]


def test_part_of_a_composite_key_matches_all_rows_that_have_it(uri: str) -> None:
    data = pa.table({"a": [1, 1, 2], "b": [1, 2, 3], "n": [0, 0, 0]})
    table = conroi.create_table(uri, data, key=["a", "b"])
    done = table.merge([{"a": 1, "n": 5}], on="a").when_matched_update({"n": "source.n"}).execute()
    assert (counts(done), sorted(column_values(done.table.to_arrow()["n"]))) == ((0, 2, 0), [0, 5, 5])
    with refused(done.table, DuplicateKeyError, "(1, 7)"):
        done.table.merge([{"a": 1, "b": 7}], on="a").when_matched_update_all().execute()


# -------------------------------------------------------------------------- through an index


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint8(), pa.string(), pa.large_string(), pa.date32(), pa.float64()])
@pytest.mark.parametrize("count", [1, FEW_KEYS, FEW_KEYS + 1])
def test_an_index_on_the_key_changes_nothing(type_: pa.DataType, count: int, uri: str) -> None:
    known = pa.array(range(100, 240), pa.int32())
    asked = pa.array(range(240 - count, 240) if count < 101 else range(count), pa.int32())
    table = conroi.create_table(uri, pa.table({"id": known.slice(0, 70).cast(type_), "n": [0] * 70}))
    table = table.create_index("id", "BTREE").append(pa.table({"id": known.slice(70).cast(type_), "n": [0] * 70}))
    source = pa.table({"id": asked.cast(type_), "n": [1] * len(asked)})
    expected = len(set(asked.to_pylist()) & set(known.to_pylist()))
    assert counts(upsert(table, source)) == (len(asked) - expected, expected, 0)


def test_quotes_in_keys_are_no_way_out_of_the_condition(uri: str) -> None:
    names = ["it's", "' OR '1'='1", "a\\'b", "", "new\nline"]
    table = conroi.create_table(uri, pa.table({"id": names, "n": [0] * len(names)})).create_index("id", "BTREE")
    assert counts(upsert(table, [{"id": name, "n": 1} for name in names[1:]])) == (0, 4, 0)
    assert counts(upsert(table, [{"id": "x' OR 'y'='y", "n": 1}])) == (1, 0, 0)


# ---------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("on", ["", [], ["id", "id"], ["id", ""]])
def test_on_must_name_columns(on: Any, table: conroi.Table) -> None:
    with refused(table, InvalidInputError, "on="):
        table.merge([{"id": 1}], on=on)


def test_on_must_be_a_column_of_both(table: conroi.Table) -> None:
    with refused(table, NotFoundError, "'zz'"):
        upsert(table, [{"zz": 1}], on="zz")
    with refused(table, InvalidInputError, "'id'"):
        upsert(table, [{"n": 1}])


@pytest.mark.parametrize("value", [[1, 2], {"x": 1}])
def test_rows_cannot_be_told_apart_by_nested_values(value: object, uri: str) -> None:
    table = conroi.create_table(uri, [{"id": value, "n": 1}])
    with refused(table, InvalidInputError, "'id'"):
        upsert(table, [{"id": value, "n": 2}])


def test_columns_that_the_table_does_not_have_are_refused_where_all_are_taken(table: conroi.Table) -> None:
    with refused(table, InvalidInputError, "zz"):
        upsert(table, [{"id": 1, "zz": 1}])


def test_a_key_of_another_kind_is_refused(table: conroi.Table) -> None:
    with refused(table, InvalidInputError, "string"):
        upsert(table, [{"id": "1", "n": 1}])
