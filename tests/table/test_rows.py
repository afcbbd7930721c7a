"""Adding, deleting and replacing rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import conroi
from conroi import InvalidInputError
from tests.support.arrow import column_values
from tests.support.refusals import refused


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(table.to_arrow(["id"])["id"]))


def rows(*numbers: int) -> list[dict[str, object]]:
    return [{"id": number, "name": f"n{number}", "amount": float(number)} for number in numbers]


# ------------------------------------------------------------------------------- append


def test_append_returns_the_new_version_and_leaves_the_old_handle_where_it_was(table: conroi.Table) -> None:
    longer = table.append(rows(4, 5))
    assert (longer.version, longer.count_rows()) == (2, 5)
    assert (table.version, table.count_rows(), ids(table)) == (1, 3, [1, 2, 3])


def test_a_verb_on_an_old_handle_starts_at_the_newest_version(table: conroi.Table) -> None:
    table.append(rows(4))
    assert ids(table.append(rows(5))) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "nothing", [[], pa.table({"id": pa.array([], pa.int64()), "amount": pa.array([], pa.float64())})]
)
def test_appending_no_rows_makes_no_version(nothing: pa.Table, table: conroi.Table) -> None:
    assert table.append(nothing).version == 1
    assert table.versions() == [1]


def test_columns_may_come_in_any_order_and_nullable_ones_may_be_missing(table: conroi.Table) -> None:
    added = table.append(pa.table({"amount": [4.0], "id": [4]}))
    assert added.to_arrow(filter="id = 4").to_pylist() == [{"id": 4, "name": None, "amount": 4.0}]
    assert added.schema == table.schema


def test_values_of_a_narrower_type_are_taken(table: conroi.Table) -> None:
    narrow = pa.table({"id": pa.array([4], pa.int8()), "amount": pa.array([7], pa.int32())})
    assert table.append(narrow).to_arrow(filter="id = 4")["amount"].to_pylist() == [7.0]


def test_new_columns_are_added_in_the_same_version(table: conroi.Table) -> None:
    wider = table.append([{**rows(4)[0], "colour": "red"}], evolve_schema=True)
    assert wider.version == 2
    assert wider.to_arrow(["id", "colour"]).to_pylist() == [
        {"id": 1, "colour": None},
        {"id": 2, "colour": None},
        {"id": 3, "colour": None},
        {"id": 4, "colour": "red"},
    ]
    assert table.schema.names == ["id", "name", "amount"]
    assert wider.append(rows(5), evolve_schema=True).schema == wider.schema


def test_a_new_column_is_nullable_whatever_the_data_says(table: conroi.Table) -> None:
    data = pa.table(
        {"id": [4], "amount": [4.0], "x": [1]},
        schema=pa.schema(
            [pa.field("id", pa.int64()), pa.field("amount", pa.float64()), pa.field("x", pa.int64(), nullable=False)]
        ),
    )
    assert table.append(data, evolve_schema=True).schema.field("x").nullable


def test_a_stream_is_written_as_it_comes(table: conroi.Table) -> None:
    schema = pa.schema({"id": pa.int64(), "amount": pa.float64()})
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(4, 9):
            taken.append(number)
            yield pa.record_batch({"id": [number], "amount": [1.0]}, schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    assert taken == []
    assert ids(table.append(reader)) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_an_error_of_the_users_own_stream_reaches_the_user_and_nothing_is_written(table: conroi.Table) -> None:
    schema = pa.schema({"id": pa.int64(), "amount": pa.float64()})

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [4], "amount": [1.0]}, schema=schema)
        raise ConnectionResetError("my database went away")

    with pytest.raises(ConnectionResetError, match="my database went away"):
        table.append(pa.RecordBatchReader.from_batches(schema, batches()))
    assert ids(table.latest()) == [1, 2, 3]
    assert table.versions() == [1]


# ------------------------------------------------------------------------------- delete


def test_delete_takes_out_the_rows_that_match_and_null_never_does(table: conroi.Table) -> None:
    assert ids(table.delete("name <> 'a'")) == [1, 3]
    assert ids(table.latest().delete("name IS NULL")) == [1]


def test_deleting_nothing_makes_no_version(table: conroi.Table) -> None:
    assert table.delete("id = 99").version == 1
    assert table.delete("false").version == 1
    assert table.versions() == [1]


def test_deleting_everything_leaves_an_empty_table_that_goes_on(table: conroi.Table) -> None:
    empty = table.delete("true")
    assert (empty.count_rows(), empty.to_arrow().num_rows, empty.schema) == (0, 0, table.schema)
    assert ids(empty.append(rows(1))) == [1]


def test_a_condition_may_be_an_expression(table: conroi.Table) -> None:
    assert ids(table.delete((pc.field("id") > 1) & (pc.field("amount") < 3.0))) == [1, 3]


def test_a_condition_may_have_comments_quotes_and_parentheses(table: conroi.Table) -> None:
    assert ids(table.delete("name = 'a' -- not b)")) == [2, 3]
    assert ids(table.latest().delete("(id = 2) /* ) */ AND (name <> ')')")) == [3]


def test_the_condition_is_kept_in_the_transaction_as_it_was_written(table: conroi.Table) -> None:
    deleted = table.delete("id = 1")
    snapshot = deleted._pinned.snapshot
    from conroi.snapshots.snapshot import load_transaction

    transaction = load_transaction(deleted._files.objects, snapshot)
    assert transaction is not None
    assert transaction.wire.delete.predicate == "id = 1"


def test_a_deleted_row_is_deleted_once(table: conroi.Table) -> None:
    once = table.delete("id = 1")
    assert once.delete("id = 1").version == once.version
    assert (once.count_rows(), once.count_rows("id > 0")) == (2, 2)


# ---------------------------------------------------------------------------- overwrite


def test_overwrite_replaces_all_rows_and_keeps_the_schema(table: conroi.Table) -> None:
    replaced = table.overwrite(rows(7, 8))
    assert (ids(replaced), replaced.schema, replaced.key) == ([7, 8], table.schema, ("id",))
    assert ids(replaced.at(1)) == [1, 2, 3]


def test_overwrite_with_no_rows_empties_the_table(table: conroi.Table) -> None:
    assert table.overwrite([]).count_rows() == 0


def test_overwrite_may_bring_other_columns_but_keeps_the_key(table: conroi.Table) -> None:
    other = table.overwrite(pa.table({"id": [7], "colour": ["red"]}))
    assert (other.schema.names, other.key) == (["id", "colour"], ("id",))
    assert not other.schema.field("id").nullable


def test_overwrite_where_replaces_the_rows_that_match_in_one_version(table: conroi.Table) -> None:
    replaced = table.overwrite([{"id": 4, "name": "x", "amount": 2.5}], where="amount >= 2")
    assert (ids(replaced), replaced.version) == ([1, 4], 2)


def test_overwrite_where_may_bring_back_the_keys_that_it_takes_out(table: conroi.Table) -> None:
    replaced = table.overwrite([{"id": 2, "name": "new", "amount": 2.5}], where="amount >= 2")
    assert sorted(replaced.to_arrow(["id", "name"]).to_pylist(), key=str) == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "new"},
    ]


def test_overwrite_where_with_nothing_on_either_side_makes_no_version(table: conroi.Table) -> None:
    assert table.overwrite([], where="id = 99").version == 1


def test_overwrite_where_with_no_rows_deletes(table: conroi.Table) -> None:
    assert ids(table.overwrite([], where="id > 1")) == [1]


@pytest.mark.parametrize("where", ["amount >= 2", pc.field("amount") >= 2, "name = 'b'"])
def test_overwrite_where_refuses_rows_outside_the_condition_also_null_ones(where: object, table: conroi.Table) -> None:
    stray = [{"id": 4, "name": None, "amount": 0.5}]
    with refused(table, InvalidInputError, "1 of the new rows"):
        table.overwrite(stray, where=where)  # type: ignore[arg-type]
