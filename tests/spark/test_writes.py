"""DataFrames into tables: executors write, one commit makes it visible, and nothing is done twice."""

from __future__ import annotations

import os
import signal
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import conroi
from conroi.spark import write_task
from conroi.spark.packets import Part
from conroi.spark.write_task import WriteTask
from tests.spark.support import SPARK, Counting, by_pylance, manifests, numbers
from tests.support.arrow import column_values
from tests.support.arrow_types import TYPES

pytestmark = pytest.mark.usefixtures("both")

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})


def ids(uri: str) -> list[int]:
    return sorted(column_values(by_pylance(uri)["id"]))


@pytest.mark.contract("S2")
def test_append_overwrite_and_create_take_dataframes(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, numbers(spark, 0, 4))
    assert ids(uri) == [0, 1, 2, 3]
    table = table.append(numbers(spark, 4, 10, partitions=3), message="from Spark")
    assert (ids(uri), table.history()[0].message) == (list(range(10)), "from Spark")
    assert lance.dataset(uri).get_fragments()[-1].count_rows() == 2  # each task wrote its own
    table.overwrite(numbers(spark, 8, 12).where("id < 10"), where="id >= 8")
    assert ids(uri) == list(range(10))
    table.overwrite(numbers(spark, 50, 52))
    assert by_pylance(uri).to_pylist() == [{"id": 50, "name": "n50"}, {"id": 51, "name": "n51"}]
    assert [lance.dataset(uri, version=v).count_rows() for v in range(1, 5)] == [4, 10, 10, 2]


@pytest.mark.contract("S2")
def test_a_dataframe_without_rows_changes_nothing(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, SCHEMA)
    assert table.append(numbers(spark, 0, 0)).version == 1
    assert table.append(numbers(spark, 0, 4).where("id = 3")).version == 2  # one partition is empty
    assert ids(uri) == [3]


@pytest.mark.contract("S2")
def test_new_columns_of_a_dataframe_are_added_if_asked_for(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, [{"id": 1}])
    with pytest.raises(conroi.InvalidInputError, match="evolve_schema"):
        table.append(numbers(spark, 2, 3))
    table.append(numbers(spark, 2, 3), evolve_schema=True)
    assert by_pylance(uri).to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": "n2"}]


# ------------------------------------------------------------------------------ failing tasks


@pytest.mark.contract("S2")
@pytest.mark.parametrize("kill", [False, True], ids=["raises", "killed"])
def test_a_task_that_fails_at_first_lands_once(spark: SparkSession, uri: str, tmp_path: Path, kill: bool):
    table = conroi.create_table(uri, SCHEMA)
    counting = Counting(tmp_path / "tasks", failing_attempts=1, kill=kill)
    table.append(counting.over(numbers(spark, 0, 100)))
    assert counting.started == 3
    assert ids(uri) == list(range(100))
    assert len(manifests(uri)) == 2


@pytest.mark.contract("S2")
def test_a_job_that_fails_leaves_nothing_visible(spark: SparkSession, uri: str, tmp_path: Path):
    table = conroi.create_table(uri, SCHEMA)
    before = manifests(uri)
    counting = Counting(tmp_path / "tasks", failing_attempts=99)
    with pytest.raises(PySparkException, match="spoiled by the test"):
        table.append(counting.over(numbers(spark, 0, 100)))
    assert (manifests(uri), ids(uri)) == (before, [])


class Dying(WriteTask):
    """Its worker is killed when the files are written and their names are not yet sent."""

    def write(self, batches: Any) -> Part | None:
        part = super().write(batches)
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return part


