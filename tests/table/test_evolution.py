"""Schema evolution: new columns and wider types, in append and in merge."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.data.casts import wider
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("E8")

WIDENED = [
    (pa.null(), pa.string(), pa.string()),
    (pa.null(), pa.list_(pa.float32(), 2), pa.list_(pa.float32(), 2)),
    (pa.int8(), pa.int64(), pa.int64()),
    (pa.int64(), pa.int8(), pa.int64()),
    (pa.uint8(), pa.int8(), pa.int16()),
    (pa.int32(), pa.uint32(), pa.int64()),
    (pa.int64(), pa.uint64(), None),
    (pa.float32(), pa.float64(), pa.float64()),
    (pa.int32(), pa.float32(), pa.float64()),
    (pa.int16(), pa.float32(), pa.float32()),
    (pa.int64(), pa.float64(), None),
    (pa.decimal128(5, 2), pa.decimal128(10, 4), pa.decimal128(10, 4)),
    (pa.decimal128(38, 2), pa.decimal128(38, 4), None),
    (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
    (pa.timestamp("s", "UTC"), pa.timestamp("us"), None),
    (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
    (pa.string(), pa.int64(), None),
    (pa.int64(), pa.string(), None),
    (pa.bool_(), pa.int64(), None),
]


@pytest.mark.parametrize(("there", "coming", "result"), WIDENED, ids=str)
def test_which_types_widen(there: pa.DataType, coming: pa.DataType, result: pa.DataType | None):
    assert wider(there, coming) == result


CASES: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.null(), None, pa.string(), "text"),
    (pa.int8(), 7, pa.int64(), 2**40),
    (pa.float32(), 1.5, pa.float64(), 0.1),
    (pa.int32(), 2**31 - 1, pa.float64(), 0.5),
    (pa.decimal128(5, 2), Decimal("1.50"), pa.decimal128(12, 4), Decimal("12345.6789")),
    (pa.timestamp("s"), datetime.datetime(2026, 1, 1), pa.timestamp("us"), datetime.datetime(2026, 1, 1, 0, 0, 0, 7)),
]


@pytest.fixture
def lake() -> conroi.Lake:
    return conroi.connect(f"memory://{uuid.uuid4().hex}")


def _rows(type_: pa.DataType, key: int, value: Any, **more: Any) -> pa.Table:
    columns = {"id": pa.array([key], pa.int64()), "v": pa.array([value], type_)}
    return pa.table({**columns, **{name: pa.array([each]) for name, each in more.items()}})


@pytest.mark.parametrize(("there", "old", "coming", "new"), CASES, ids=str)
def test_append_widens_and_adds_in_one_version(
    lake: conroi.Lake, there: pa.DataType, old: Any, coming: pa.DataType, new: Any
):
    table = lake.create_table("t", _rows(there, 1, old), key="id")
    with pytest.raises(conroi.InvalidInputError):
        table.append(_rows(coming, 2, new, extra="x"))
    table = table.append(_rows(coming, 2, new, extra="x"), evolve_schema=True)
    assert table.version == 2
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": old, "extra": None}, {"id": 2, "v": new, "extra": "x"}]
    assert table.schema.field("v").type == coming
    assert lance.dataset(table.uri, version=2).to_table().to_pylist() == table.to_arrow().to_pylist()


@pytest.mark.parametrize(("there", "old", "coming", "new"), CASES, ids=str)
def test_merge_widens_and_adds(lake: conroi.Lake, there: pa.DataType, old: Any, coming: pa.DataType, new: Any):
    lake.create_table("t", pa.concat_tables([_rows(there, 1, old), _rows(there, 2, old)]), key="id")
    source = pa.concat_tables([_rows(coming, 2, new, extra="x"), _rows(coming, 3, new, extra="y")])
    expected = [
        {"id": 1, "v": old, "extra": None},
        {"id": 2, "v": new, "extra": "x"},
        {"id": 3, "v": new, "extra": "y"},
    ]
    with lake.begin() as tx:
        merge = tx["t"].merge(source, on="id", evolve_schema=True)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert lake["t"].version == 2
    assert sorted(lake["t"].to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    lake["t"].restore(1)
    merge = lake["t"].merge(source, on="id", evolve_schema=True)
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert sorted(done.table.to_arrow().to_pylist(), key=lambda row: row["id"]) == expected


def test_a_list_of_dicts_widens_only_what_does_not_fit(lake: conroi.Lake):
    schema = pa.schema({"id": pa.int32(), "n": pa.int16(), "v": pa.null()})
    table = lake.create_table("t", [{"id": 1, "n": 1, "v": None}], schema=schema)
    table = table.append([{"id": 2, "n": 2**20, "v": "text"}], evolve_schema=True)
    assert [field.type for field in table.schema] == [pa.int32(), pa.int64(), pa.string()]
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 1, "v": None}, {"id": 2, "n": 2**20, "v": "text"}]
    merge = table.merge([{"id": 2, "n": 5, "w": 1.5}], on="id", evolve_schema=True)
    table = merge.when_matched_update_all().execute().table
    assert table.schema.field("id").type == pa.int32()
    assert table.to_arrow(filter="id = 2").to_pylist() == [{"id": 2, "n": 5, "v": "text", "w": 1.5}]


def test_the_type_of_a_key_stays_and_its_values_are_checked(lake: conroi.Lake):
    table = lake.create_table("t", pa.table({"id": pa.array([1], pa.int32())}), key="id")
    table = table.append(pa.table({"id": pa.array([2], pa.int64())}), evolve_schema=True)
    assert table.schema.field("id").type == pa.int32()
    with pytest.raises(conroi.InvalidInputError, match="does not fit"):
        table.append(pa.table({"id": pa.array([2**40], pa.int64())}), evolve_schema=True)


def test_what_cannot_widen_is_refused(lake: conroi.Lake):
    table = lake.create_table("t", pa.table({"v": pa.array([1], pa.int64())}))
    for rows in ([{"v": "text"}], pa.table({"v": ["text"]}), pa.table({"v": [True]})):
        with pytest.raises(conroi.InvalidInputError):
            table.append(rows, evolve_schema=True)
        with pytest.raises(conroi.InvalidInputError):
            table.merge(rows, on="v", evolve_schema=True).when_not_matched_insert_all().execute()
    assert lake["t"].version == 1


def test_a_concurrent_append_is_widened_too(lake: conroi.Lake):
    """The fragments are listed anew on each attempt."""
    table = lake.create_table("t", pa.table({"v": pa.array([1], pa.int8())}))
    rows = pa.table({"v": pa.array([1000], pa.int64())})
    from conroi.verbs import Appending

    def between(verb: Any) -> Any:
        state = {"done": False}

        def run(at: Any) -> Any:
            plan = verb(at)
            if not state["done"]:
                state["done"] = True
                conroi.connect(lake.uri)["t"].append(pa.table({"v": pa.array([2], pa.int8())}))
            return plan

        return run

    after = table._do(between(Appending(rows, evolve_schema=True)), {})
    assert sorted(column_values(after.to_arrow()["v"])) == [1, 2, 1000]


def test_the_id_of_a_concurrently_dropped_column_is_not_used_again(lake: conroi.Lake):
    """A column that another writer added and dropped has data in the files under its id."""
    table = lake.create_table("t", [{"id": 1}])
    other = conroi.connect(lake.uri)
    from conroi.verbs import Appending

    state = {"done": False}
    verb = Appending(pa.table({"id": [2], "x": ["mine"]}), evolve_schema=True)

    def run(at: Any) -> Any:
        plan = verb(at)
        if not state["done"]:
            state["done"] = True
            other["t"].add_columns({"x": "concat('theirs', cast(id as string))"}).drop_columns(["x"])
        return plan

    after = table._do(run, {})
    assert after.to_arrow().to_pylist() == [{"id": 1, "x": None}, {"id": 2, "x": "mine"}]


def test_expect_holds_for_both_versions_of_a_merge(lake: conroi.Lake):
    table = lake.create_table("t", [{"id": 1}], key="id")
    merge = table.merge([{"id": 2, "x": 1}], on="id", evolve_schema=True).when_not_matched_insert_all()
    assert merge.execute(expect=1).table.version == 3
    with pytest.raises(conroi.ExpectedVersionMismatch):
        merge.execute(expect=1)
    with pytest.raises(conroi.InvalidInputError, match="detached"):
        merge.execute(detached=True)
