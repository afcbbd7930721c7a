"""What cannot be done is refused by a typed error that says what to do, and the table is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import conroi
from conroi import (
    AlreadyExistsError,
    DuplicateKeyError,
    ExpectedVersionMismatch,
    InvalidInputError,
    NotFoundError,
)
from tests.support.refusals import refused

pytestmark = pytest.mark.contract("T12")

Action = Callable[[Any], object]
"""Any, because what is tried here is what a type checker would refuse."""


def row(**values: object) -> list[dict[str, object]]:
    return [{"id": 9, "name": "x", "amount": 9.0, **values}]


def a_generator() -> Iterator[dict[str, object]]:
    yield {"id": 9, "amount": 1.0}


def batch_of_one_row(_batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"name": ["only one"]})


BAD_DATA: dict[str, tuple[Action, type[conroi.ConroiError]]] = {
    "unknown column": (lambda t: t.append(row(colour="red")), InvalidInputError),
    "wrong type": (lambda t: t.append(pa.table({"id": ["one"], "amount": [1.0]})), InvalidInputError),
    "wrong type in a dict": (lambda t: t.append(row(id="one")), InvalidInputError),
    "value that does not fit": (lambda t: t.append(pa.table({"id": [1.5], "amount": [1.0]})), InvalidInputError),
    "number too large": (
        lambda t: t.append(pa.table({"id": pa.array([2**63], pa.uint64()), "amount": [1.0]})),
        InvalidInputError,
    ),
    "null in a column that has none": (
        lambda t: t.append(pa.table({"id": [9], "amount": pa.array([None], pa.float64())})),
        InvalidInputError,
    ),
    "null in a key": (
        lambda t: t.append(pa.table({"id": pa.array([None], pa.int64()), "amount": [1.0]})),
        InvalidInputError,
    ),
    "null in the second batch": (
        lambda t: t.append(
            pa.RecordBatchReader.from_batches(
                pa.schema({"id": pa.int64(), "amount": pa.float64()}),
                [
                    pa.record_batch({"id": [9], "amount": [1.0]}),
                    pa.record_batch(
                        {"id": [8], "amount": [None]}, schema=pa.schema({"id": pa.int64(), "amount": pa.float64()})
                    ),
                ],
            )
        ),
        InvalidInputError,
    ),
    "column missing that may not be null": (lambda t: t.append([{"id": 9}]), InvalidInputError),
    "key missing": (lambda t: t.append([{"amount": 9.0}]), InvalidInputError),
    "a column twice": (
        lambda t: t.append(
            pa.Table.from_arrays([pa.array([9]), pa.array([9]), pa.array([1.0])], ["id", "id", "amount"])
        ),
        InvalidInputError,
    ),
    "key that is there": (lambda t: t.append(row(id=1)), DuplicateKeyError),
    "key twice in the data": (lambda t: t.append([*row(), *row()]), DuplicateKeyError),
    "text as data": (lambda t: t.append("id,amount\n1,2"), InvalidInputError),
    "number as data": (lambda t: t.append(42), InvalidInputError),
    "None as data": (lambda t: t.append(None), InvalidInputError),
    "bytes as data": (lambda t: t.append(b"abc"), InvalidInputError),
    "one dict as data": (lambda t: t.append({"id": 9, "amount": 1.0}), InvalidInputError),
    "generator as data": (lambda t: t.append(a_generator()), InvalidInputError),
    "list of tuples": (lambda t: t.append([(9, "x", 1.0)]), InvalidInputError),
    "list with a number in it": (lambda t: t.append([*row(), 7]), InvalidInputError),
    "rows without columns": (lambda t: t.append([{}]), InvalidInputError),
    "none of the columns": (lambda t: t.append(pa.table({"x": [1]})), InvalidInputError),
    "overwrite without the key": (lambda t: t.overwrite(pa.table({"other": [1]})), InvalidInputError),
    "overwrite with a null key": (
        lambda t: t.overwrite(pa.table({"id": pa.array([None], pa.int64()), "amount": [1.0]})),
        InvalidInputError,
    ),
    "overwrite with a key twice": (lambda t: t.overwrite([*row(), *row()]), DuplicateKeyError),
    "overwrite where with strays": (lambda t: t.overwrite(row(), where="id = 1"), InvalidInputError),
    "evolving a column that has no name": (
        lambda t: t.append(pa.table({"id": [9], "amount": [1.0], "": [1]}), evolve_schema=True),
        InvalidInputError,
    ),
}

BAD_CONDITIONS: dict[str, tuple[Action, type[conroi.ConroiError]]] = {
    "malformed": (lambda t: t.delete("id = = 3"), InvalidInputError),
    "half a condition": (lambda t: t.delete("id >"), InvalidInputError),
    "unknown column": (lambda t: t.delete("colour = 'red'"), InvalidInputError),
    "unknown function": (lambda t: t.delete("frobnicate(id) = 1"), InvalidInputError),
    "not a condition": (lambda t: t.delete("id + 1"), InvalidInputError),
    "text against number": (lambda t: t.delete("id = 'abc'"), InvalidInputError),
    "blank": (lambda t: t.delete("   "), InvalidInputError),
    "None": (lambda t: t.delete(None), InvalidInputError),
    "number": (lambda t: t.delete(3), InvalidInputError),
    "a callable": (lambda t: t.delete(lambda r: r), InvalidInputError),
    "two statements": (lambda t: t.delete("id = 1; DROP TABLE t"), InvalidInputError),
    "a misspelt AND": (lambda t: t.delete("id = 1 AN name = 'b'"), InvalidInputError),
    "a comma": (lambda t: t.delete("id = 1, name = 'b'"), InvalidInputError),
    "more than a condition": (lambda t: t.delete("id = 1 LIMIT 1"), InvalidInputError),
    "one parenthesis too many": (lambda t: t.delete("id = 1)"), InvalidInputError),
    "parentheses the wrong way round": (lambda t: t.delete("id = 1) OR (true"), InvalidInputError),
    "a quote without its other": (lambda t: t.delete("name = 'b"), InvalidInputError),
    "an aggregate": (lambda t: t.delete("max(id) = 3"), InvalidInputError),
    "an expression that fails": (lambda t: t.delete("1 / (id - id) = 1"), InvalidInputError),
    "an expression on an unknown column": (lambda t: t.delete(pc.field("colour") == 1), InvalidInputError),
    "an expression that is no condition": (lambda t: t.delete(pc.field("id") + 1), InvalidInputError),
    "in overwrite": (lambda t: t.overwrite(row(), where="id = = 3"), InvalidInputError),
    "in update": (lambda t: t.update({"name": "'x'"}, where="id = = 3"), InvalidInputError),
    "in a read": (lambda t: t.to_arrow(filter="id = = 3"), InvalidInputError),
    "in a count": (lambda t: t.count_rows("colour = 1"), InvalidInputError),
    "columns of a read": (lambda t: t.to_arrow(columns=["colour"]), InvalidInputError),
    "columns of a read as text": (lambda t: t.to_arrow(columns="id"), InvalidInputError),
    "expression of a read": (lambda t: t.to_arrow(columns={"x": "id +"}), InvalidInputError),
    "a read in batches": (lambda t: list(t.to_batches(filter="id = = 3")), InvalidInputError),
    "a negative limit": (lambda t: t.to_arrow(limit=-1), InvalidInputError),
}

BAD_UPDATES: dict[str, tuple[Action, type[conroi.ConroiError]]] = {
    "nothing": (lambda t: t.update({}), InvalidInputError),
    "unknown column": (lambda t: t.update({"colour": "'red'"}), NotFoundError),
    "malformed expression": (lambda t: t.update({"name": "upper(("}), InvalidInputError),
    "blank expression": (lambda t: t.update({"name": " "}), InvalidInputError),
    "two expressions in one": (lambda t: t.update({"name": "'x', amount = 2"}), InvalidInputError),
    "more than an expression": (lambda t: t.update({"name": "name FROM t"}), InvalidInputError),
    "an expression that fails": (lambda t: t.update({"amount": "1 / (id - id)"}), InvalidInputError),
    "a text that is no number": (lambda t: t.update({"amount": "CAST(name AS DOUBLE)"}), InvalidInputError),
    "unknown column in the expression": (lambda t: t.update({"name": "colour"}), InvalidInputError),
    "wrong type": (lambda t: t.update({"amount": "'much'"}), InvalidInputError),
    "null where there is none": (lambda t: t.update({"amount": None}), InvalidInputError),
    "null where there is none, by columns": (lambda t: t.update({"amount": None}, mode="columns"), InvalidInputError),
    "an object": (lambda t: t.update({"name": object()}), InvalidInputError),
    "a mode there is not": (lambda t: t.update({"name": "'x'"}, mode="fast"), InvalidInputError),
    "keys that become the same": (lambda t: t.update({"id": "7"}), DuplicateKeyError),
    "a key that becomes another's": (lambda t: t.update({"id": "1"}, where="id = 2"), DuplicateKeyError),
    "values that are no mapping": (lambda t: t.update("name = 'x'"), InvalidInputError),
}

BAD_COLUMNS: dict[str, tuple[Action, type[conroi.ConroiError]]] = {
    "add one that is there": (lambda t: t.add_columns({"name": "'x'"}), InvalidInputError),
    "add by a malformed expression": (lambda t: t.add_columns({"x": "id + "}), InvalidInputError),
    "add by an unknown column": (lambda t: t.add_columns({"x": "colour"}), InvalidInputError),
    "add none": (lambda t: t.add_columns([]), InvalidInputError),
    "add nulls that may not be": (
        lambda t: t.add_columns(pa.field("x", pa.int64(), nullable=False)),
        InvalidInputError,
    ),
    "add with a function that loses rows": (lambda t: t.add_columns(lambda b: batch_of_one_row(b)), InvalidInputError),
    "add with a function that returns no batch": (lambda t: t.add_columns(lambda b: b.num_rows), InvalidInputError),
    "add a number": (lambda t: t.add_columns(5), InvalidInputError),
    "add one with a reserved name": (lambda t: t.add_columns(pa.field("_rowid", pa.int64())), InvalidInputError),
    "drop an unknown one": (lambda t: t.drop_columns(["colour"]), NotFoundError),
    "drop by a text": (lambda t: t.drop_columns("name"), InvalidInputError),
    "drop none": (lambda t: t.drop_columns([]), InvalidInputError),
    "drop the key": (lambda t: t.drop_columns(["id"]), InvalidInputError),
    "rename an unknown one": (lambda t: t.rename_columns({"colour": "x"}), NotFoundError),
    "rename to a name that is taken": (lambda t: t.rename_columns({"name": "amount"}), InvalidInputError),
    "rename to a reserved name": (lambda t: t.rename_columns({"name": "_rowid"}), InvalidInputError),
    "rename to a path": (lambda t: t.rename_columns({"name": "a.b"}), InvalidInputError),
    "rename to nothing": (lambda t: t.rename_columns({"name": ""}), InvalidInputError),
    "rename none": (lambda t: t.rename_columns({}), InvalidInputError),
    "alter an unknown one": (lambda t: t.alter_columns({"colour": {"nullable": True}}), NotFoundError),
    "alter none": (lambda t: t.alter_columns({}), InvalidInputError),
    "alter what cannot be": (lambda t: t.alter_columns({"name": {"colour": 1}}), InvalidInputError),
    "alter to a type that cannot be": (lambda t: t.alter_columns({"name": {"type": pa.int64()}}), InvalidInputError),
    "forbid nulls that are there": (lambda t: t.alter_columns({"name": {"nullable": False}}), InvalidInputError),
    "let the key be null": (lambda t: t.alter_columns({"id": {"nullable": True}}), InvalidInputError),
    "another type for the key": (lambda t: t.alter_columns({"id": {"type": pa.int32()}}), InvalidInputError),
    "replace an unknown one": (lambda t: t.replace_column_data({"colour": "'red'"}), NotFoundError),
    "replace by a malformed expression": (lambda t: t.replace_column_data({"name": "(("}), InvalidInputError),
    "replace by nulls that may not be": (
        lambda t: t.replace_column_data({"amount": "CAST(NULL AS DOUBLE)"}),
        InvalidInputError,
    ),
    "index an unknown one": (lambda t: t.create_index("colour"), NotFoundError),
    "index of an unknown kind": (lambda t: t.create_index("id", "HASH"), InvalidInputError),
    "index that does not suit the type": (lambda t: t.create_index("id", "INVERTED"), InvalidInputError),
    "drop an unknown index": (lambda t: t.drop_index("nope"), NotFoundError),
    "sort by an unknown one": (lambda t: t.compact("colour"), NotFoundError),
}

BAD_VERSIONS: dict[str, tuple[Action, type[conroi.ConroiError]]] = {
    "there never was": (lambda t: t.at(77), NotFoundError),
    "zero": (lambda t: t.at(0), InvalidInputError),
    "negative": (lambda t: t.at(-1), InvalidInputError),
    "a bool": (lambda t: t.at(True), InvalidInputError),
    "a text": (lambda t: t.at("1"), InvalidInputError),
    "too large": (lambda t: t.at(1 << 64), InvalidInputError),
    "a detached one there is not": (lambda t: t.at(1 << 63 | 5), NotFoundError),
    "none given": (lambda t: t.at(), InvalidInputError),
    "two given": (lambda t: t.at(1, tag="x"), InvalidInputError),
    "number and time": (lambda t: t.at(1, as_of="2030-01-01"), InvalidInputError),
    "an unknown tag": (lambda t: t.at(tag="nope"), NotFoundError),
    "a tag that cannot be": (lambda t: t.at(tag="../../etc"), InvalidInputError),
    "a tag that is no text": (lambda t: t.at(tag=5), InvalidInputError),
    "before there was a table": (lambda t: t.at(as_of=datetime(1999, 1, 1)), NotFoundError),
    "no moment": (lambda t: t.at(as_of="yesterday"), InvalidInputError),
    "a number as moment": (lambda t: t.at(as_of=5), InvalidInputError),
    "restore what never was": (lambda t: t.restore(77), NotFoundError),
    "tag what never was": (lambda t: t.tags.create("x", 77), NotFoundError),
    "tag version 0": (lambda t: t.tags.create("x", 0), NotFoundError),
    "move a tag that is not there": (lambda t: t.tags.move("nope"), NotFoundError),
    "delete a tag that is not there": (lambda t: t.tags.delete("nope"), NotFoundError),
    "history of less than nothing": (lambda t: t.history(-1), InvalidInputError),
}

BAD_SETTINGS: dict[str, tuple[Action, type[conroi.ConroiError]]] = {
    "negative retries": (lambda t: t.append(row(), retries=-1), InvalidInputError),
    "retries that are no number": (lambda t: t.append(row(), retries="many"), InvalidInputError),
    "retries that are a bool": (lambda t: t.append(row(), retries=True), InvalidInputError),
    "a message that is no text": (lambda t: t.append(row(), message=5), InvalidInputError),
    "properties that are no text": (lambda t: t.append(row(), properties={"a": 1}), InvalidInputError),
    "another version than expected": (lambda t: t.append(row(), expect=77), ExpectedVersionMismatch),
    "an expected version that is no number": (lambda t: t.append(row(), expect="1"), InvalidInputError),
    "if_moved is neither": (lambda t: t.overwrite(row(), if_moved="maybe"), InvalidInputError),
    "if_moved of restore is neither": (lambda t: t.restore(1, if_moved="maybe"), InvalidInputError),
    "a setting that is no text": (lambda t: t.set_config({"a": 1}), InvalidInputError),
    "a setting whose name is no text": (lambda t: t.set_config({5: "x"}), InvalidInputError),
    "a setting without a name": (lambda t: t.set_config({"": "x"}), InvalidInputError),
    "no metadata": (lambda t: t.set_metadata(), InvalidInputError),
    "metadata of an unknown column": (lambda t: t.set_metadata(fields={"colour": {"a": "b"}}), NotFoundError),
    "a base without a path": (lambda t: t.add_base(" "), InvalidInputError),
    "no fragment ids": (lambda t: t.reserve_fragments(0), InvalidInputError),
    "too many fragment ids": (lambda t: t.reserve_fragments(1 << 40), InvalidInputError),
    "rows per fragment that cannot be": (lambda t: t.compact(rows_per_fragment=0), InvalidInputError),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_refused_and_nothing_is_written(case: str, table: conroi.Table) -> None:
    check(table, *BAD_DATA[case])


@pytest.mark.parametrize("case", BAD_CONDITIONS)
def test_a_bad_condition_is_refused(case: str, table: conroi.Table) -> None:
    check(table, *BAD_CONDITIONS[case])


@pytest.mark.parametrize("case", BAD_UPDATES)
def test_a_bad_update_is_refused(case: str, table: conroi.Table) -> None:
    check(table, *BAD_UPDATES[case])


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_a_bad_change_of_columns_is_refused(case: str, table: conroi.Table) -> None:
    check(table, *BAD_COLUMNS[case])


@pytest.mark.parametrize("case", BAD_VERSIONS)
def test_a_version_that_cannot_be_is_refused(case: str, table: conroi.Table) -> None:
    check(table, *BAD_VERSIONS[case])


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_a_bad_setting_is_refused(case: str, table: conroi.Table) -> None:
    check(table, *BAD_SETTINGS[case])


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", ".x", "x.", "x..y", "x.lock", "ä", "a\n", "../x", 5, None]
)
def test_a_tag_name_that_pylance_would_not_take_is_refused(name: Any, table: conroi.Table) -> None:
    check(table, lambda t: t.tags.create(name), InvalidInputError)


def test_a_tag_that_is_there_is_refused(table: conroi.Table) -> None:
    table.tags.create("here")
    check(table, lambda t: t.tags.create("here"), AlreadyExistsError)


def check(table: conroi.Table, action: Action, kind: type[conroi.ConroiError]) -> None:
    with refused(table, kind):
        action(table)