@pytest.mark.contract("S2")
@pytest.mark.parametrize("both", ["python"], indirect=True)
def test_a_worker_that_is_killed_after_writing_lands_once(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
):
    """Those of the connector are killed in tests/spark/connector."""
    made = WriteTask.of

    def of(*arguments: Any) -> WriteTask:
        return Dying(**vars(made(*arguments)))

    table = conroi.create_table(uri, SCHEMA)
    monkeypatch.setattr(write_task.WriteTask, "of", of)
    table.append(numbers(spark, 0, 10))
    assert ids(uri) == list(range(10))
    assert len(os.listdir(Path(uri) / "data")) == 4  # two of them are garbage


# ------------------------------------------------------------------------------ conflicts


@pytest.mark.contract("S2")
def test_an_append_that_loses_the_race_does_not_run_its_tasks_again(spark: SparkSession, uri: str, tmp_path: Path):
    table = conroi.create_table(uri, SCHEMA)
    counting = Counting(tmp_path / "tasks")

    def commit_concurrently(rows: int) -> None:
        conroi.open_table(uri).append([{"id": 100, "name": "other"}])

    done = table.append(counting.over(numbers(spark, 0, 4)), progress=commit_concurrently)
    assert (done.version, counting.started, ids(uri)) == (3, 2, [0, 1, 2, 3, 100])


@pytest.mark.contract("S2")
@pytest.mark.parametrize("changes_columns", [False, True])
def test_work_that_is_done_again_keeps_what_its_tasks_wrote(
    spark: SparkSession, uri: str, tmp_path: Path, changes_columns: bool
):
    """Only files that do not fit any more are written again: which shows that the tasks are counted when they run."""
    table = conroi.create_table(uri, [{"id": n, "name": "old"} for n in range(4)])
    counting = Counting(tmp_path / "tasks")
    calls: list[int] = []

    def commit_concurrently(rows: int) -> None:
        calls.append(rows)
        if len(calls) == 1:
            other = conroi.open_table(uri).update({"name": "'other'"}, where="id = 1")
            if changes_columns:
                other.add_columns({"double": "id * 2"})

    frame = counting.over(numbers(spark, 0, 2))
    table.overwrite(frame, where="id < 2", if_moved="win", progress=commit_concurrently)
    assert (calls, counting.started) == ([2, 2], 4 if changes_columns else 2)
    assert sorted(row["name"] for row in by_pylance(uri).to_pylist()) == ["n0", "n1", "old", "old"]


# ------------------------------------------------------------------------------ what does not fit


@pytest.mark.contract("S2")
def test_what_does_not_fit_is_refused_in_our_words(spark: SparkSession, uri: str, tmp_path: Path):
    schema = pa.schema([pa.field("id", pa.int8(), nullable=False), pa.field("name", pa.string())])
    table = conroi.create_table(uri, schema)
    counting = Counting(tmp_path / "tasks")
    for columns, text in [("id, name, 1 AS more", "more"), ("name", "lacks"), ("name AS id, name", "holds string")]:
        with pytest.raises(conroi.InvalidInputError, match=text):
            table.append(counting.over(numbers(spark, 0, 4)).selectExpr(*columns.split(", ")))
    assert counting.started == 0  # no task was started to find that out
    with pytest.raises(conroi.InvalidInputError, match="may not be null") as refused:
        table.append(numbers(spark, 0, 4).selectExpr("nullif(id, 3) AS id", "name"))
    assert (refused.value.table, refused.value.hint) == (uri, "Fill or drop those rows.")
    with pytest.raises(conroi.InvalidInputError, match="does not fit int8"):
        table.append(numbers(spark, 100, 200))
    assert table.latest().version == 1


# ------------------------------------------------------------------------------ keys


@pytest.fixture(params=["few keys", "many keys"])
def keyed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, uri: str):
    """A table with a key and four rows; keys come back from the tasks, or are read from what they wrote."""
    if request.param == "many keys":
        monkeypatch.setattr(write_task, "KEYS_BYTES", 0)
    return conroi.create_table(uri, numbers(spark, 0, 4), key="id")


