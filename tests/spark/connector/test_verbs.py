"""DataFrames in the verbs of a table: the connector's workers write the files, this process commits them."""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import conroi
from tests.spark.connector.conftest import slow
from tests.spark.connector.processes import WORKER, kill, processes, wait_until
from tests.spark.support import by_pylance, manifests
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("S2")

SCHEMA = pa.schema({"id": pa.int64()})


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(by_pylance(table.uri)["id"]))


@contextmanager
def appending(table: conroi.Table, frame: DataFrame) -> Generator[Future[conroi.Table]]:
    """An append in another thread, whose job has begun."""
    tracker = frame.sparkSession.sparkContext.statusTracker()
    jobs = set(tracker.getActiveJobsIds())
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(table.append, frame)
        wait_until(lambda: done.done() or set(tracker.getActiveJobsIds()) - jobs)
        time.sleep(1)  # until its tasks are at work
        yield done


def slow_rows(spark: SparkSession) -> DataFrame:
    """Three tasks; one waits three seconds in its midst, when a worker has got rows of it."""
    spark.udf.register("slow", slow, "boolean")
    return spark.range(0, 60_000, numPartitions=3).where("slow(id, 15000)")


def test_no_python_worker_of_spark_sees_the_rows(spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object) -> None:
        raise AssertionError("the rows went through a Python worker")

    monkeypatch.setattr("pyspark.sql.classic.dataframe.DataFrame.mapInArrow", refused)
    table = conroi.create_table(uri, spark.range(4)).append(spark.range(4, 6))
    assert ids(table) == list(range(6))


def test_a_worker_that_dies_in_the_midst_of_its_rows_costs_one_attempt(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, SCHEMA)
    with appending(table, slow_rows(spark)) as done:
        wait_until(lambda: processes(spark, WORKER))
        kill(*processes(spark, WORKER))
        assert done.result().version == 2
    assert ids(table) == list(range(60_000))


def test_a_write_that_is_cancelled_leaves_nothing_and_the_next_one_works(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, SCHEMA)
    before = manifests(uri)
    with appending(table, slow_rows(spark)) as done:
        spark.sparkContext.cancelAllJobs()
        with pytest.raises(Exception, match="cancel"):
            done.result()
    assert manifests(uri) == before
    assert ids(table.append(spark.range(3))) == [0, 1, 2]


def test_storage_that_takes_no_files_is_a_typed_error(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, SCHEMA)
    before = manifests(uri)
    blocked = Path(uri) / "data"
    blocked.write_text("a file where a folder should be")
    with pytest.raises(conroi.ConroiError):
        table.append(spark.range(3))
    assert manifests(uri) == before
    blocked.unlink()
    assert ids(table.append(spark.range(3))) == [0, 1, 2]


def test_verbs_of_several_threads_do_not_mix_their_rows(spark: SparkSession, tmp_path: Path):
    tables = [conroi.create_table(tmp_path / f"t{number}.lance", SCHEMA) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        done = [
            pool.submit(table.append, spark.range(10 * number, 10 * number + 10)) for number, table in enumerate(tables)
        ]
        assert [each.result().version for each in done] == [2] * 4
    assert [ids(table) for table in tables] == [list(range(10 * n, 10 * n + 10)) for n in range(4)]
