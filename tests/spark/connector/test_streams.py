"""`readStream.table` and `writeStream.toTable` of a catalog: each batch once, in order, whatever is repeated."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import conroi
import conroi.spark
from conroi.format.on_disk import STREAM_BATCH_PROPERTY, STREAM_QUERY_PROPERTY
from conroi.spark.connector.errors import typed
from tests.spark.connector.processes import HELPER, WORKER, kill, processes, wait_until
from tests.spark.connector.support import rows
from tests.spark.support import SINCE_4_2, by_pylance
from tests.spark.test_streaming_sink import Stream
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("S5")

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})


def named(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"n{number}" for number in ids]})


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(by_pylance(table.uri)["id"]))


@pytest.fixture
def stream(sql: SparkSession, tmp_path: Path) -> Stream:
    rows(sql, "SHOW TABLES IN lake")  # toTable finds the catalogs that the active session has, which may be another one
    return Stream(sql, tmp_path)


# ---------------------------------------------------------------------------- sink


def test_each_batch_is_one_commit_and_a_repeated_one_is_none(stream: Stream, lake: conroi.Lake):
    def to_table(writing: Any) -> StreamingQuery:
        return writing.option("message", "streamed").toTable("lake.streamed_events")

    lake.create_table("streamed_events", SCHEMA, key="id")
    stream.add(1, 2)
    stream.add(3)
    first = stream.run(to_table)
    table = lake["streamed_events"]
    assert (ids(table), table.version) == ([1, 2, 3], 3)
    newest = lake.history()[0]
    assert (newest.message, newest.properties[STREAM_BATCH_PROPERTY]) == ("streamed", "1")
    assert (newest.properties[STREAM_QUERY_PROPERTY], newest.idempotency_key) == (first.id, f"stream/{first.id}/1")
    stream.forget_last_commit()
    stream.add(4)
    table.append(named(9))
    stream.run(to_table)
    assert (ids(table), lake["streamed_events"].version) == ([1, 2, 3, 4, 9], 5)
    stream.add(4)
    with pytest.raises(StreamingQueryException) as refused:
        stream.run(to_table)
    error = typed(refused.value)
    assert isinstance(error, conroi.DuplicateKeyError)
    assert lake["streamed_events"].version == 5


def test_a_table_that_is_not_there_is_created(stream: Stream, lake: conroi.Lake):
    stream.add(1)
    stream.run(lambda writing: writing.format("conroi").toTable("lake.streamed_made"))
    assert ids(lake["streamed_made"]) == [1]


def test_a_complete_result_replaces_the_one_before(stream: Stream, lake: conroi.Lake):
    def count(frame: DataFrame) -> DataFrame:
        return frame.groupBy("name").count()

    def complete(writing: Any) -> StreamingQuery:
        return writing.format("conroi").outputMode("complete").toTable("lake.streamed_counts")

    stream.add(1, 2)
    stream.run(complete, count)
    stream.add(2, 3)
    stream.run(complete, count)
    found = {row["name"]: row["count"] for row in by_pylance(lake["streamed_counts"].uri).to_pylist()}
    assert found == {"n1": 1, "n2": 2, "n3": 1}


def test_a_query_goes_on_by_the_connector_where_python_left_it(stream: Stream, lake: conroi.Lake):
    """Its last batch was committed, and Spark did not note it."""
    stream.add(1, 2)
    stream.run(lambda writing: writing.format("conroi").option("table", "streamed_taken_over").start(lake.uri))
    stream.forget_last_commit()
    before = lake.version
    stream.add(3)
    stream.run(lambda writing: writing.toTable("lake.streamed_taken_over"))
    assert (ids(lake["streamed_taken_over"]), lake.version) == ([1, 2, 3], before + 1)


def test_a_stream_is_part_of_no_transaction(sql: SparkSession, stream: Stream, lake: conroi.Lake):
    lake.create_table("streamed_outside", SCHEMA)
    before = lake.version
    stream.add(1)
    with conroi.spark.transaction(sql), pytest.raises(StreamingQueryException, match="cannot be part of a transaction"):
        stream.run(lambda writing: writing.toTable("lake.streamed_outside"))
    assert lake.version == before


@pytest.mark.parametrize(("name", "value"), [("path", "x"), ("version", "1"), ("key", "id"), ("unknown", "1")])
def test_options_that_mean_nothing_to_a_sink_are_refused(stream: Stream, lake: conroi.Lake, name: str, value: str):
    if "streamed_options" not in lake:
        lake.create_table("streamed_options", SCHEMA)
    stream.add(1)
    with pytest.raises(StreamingQueryException, match=r"(?i)cannot be given|Unknown option"):
        stream.run(lambda writing: writing.option(name, value).toTable("lake.streamed_options"))
    assert lake["streamed_options"].version == 1


@pytest.mark.parametrize("module", [WORKER, HELPER])
def test_a_process_that_dies_in_a_batch_doubles_nothing(
    sql: SparkSession, stream: Stream, lake: conroi.Lake, module: str
):
    """A worker costs its task one attempt, the helper ends the query; started again, it goes on."""
    name = "killed_" + module.rpartition(".")[2]
    lake.create_table(name, SCHEMA, key="id")
    rows(sql, f"SELECT * FROM lake.{name}")
    stream.add(*range(1, 6))

    def run(shape: str = "true") -> StreamingQuery:
        return stream.run(lambda writing: writing.toTable(f"lake.{name}"), lambda frame: frame.where(shape))

    jobs = set(sql.sparkContext.statusTracker().getActiveJobsIds())
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run, "slow(id, 3)")
        wait_until(lambda: set(sql.sparkContext.statusTracker().getActiveJobsIds()) - jobs)
        wait_until(lambda: processes(sql, module))
        time.sleep(1)  # until the task waits in the midst of its rows
        kill(*processes(sql, module))
        if module == HELPER:
            with pytest.raises(StreamingQueryException) as refused:
                done.result()
            assert isinstance(typed(refused.value), conroi.ClosedError)
            assert lake[name].version == 1
            run()
        else:
            done.result()
    assert (ids(lake[name]), lake[name].version) == ([1, 2, 3, 4, 5], 2)


# ---------------------------------------------------------------------------- source


class Copy:
    """A query that copies a table, and goes on where its checkpoint says."""

    def __init__(self, sql: SparkSession, folder: Path, name: str, **options: object) -> None:
        self._sql = sql
        self._checkpoint = str(folder / "checkpoint")
        self._name = name
        self._options = {name: str(value) for name, value in options.items()}

    def run(self) -> list[int]:
        """Copy what is there; how many rows each batch had."""
        reading = self._sql.readStream.options(**self._options).table(f"lake.{self._name}")
        writing = reading.writeStream.option("checkpointLocation", self._checkpoint).trigger(availableNow=True)
        query = writing.format("conroi").toTable(f"lake.copy_of_{self._name.split('.')[0]}")
        query.awaitTermination()
        return [found for progress in query.recentProgress if (found := progress["numInputRows"])]


def test_a_stream_begins_with_all_rows_and_goes_on_with_new_ones(sql: SparkSession, lake: conroi.Lake, tmp_path: Path):
    lake.create_table("streamed_orders", named(*range(7))).delete("id = 2")
    copy = Copy(sql, tmp_path, "streamed_orders", maxRowsPerTrigger=3)
    assert copy.run() == [2, 3, 1]  # the place of the deleted row counts
    lake["streamed_orders"].append(named(7, 8)).append(named(9)).compact()
    assert copy.run() == [3]
    assert copy.run() == []
    assert ids(lake["copy_of_streamed_orders"]) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert by_pylance(lake["copy_of_streamed_orders"].uri).sort_by("id").to_pylist()[-1] == {"id": 9, "name": "n9"}


def test_a_version_that_changes_rows_ends_the_query(sql: SparkSession, lake: conroi.Lake, tmp_path: Path):
    lake.create_table("streamed_changed", named(1, 2)).append(named(3)).delete("id = 1").append(named(4))
    copy = Copy(sql, tmp_path, "streamed_changed", startingVersion=2)
    with pytest.raises(StreamingQueryException) as refused:
        copy.run()
    error = typed(refused.value)
    assert isinstance(error, conroi.UnsupportedError)
    assert (error.version, ids(lake["copy_of_streamed_changed"])) == (3, [3])
    assert Copy(sql, tmp_path, "streamed_changed", skipChanges="true").run() == [1]
    assert ids(lake["copy_of_streamed_changed"]) == [3, 4]


def test_rows_are_chosen_by_a_filter_and_columns_by_select(sql: SparkSession, lake: conroi.Lake, tmp_path: Path):
    lake.create_table("streamed_chosen", named(*range(10)))
    Copy(sql, tmp_path, "streamed_chosen", filter="id >= 8", bytesPerTask=1).run()
    assert ids(lake["copy_of_streamed_chosen"]) == [8, 9]
    with pytest.raises(StreamingQueryException, match="columns cannot be given"):
        Copy(sql, tmp_path / "other", "streamed_chosen", columns='["id"]').run()


def test_a_branch_is_read_and_written(sql: SparkSession, lake: conroi.Lake, tmp_path: Path):
    lake.create_table("streamed_branched", named(1))
    lake.create_table("copy_of_streamed_branched", SCHEMA)
    lake.branches.create("dev")
    sql.sql("INSERT INTO lake.streamed_branched.branch_dev VALUES (2, 'n2')")
    reading = sql.readStream.table("lake.streamed_branched.branch_dev")
    writing = reading.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writing.toTable("lake.copy_of_streamed_branched.branch_dev").awaitTermination()
    assert rows(sql, "SELECT id FROM lake.copy_of_streamed_branched.branch_dev ORDER BY id") == [(1,), (2,)]
    assert ids(lake["copy_of_streamed_branched"]) == []


def test_a_past_version_is_no_stream(sql: SparkSession, lake: conroi.Lake, tmp_path: Path):
    lake.create_table("streamed_past", named(1))
    lake["streamed_past"].tags.create("first")
    with pytest.raises(Exception, match=r"MICRO_BATCH_READ|micro.batch|UNSUPPORTED_FEATURE|streaming"):
        Copy(sql, tmp_path, "streamed_past.tag_first").run()


@SINCE_4_2
def test_a_checkpoint_of_python_goes_on_by_the_connector(sql: SparkSession, lake: conroi.Lake, tmp_path: Path):
    lake.create_table("streamed_handed", named(1, 2))
    reading = sql.readStream.format("conroi").option("table", "streamed_handed").load(lake.uri)
    writing = reading.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writing.format("conroi").option("table", "copy_of_streamed_handed").start(lake.uri).awaitTermination()
    lake["streamed_handed"].append(named(3))
    assert Copy(sql, tmp_path, "streamed_handed").run() == [1]
    assert ids(lake["copy_of_streamed_handed"]) == [1, 2, 3]