@pytest.mark.contract("S2")
def test_no_key_is_doubled(spark: SparkSession, keyed: conroi.Table):
    twice = numbers(spark, 10, 12, partitions=1)
    with pytest.raises(conroi.DuplicateKeyError, match=r"more than once: 1[01]"):
        keyed.append(twice.unionAll(twice))  # the two are in different tasks
    with pytest.raises(conroi.DuplicateKeyError, match="already: 3"):
        keyed.append(numbers(spark, 3, 6))
    assert keyed.append(numbers(spark, 4, 6)).count_rows() == 6
    with pytest.raises(conroi.DuplicateKeyError):
        keyed.overwrite(twice.unionAll(twice))
    with pytest.raises(conroi.DuplicateKeyError):
        conroi.create_table(f"{keyed.uri}-2", twice.unionAll(twice), key="id")
    keyed.overwrite(numbers(spark, 2, 4), where="id >= 2 AND id < 4")  # takes out what it brings in
    assert ids(keyed.uri) == list(range(6))


@pytest.mark.contract("S2")
def test_a_key_that_a_concurrent_writer_inserts_is_not_duplicated(spark: SparkSession, keyed: conroi.Table):
    def commit_concurrently(rows: int) -> None:
        conroi.open_table(keyed.uri).append([{"id": 10, "name": "first"}])

    with pytest.raises(conroi.DuplicateKeyError, match="already: 10"):
        keyed.append(numbers(spark, 10, 12), progress=commit_concurrently)
    assert ids(keyed.uri) == [0, 1, 2, 3, 10]


# ------------------------------------------------------------------------------ transactions


