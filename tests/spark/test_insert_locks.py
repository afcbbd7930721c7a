"""DataFrames under insert locks: executors write the rows, and each insert is one unbroken run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import conroi
import conroi.spark
from conroi import export
from conroi.inserts.insert_locks import locks_of
from conroi.spark import write_task
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("S10")
SCHEMA = pa.schema({"worker": pa.int64(), "n": pa.int64()})


def numbers(spark: SparkSession, worker: int, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(0, count, numPartitions=partitions).selectExpr(f"CAST({worker} AS BIGINT) AS worker", "id AS n")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> conroi.Lake:
    """A lake whose inserts are locked; no row of a DataFrame may come into this process."""
    lake = conroi.connect(tmp_path / "lake")
    lake.set_locks("file")
    lake.create_table("t", SCHEMA, stable_row_ids=True)
    monkeypatch.setattr(write_task, "MOST_ROWS_HERE", 5)
    return lake


def workers(table: conroi.Table) -> list[int]:
    """Whose rows they are, in the order of their ids."""
    rows = table.to_lance().to_table(with_row_id=True).sort_by("_rowid")
    assert rows["_rowid"].to_pylist() == list(range(rows.num_rows))
    return column_values(rows["worker"])


VERBS: dict[str, Callable[[conroi.Lake, SparkSession], conroi.Table]] = {
    "insert": lambda lake, spark: lake.insert("t", numbers(spark, 1, 20)),
    "table.insert": lambda lake, spark: lake["t"].insert(numbers(spark, 1, 20)),
    "concat": lambda lake, spark: lake.concat(
        "t", [numbers(spark, 1, 12), pa.table({"worker": [1] * 8, "n": [0] * 8})]
    ),
    "write": lambda lake, spark: lake.write("t", numbers(spark, 1, 20)),
    "write a new table": lambda lake, spark: lake.write("new", numbers(spark, 1, 20)),
    "insert in pieces": lambda lake, spark: lake.insert("t", numbers(spark, 1, 20), chunk_rows=6),
    "write a new table in pieces": lambda lake, spark: lake.write("new", numbers(spark, 1, 20), chunk_rows=6),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_rows_of_a_dataframe_are_one_run_under_one_lock(
    spark: SparkSession, lake: conroi.Lake, verb: Callable[[conroi.Lake, SparkSession], conroi.Table]
) -> None:
    """G8: more rows than this process would take."""
    lake.insert("t", [{"worker": 0, "n": 0}])
    before = locks_of(lake.catalog).taken
    table = verb(lake, spark)
    assert locks_of(lake.catalog).taken == before + 1
    mine = [worker for worker in workers(table.latest()) if worker]
    assert mine == [1] * 20
    assert sorted(row["n"] for row in table.latest().to_arrow().to_pylist() if row["worker"])[-1] in (11, 19)


def test_pieces_have_at_most_so_many_rows_and_are_written_by_one_job(spark: SparkSession, lake: conroi.Lake) -> None:
    runs = spark.sparkContext.accumulator(0)

    def counted(rows: Any) -> Any:
        for row in rows:
            runs.add(1)
            yield row

    frame = numbers(spark, 1, 20).rdd.mapPartitions(counted).toDF("worker long, n long")
    before = lake["t"].version
    table = lake.insert("t", frame, chunk_rows=5)
    assert runs.value == 20
    sizes = [commit.rows for commit in table.history() if commit.version > before][::-1]
    assert sizes[-1] == 20
    assert all(0 < after - first <= 5 for first, after in zip([0, *sizes], sizes, strict=False))
    assert table.version - before >= 4


def test_keys_are_checked_piece_by_piece(spark: SparkSession, lake: conroi.Lake) -> None:
    table = lake.create_table("keyed", SCHEMA, key="n", stable_row_ids=True)
    assert lake.insert("keyed", numbers(spark, 1, 10), chunk_rows=3).count_rows() == 10
    with pytest.raises(conroi.DuplicateKeyError):
        lake.insert("keyed", numbers(spark, 2, 20), chunk_rows=3)
    assert set(table.latest().to_arrow()["worker"].to_pylist()) == {1}


def test_a_schema_that_changes_between_two_pieces_ends_the_insert(
    spark: SparkSession, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write_task.SparkRows.in_pieces

    def changed(self: write_task.SparkRows, *given: Any) -> list[write_task.WrittenRows]:
        pieces = list(plain(self, *given))
        lake["t"].add_columns(pa.field("more", pa.int64()))
        return pieces

    monkeypatch.setattr(write_task.SparkRows, "in_pieces", changed)
    with pytest.raises(conroi.RetryableConflict, match="columns or its key changed"):
        lake.insert("t", numbers(spark, 1, 10), chunk_rows=3)
    assert lake["t"].count_rows() == 0


def test_a_column_that_the_table_lacks_is_refused_before_any_job(spark: SparkSession, lake: conroi.Lake) -> None:
    with pytest.raises(conroi.InvalidInputError, match="other"):
        lake.insert("t", spark.range(3).selectExpr("id AS other"), chunk_rows=2)


def test_an_export_of_a_dataframe_goes_through_files_of_the_lake(
    spark: SparkSession, lake: conroi.Lake, tmp_path: Path
) -> None:
    target = f"chdb://{tmp_path}/chdb/one/t"
    with pytest.raises(conroi.InvalidInputError, match="lake="):
        export.clickhouse(numbers(spark, 1, 20), target)
    done = export.clickhouse([numbers(spark, 1, 20), numbers(spark, 2, 4)], target, lake=lake)
    assert (done.rows, done.next - done.first) == (24, 24)
    assert lake.tables() == ["t"]


def streamed(lake: conroi.Lake, spark: SparkSession, tmp: Path) -> None:
    folder = str(tmp / "incoming")
    numbers(spark, 1, 3, 1).write.parquet(folder)
    stream = spark.readStream.schema("worker long, n long").parquet(folder)
    writer = stream.writeStream.format("conroi").option("checkpointLocation", str(tmp / "checkpoint"))
    query = writer.option("table", "t").trigger(availableNow=True).start(lake.uri)
    assert query.awaitTermination(120)
    assert query.exception() is None


UNLOCKED: dict[str, Callable[[conroi.Lake, SparkSession, Path], object]] = {
    "INSERT INTO": lambda lake, spark, _: lake.sql(spark, "INSERT INTO t VALUES (1, 0), (1, 1), (1, 2)"),
    "df.write": lambda lake, spark, _: (
        numbers(spark, 1, 3).write.format("conroi").mode("append").option("table", "t").save(lake.uri)
    ),
    "stream": streamed,
}


@pytest.mark.contract("L7")
@pytest.mark.parametrize("verb", UNLOCKED.values(), ids=UNLOCKED)
def test_appends_of_spark_in_one_commit_wait_for_no_lock(
    spark: SparkSession, lake: conroi.Lake, tmp_path: Path, verb: Callable[[conroi.Lake, SparkSession, Path], object]
) -> None:
    """Another worker has the lock all the while."""
    conroi.spark.register(spark)
    with ThreadPoolExecutor(1) as worker:
        lock = conroi.connect(lake.uri).insert_lock("t")
        worker.submit(lock.__enter__).result()
        try:
            verb(lake, spark, tmp_path)
        finally:
            worker.submit(lock.__exit__, None, None, None).result()
    assert workers(lake["t"]) == [1, 1, 1]
