"""Each clause by itself, and several of them together, by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import conroi
from conroi.merge.builder import MergeBuilder, MergeResult

SOURCE = [{"id": 2, "n": 200, "s": "B"}, {"id": 3, "n": 300, "s": "C"}, {"id": 4, "n": 400, "s": "D"}]


def merge(table: conroi.Table) -> MergeBuilder:
    """1, 2 and 3 are in the table; 2, 3 and 4 in the source."""
    return table.merge(SOURCE, on="id")


def ns(result: MergeResult | conroi.Table) -> dict[Any, Any]:
    table = result.table if isinstance(result, MergeResult) else result
    return {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}


def counts(result: MergeResult) -> tuple[int, int, int]:
    return result.rows_inserted, result.rows_updated, result.rows_deleted


# ---------------------------------------------------------------------------------- one by one


def test_matched_update_all_takes_the_sources_values(table: conroi.Table) -> None:
    done = merge(table).when_matched_update_all().execute()
    assert (ns(done), counts(done)) == ({1: 10, 2: 200, 3: 300}, (0, 2, 0))


def test_matched_update_computes_from_both_sides(table: conroi.Table) -> None:
    done = merge(table).when_matched_update({"n": "target.n + source.n"}).execute()
    assert (ns(done), counts(done)) == ({1: 10, 2: 220, 3: None}, (0, 2, 0))


def test_matched_delete_deletes_the_matching_rows(table: conroi.Table) -> None:
    done = merge(table).when_matched_delete().execute()
    assert (ns(done), counts(done)) == ({1: 10}, (0, 0, 2))


def test_not_matched_insert_all(table: conroi.Table) -> None:
    done = merge(table).when_not_matched_insert_all().execute()
    assert (ns(done), counts(done)) == ({1: 10, 2: 20, 3: None, 4: 400}, (1, 0, 0))


def test_not_matched_insert_computes_and_leaves_the_rest_null(table: conroi.Table) -> None:
    done = merge(table).when_not_matched_insert({"id": "source.id", "s": "upper('new')"}).execute()
    assert done.table.to_arrow(filter="id = 4").to_pylist() == [{"id": 4, "n": None, "s": "NEW"}]


def test_not_matched_by_source_update(table: conroi.Table) -> None:
    done = merge(table).when_not_matched_by_source_update({"n": "target.n * -1", "s": "'gone'"}).execute()
    assert (ns(done), counts(done)) == ({1: -10, 2: 20, 3: None}, (0, 1, 0))
    assert done.table.to_arrow(filter="id = 1")["s"].to_pylist() == ["gone"]


def test_not_matched_by_source_delete(table: conroi.Table) -> None:
    done = merge(table).when_not_matched_by_source_delete().execute()
    assert (ns(done), counts(done)) == ({2: 20, 3: None}, (0, 0, 1))


# ---------------------------------------------------------------------------------- conditions

CONDITIONS = {
    "when_matched_update_all": ("source.n > 200", {1: 10, 2: 20, 3: 300}),
    "when_matched_delete": ("target.n = 20", {1: 10, 3: None}),
    "when_not_matched_insert_all": ("source.n > 400", {1: 10, 2: 20, 3: None}),
    "when_not_matched_by_source_delete": ("target.n > 10", {1: 10, 2: 20, 3: None}),
}


@pytest.mark.parametrize("clause", CONDITIONS)
def test_a_condition_chooses_among_the_rows(clause: str, table: conroi.Table) -> None:
    condition, expected = CONDITIONS[clause]
    assert ns(getattr(merge(table), clause)(condition).execute()) == expected


@pytest.mark.parametrize("condition", ["target.n > 5", "NULL", "target.n > NULL", "CAST(NULL AS BOOLEAN)"])
def test_a_condition_that_is_null_does_not_hold(condition: str, table: conroi.Table) -> None:
    done = table.merge([{"id": 3, "n": 1}], on="id").when_matched_update_all(condition).execute()
    assert (ns(done)[3], done.version) == (None, 1)


def test_conditions_of_updates_with_values(table: conroi.Table) -> None:
    done = (
        merge(table)
        .when_matched_update({"n": "0"}, "source.s = 'C'")
        .when_not_matched_insert({"id": "source.id", "n": "1"}, condition="source.id = 4")
        .when_not_matched_by_source_update({"n": "2"}, condition="target.s = 'a'")
        .execute()
    )
    assert (ns(done), counts(done)) == ({1: 2, 2: 20, 3: 0, 4: 1}, (1, 2, 0))


# -------------------------------------------------------------------------------- several of them


def test_the_first_clause_that_holds_wins(table: conroi.Table) -> None:
    done = (
        merge(table)
        .when_matched_update({"n": "1"}, "source.id = 2")
        .when_matched_delete("source.id >= 2")
        .when_matched_update_all()
        .execute()
    )
    assert (ns(done), counts(done)) == ({1: 10, 2: 1}, (0, 1, 1))


def test_in_another_order_another_one_wins(table: conroi.Table) -> None:
    done = merge(table).when_matched_delete("source.id >= 2").when_matched_update({"n": "1"}, "source.id = 2").execute()
    assert (ns(done), counts(done)) == ({1: 10}, (0, 0, 2))


def test_the_first_wins_among_inserts_and_among_rows_of_the_table_too(table: conroi.Table) -> None:
    source = [{"id": 3, "n": 0}, {"id": 4, "n": 4}, {"id": 5, "n": 5}, {"id": 6, "n": 6}]
    done = (
        table.merge(source, on="id")
        .when_not_matched_insert({"id": "source.id", "n": "-1"}, "source.id > 5")
        .when_not_matched_insert_all("source.id > 4")
        .when_not_matched_by_source_update({"n": "0"}, "target.id = 1")
        .when_not_matched_by_source_delete()
        .execute()
    )
    assert (ns(done), counts(done)) == ({1: 0, 3: None, 5: 5, 6: -1}, (2, 1, 1))


def test_all_kinds_in_one_version(table: conroi.Table) -> None:
    done = (
        merge(table)
        .when_not_matched_insert_all()
        .when_matched_update_all("source.id = 2")
        .when_matched_delete()
        .when_not_matched_by_source_update({"n": "target.n + 1"})
        .execute(message="all at once")
    )
    assert (ns(done), counts(done), done.version) == ({1: 11, 2: 200, 4: 400}, (1, 2, 1), 2)
    commit = done.table.history(1)[0]
    assert (commit.operation, commit.message) == ("Update", "all at once")


def test_a_builder_is_a_value_and_can_be_used_again(table: conroi.Table) -> None:
    base = merge(table).when_matched_update_all()
    with_insert = base.when_not_matched_insert_all()
    assert counts(base.execute()) == (0, 2, 0)
    assert counts(with_insert.execute()) == (1, 2, 0)
    assert counts(with_insert.execute()) == (0, 3, 0), "on the newest version each time"


# ---------------------------------------------------------------------------------- nothing to do


@pytest.mark.parametrize(
    "nothing",
    [
        lambda m: m.when_matched_update_all("source.n < 0"),
        lambda m: m.when_matched_delete("false"),
        lambda m: m.when_not_matched_insert_all("source.id > 100"),
        lambda m: m.when_not_matched_by_source_delete("target.id = 2"),
    ],
)
def test_a_merge_that_finds_nothing_to_do_makes_no_version(nothing: Any, table: conroi.Table) -> None:
    done = nothing(merge(table)).execute()
    assert (done.version, counts(done), table.versions()) == (1, (0, 0, 0), [1])


@pytest.mark.parametrize(
    "source", [[], pa.table({"id": pa.array([], pa.int64())}), pa.schema([("id", pa.int8())]).empty_table()]
)
def test_a_source_without_rows_matches_nothing(source: Any, table: conroi.Table) -> None:
    builder = table.merge(source, on="id")
    assert builder.when_matched_update_all().when_not_matched_insert_all().execute().version == 1
    done = builder.when_not_matched_by_source_delete("target.id < 3").execute()
    assert (ns(done), counts(done)) == ({3: None}, (0, 0, 2))


def test_into_a_table_without_rows(uri: str) -> None:
    table = conroi.create_table(uri, pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    done = (
        table.merge([{"id": 1, "n": 2}], on="id")
        .when_matched_update({"n": "target.n"})
        .when_not_matched_by_source_delete("target.n = 1")
        .when_not_matched_insert_all()
        .execute()
    )
    assert (ns(done), counts(done)) == ({1: 2}, (1, 0, 0))


def test_all_rows_of_the_table_may_leave(table: conroi.Table) -> None:
    done = table.merge(SOURCE, on="id").when_matched_delete().when_not_matched_by_source_delete().execute()
    assert (ns(done), counts(done)) == ({}, (0, 0, 3))


@pytest.mark.contract("E5")
def test_parameters_of_a_clause_are_values_whatever_they_hold(table: conroi.Table) -> None:
    done = (
        table.merge([{"id": 1, "n": 5}, {"id": 2, "n": 50}, {"id": 7, "n": 1}, {"id": 8, "n": 2}], on="id")
        .when_matched_update(
            {"s": ":s", "n": "source.n + :more"}, "source.n > :n", params={"s": "it's", "n": 9, "more": 1}
        )
        .when_not_matched_insert_all("source.id IN :ids", params={"ids": [8, 9]})
        .when_not_matched_by_source_delete("target.s = :s", params={"s": "x' OR true OR s = '"})
        .execute()
    )
    assert counts(done) == (1, 1, 0)
    assert done.table.to_arrow(filter="id = 2").to_pylist() == [{"id": 2, "n": 51, "s": "it's"}]
    with pytest.raises(conroi.InvalidInputError, match="no parameter :other"):
        table.merge(SOURCE, on="id").when_matched_delete("source.n > :n", params={"n": 1, "other": 2})
    with pytest.raises(conroi.InvalidInputError, match=":n has no value"):
        table.merge(SOURCE, on="id").when_matched_update_all("source.n > :n", params={})


# ------------------------------------------------------------------------------- some columns only


def test_an_update_leaves_columns_alone_that_the_source_lacks(table: conroi.Table) -> None:
    done = table.merge([{"id": 1, "s": "new"}], on="id").when_matched_update_all().execute()
    assert done.table.to_arrow(filter="id = 1").to_pylist() == [{"id": 1, "n": 10, "s": "new"}]


def test_an_insert_makes_them_null(table: conroi.Table) -> None:
    done = table.merge([{"id": 9}], on="id").when_not_matched_insert_all().execute()
    assert done.table.to_arrow(filter="id = 9").to_pylist() == [{"id": 9, "n": None, "s": None}]


def test_columns_may_come_in_any_order_and_in_narrower_types(table: conroi.Table) -> None:
    source = pa.table({"s": ["x"], "n": pa.array([1], pa.int8()), "id": pa.array([1], pa.int16())})
    done = table.merge(source, on="id").when_matched_update_all().execute()
    assert done.table.to_arrow(filter="id = 1").to_pylist() == [{"id": 1, "n": 1, "s": "x"}]
    assert done.table.schema == table.schema


def test_what_only_expressions_need_may_have_any_name_and_type(table: conroi.Table) -> None:
    source = pa.table({"id": [1], "delta": pa.array([5], pa.int8()), "when": [["a", "list"]]})
    done = table.merge(source, on="id").when_matched_update({"n": "target.n - source.delta"}).execute()
    assert ns(done)[1] == 5