@pytest.mark.contract("S4")
def test_a_transaction_mixes_dataframes_and_arrow_over_many_tables(spark: SparkSession, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", numbers(spark, 0, 3), key="id")
    lake.create_table("notes", SCHEMA)
    before = lake.version
    with lake.begin("nightly") as tx:
        tx["orders"].append(numbers(spark, 3, 5))
        tx["orders"].delete("id = 0")
        assert sorted(row["id"] for row in tx["orders"].to_spark(spark).collect()) == [1, 2, 3, 4]
        tx["notes"].append(pa.table({"id": [7], "name": ["arrow"]}))
        tx["notes"].append(numbers(spark, 8, 9))
        tx.create_table("totals", spark.sql("SELECT 1L AS day, 2.5D AS amount"))
    assert lake.version == before + 1
    assert tx.result.tables == {"orders": 2, "notes": 2, "totals": 1}
    assert ids(lake["orders"].uri) == [1, 2, 3, 4]
    assert ids(lake["notes"].uri) == [7, 8]
    assert by_pylance(lake["totals"].uri).to_pylist() == [{"day": 1, "amount": 2.5}]


@pytest.mark.contract("S4")
def test_a_transaction_that_fails_leaves_nothing_of_its_dataframes(spark: SparkSession, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", numbers(spark, 0, 3), key="id")
    lake.create_table("notes", SCHEMA)
    before = lake.version

    def work(tx: conroi.Transaction) -> None:
        tx["notes"].append(numbers(spark, 0, 10))
        tx.create_table("more", numbers(spark, 0, 10))
        tx["orders"].append(numbers(spark, 2, 4))

    with pytest.raises(conroi.DuplicateKeyError):
        lake.run(work)
    assert (lake.version, lake["notes"].count_rows(), lake.tables()) == (before, 0, ["notes", "orders"])


# ------------------------------------------------------------------------------ types


def test_every_type_of_spark_is_read_by_pylance(spark: SparkSession, uri: str):
    values = {
        "CAST(-128 AS TINYINT)": -128,
        "CAST(32767 AS SMALLINT)": 32767,
        "CAST(-7 AS INT)": -7,
        "CAST(9223372036854775807 AS BIGINT)": 2**63 - 1,
        "CAST(1.5 AS FLOAT)": 1.5,
        "CAST('-Infinity' AS DOUBLE)": float("-inf"),
        "CAST(12.34 AS DECIMAL(38, 10))": Decimal("12.3400000000"),
        "true": True,
        "'żółć 🐎'": "żółć 🐎",
        "X'00FF'": b"\x00\xff",
        "DATE'1600-02-29'": date(1600, 2, 29),
        "TIMESTAMP'2024-02-29 12:00:00.123456Z'": datetime(2024, 2, 29, 12, 0, 0, 123456, UTC),
        "TIMESTAMP_NTZ'2024-02-29 12:00:00.123456'": datetime(2024, 2, 29, 12, 0, 0, 123456),
        **({"TIME'23:59:59.999999'": time(23, 59, 59, 999999)} if SPARK >= (4, 2) else {}),
        "INTERVAL '1 02:03:04' DAY TO SECOND": timedelta(days=1, hours=2, minutes=3, seconds=4),
        "array(1, NULL, 3)": [1, None, 3],
        "array(array('a'), array())": [["a"], []],
        "named_struct('x', 1, 'y', array('b'))": {"x": 1, "y": ["b"]},
        "map('a', 1.5D, 'b', NULL)": [("a", 1.5), ("b", None)],
        "array(named_struct('k', map(1, 'z')))": [{"k": [(1, "z")]}],
        "CAST(NULL AS INT)": None,
        "NULL": None,
    }
    columns = [f"{text} AS c{number}" for number, text in enumerate(values)]
    frame = spark.range(1).selectExpr(*columns)
    conroi.create_table(uri, frame.unionAll(spark.createDataFrame([(None,) * len(values)], _nullable(frame.schema))))
    first, second = sorted(by_pylance(uri).to_pylist(), key=lambda row: row["c0"] is None)
    assert list(first.values()) == list(values.values())
    assert set(second.values()) == {None}


def _nullable(schema: Any) -> Any:
    for field in schema:
        field.nullable = True
    return schema


@pytest.mark.contract("S2")
def test_every_type_that_spark_read_it_writes_back_as_it_was(spark: SparkSession, uri: str):
    known = [each for each in TYPES if "2.2" in each.formats and each.name != "decimal256"]
    schema = pa.schema([each.field(f"c{number}") for number, each in enumerate(known)])
    columns = [
        pa.ExtensionArray.from_storage(each.type, pa.array(each.values, each.type.storage_type))
        if isinstance(each.type, pa.BaseExtensionType)
        else pa.array(each.values, each.type)
        for each in known
    ]
    table = conroi.create_table(uri, pa.table(columns, schema=schema))
    copy = conroi.create_table(f"{uri}-2", table.schema).append(table.to_spark(spark).coalesce(1))
    for number, each in enumerate(known):
        name = f"c{number}"
        assert copy.schema.field(name).type == table.schema.field(name).type
        assert str(by_pylance(copy.uri)[name].to_pylist()) == str(by_pylance(uri)[name].to_pylist()), each.name


def test_vectors_of_spark_become_vectors(spark: SparkSession, uri: str):
    vector = pa.list_(pa.float32(), 3)
    table = conroi.create_table(uri, pa.schema({"id": pa.int64(), "v": vector}))
    table.append(spark.sql("SELECT id, array(float(id), 0F, 1F) AS v FROM range(4)"))
    assert by_pylance(uri).schema.field("v").type == vector
    assert lance.dataset(uri).to_table(nearest={"column": "v", "q": [3.0, 0.0, 1.0], "k": 1})["id"].to_pylist() == [3]
    with pytest.raises(conroi.InvalidInputError, match="fixed_size_list"):
        table.append(spark.sql("SELECT 9L AS id, array(1F, 2F) AS v"))
    assert [len(row.v) for row in table.latest().to_spark(spark).collect()] == [3] * 4


def test_a_stream_is_refused_with_a_hint(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, [{"value": 1}])
    stream = spark.readStream.format("rate").load().select("value")
    with pytest.raises(conroi.InvalidInputError, match="streaming"):
        table.append(stream)
