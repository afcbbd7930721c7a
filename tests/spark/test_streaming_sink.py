"""`writeStream` and `foreachBatch`: each batch is one commit, also when Spark repeats it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import conroi
import conroi.spark
from conroi.format.on_disk import STREAM_BATCH_PROPERTY, STREAM_QUERY_PROPERTY
from conroi.spark.options import Options
from conroi.spark.streaming_sink import BatchMessage, ConroiStreamWriter, run_once
from tests.spark.support import by_pylance, numbers
from tests.support.arrow import column_values

COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])
ONE = pa.table({"id": [1], "name": ["n1"]})


def ids(uri: str) -> list[int]:
    return sorted(column_values(by_pylance(uri)["id"]))


class Stream:
    """Files of JSON, each a batch of its own, and a query that goes on where its checkpoint says."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._files = folder / "files"
        self._files.mkdir()
        self._checkpoint = folder / "checkpoint"

    def add(self, *ids: int) -> None:
        path = self._files / f"{len(list(self._files.iterdir())):03}.json"
        path.write_text("\n".join(json.dumps({"id": number, "name": f"n{number}"}) for number in ids))

    def run(self, begun: Callable[[Any], Any], shape: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> Any:
        """Do all batches that there are."""
        reading = self._spark.readStream.schema("id long, name string").option("maxFilesPerTrigger", 1)
        writing = shape(reading.json(str(self._files))).writeStream.option("checkpointLocation", str(self._checkpoint))
        query = begun(writing.trigger(availableNow=True))
        query.awaitTermination()
        return query

    def forget_last_commit(self) -> None:
        """What the checkpoint looks like when the query was killed after the batch and before Spark noted it."""
        commits = self._checkpoint / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


@pytest.mark.contract("S5")
def test_each_batch_is_one_commit_and_a_repeated_one_is_none(stream: Stream, uri: str):
    def to_table(writing: Any) -> Any:
        return writing.format("conroi").option("key", "id").option("message", "streamed").start(uri)

    stream.add(1, 2)
    stream.add(3)
    first = stream.run(to_table)
    table = conroi.open_table(uri)
    assert (ids(uri), table.key, table.version) == ([1, 2, 3], ("id",), 3)
    newest = table.history()[0]
    assert (newest.message, newest.properties[STREAM_BATCH_PROPERTY]) == ("streamed", "1")
    assert newest.properties[STREAM_QUERY_PROPERTY] == str(first.id)
    stream.forget_last_commit()
    stream.add(4)
    conroi.open_table(uri).append([{"id": 9, "name": "other"}])
    stream.run(to_table)
    assert (ids(uri), table.latest().version) == ([1, 2, 3, 4, 9], 5)
    stream.add(4)
    with pytest.raises(StreamingQueryException, match="DuplicateKeyError"):
        stream.run(to_table)
    assert table.latest().version == 5


@pytest.mark.contract("S5")
@pytest.mark.parametrize("by_path", [False, True], ids=["by name", "by path"])
def test_a_table_of_a_lake_gets_each_batch_once(stream: Stream, tmp_path: Path, by_path: bool):
    lake = conroi.connect(tmp_path / "lake")

    def to_lake(writing: Any) -> Any:
        if by_path:
            return writing.format("conroi").start(f"{lake.uri}/orders.lance")
        return writing.format("conroi").option("table", "orders").start(lake.uri)

    stream.add(1, 2)
    stream.run(to_lake)
    before = lake.version
    stream.forget_last_commit()
    stream.run(to_lake)
    assert (ids(lake["orders"].uri), lake.version) == ([1, 2], before)
    assert str(lake.history()[0].idempotency_key).startswith("stream/")


@pytest.mark.contract("S5")
def test_a_complete_result_replaces_the_one_before(stream: Stream, uri: str):
    def complete(writing: Any) -> Any:
        return writing.format("conroi").outputMode("complete").start(uri)

    def count(frame: DataFrame) -> DataFrame:
        return frame.groupBy("name").count()

    stream.add(1, 2)
    stream.run(complete, count)
    stream.add(2, 3)
    stream.run(complete, count)
    found = {row["name"]: row["count"] for row in by_pylance(uri).to_pylist()}
    assert found == {"n1": 1, "n2": 2, "n3": 1}


@pytest.mark.contract("S5")
def test_a_batch_over_several_tables_happens_as_a_whole_and_once(stream: Stream, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("log", ONE.schema)
    lake.create_table("last", ONE.schema, key="id")
    unsafe = conroi.create_table(tmp_path / "unsafe.lance", ONE.schema)
    trouble: list[str] = []

    def work(tx: conroi.Transaction, batch: DataFrame, batch_id: int) -> None:
        tx["log"].append(batch)
        if "between the tables" in trouble:
            raise RuntimeError("between the tables")
        tx["last"].merge(batch, on="id").when_matched_update_all().when_not_matched_insert_all().execute()

    each = conroi.spark.each_batch(lake, work, message="batch")

    def both(batch: DataFrame, batch_id: int) -> None:
        each(batch, batch_id)
        unsafe.append(batch)
        if "after the commit" in trouble:
            raise RuntimeError("after the commit")

    def begun(writing: Any) -> Any:
        return writing.foreachBatch(both).start()

    def counts() -> tuple[int, int]:
        return by_pylance(lake["log"].uri).num_rows, by_pylance(lake["last"].uri).num_rows

    stream.add(1, 2)
    for moment, expected in [("between the tables", (0, 0)), ("after the commit", (2, 2))]:
        trouble[:] = [moment]
        with pytest.raises(StreamingQueryException, match=moment):
            stream.run(begun)
        assert counts() == expected
    trouble.clear()
    stream.add(2, 3)
    stream.run(begun)
    assert counts() == (4, 3)
    assert ids(unsafe.uri) == [1, 1, 2, 2, 2, 3]  # the control: what the helper does not guard came twice


# ------------------------------------------------------------------------------ without a stream


def append_one(tx: Any) -> None:
    (tx["t"] if isinstance(tx, conroi.Transaction) else tx).append(ONE)


def lake_or_table(kind: str, folder: Path) -> tuple[conroi.Lake | conroi.Table, str]:
    if kind == "table":
        table = conroi.create_table(folder / "t.lance", ONE.schema)
        return table, table.uri
    lake = conroi.connect(folder / "lake")
    return lake, lake.create_table("t", ONE.schema).uri


@pytest.mark.contract("S5")
@pytest.mark.parametrize("kind", ["lake", "table"])
def test_only_the_last_batch_may_come_again(tmp_path: Path, kind: str):
    target, uri = lake_or_table(kind, tmp_path)
    for batch_id in [0, 0, 1, 1]:
        run_once(target, "query", batch_id, append_one)
    assert len(ids(uri)) == 2
    with pytest.raises(conroi.InvalidInputError, match="Batch 0 of query 'query' was committed before, and so was"):
        run_once(target, "query", 0, append_one)
    run_once(target, "another query", 0, append_one)
    assert len(ids(uri)) == 3


@pytest.mark.contract("S5")
@pytest.mark.parametrize("kind", ["lake", "table"])
def test_a_batch_is_computed_again_after_a_conflict(tmp_path: Path, kind: str):
    target, uri = lake_or_table(kind, tmp_path)
    run_once(target, "query", 0, append_one)
    seen: list[int] = []

    def change(tx: Any) -> None:
        table = tx["t"] if kind == "lake" else tx
        seen.append(table.to_arrow()["id"].to_pylist()[0])
        if len(seen) == 1:
            conroi.open_table(uri).update({"id": "id + 10"})
        table.update({"id": "id * 2"})

    run_once(target, "query", 1, change)
    assert (seen, ids(uri)) == ([1, 11], [22])
    seen.clear()
    with pytest.raises(conroi.RetryableConflict):  # the control: without another try it is refused
        run_once(target, "query", 2, change, retries=0)


def test_a_batch_without_a_query_is_refused_since_it_could_not_be_known_again(spark: SparkSession, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", ONE.schema)

    def work(tx: conroi.Transaction, batch: DataFrame, batch_id: int) -> None:
        tx["t"].append(batch)

    with pytest.raises(conroi.InvalidInputError, match="which query this batch is of"):
        conroi.spark.each_batch(lake, work)(numbers(spark, 0, 3), 0)
    for _ in range(2):
        conroi.spark.each_batch(lambda: conroi.connect(lake.uri), work, query="mine")(numbers(spark, 0, 3), 0)
    assert ids(lake["t"].uri) == [0, 1, 2]
    with pytest.raises(conroi.InvalidInputError, match=re.escape("needs a lake or a table, not a str")):
        conroi.spark.each_batch(str(tmp_path), work)  # type: ignore[arg-type]
    writer = ConroiStreamWriter(Options({"path": str(tmp_path / "t.lance")}), COLUMNS, overwrite=False)
    with pytest.raises(conroi.UnsupportedError, match="did not tell its tasks which query"):
        writer.commit([writer.write(iter(ONE.to_batches()))], 0)


def test_rows_written_for_concurrently_changed_columns_are_refused(uri: str):
    table = conroi.create_table(uri, ONE)
    writer = ConroiStreamWriter(Options({"path": uri}), COLUMNS, overwrite=False)
    written = writer.write(iter(ONE.to_batches()))
    assert isinstance(written, BatchMessage)
    written.query = "query"
    table.add_columns({"more": "id"})
    with pytest.raises(conroi.RetryableConflict, match="columns or its key changed"):
        writer.commit([written, None], 0)
    writer.commit([replace(written, part=None)], 0)  # no rows, nothing to do
    assert (ids(uri), table.latest().version) == ([1], 2)


def test_options_that_mean_nothing_to_a_sink_are_refused(uri: str):
    for name in ["version", "where", "ifMoved", "startingVersion"]:
        with pytest.raises(conroi.InvalidInputError, match=f"{name} cannot be given"):
            ConroiStreamWriter(Options({"path": uri, name: "1"}), COLUMNS, overwrite=True)
