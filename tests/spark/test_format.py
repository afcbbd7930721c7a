"""`df.write.format("conroi")` and SQL: the commit happens in a process of Spark's, and happens once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StringType, StructField, StructType

import conroi
from conroi.spark.options import Options
from conroi.spark.writer import ConroiWriter
from tests.spark.support import Counting, by_pylance, manifests, numbers
from tests.support.arrow import column_values

COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])
TWO = pa.table({"id": [1, 2], "name": ["a", "b"]})


def ids(uri: str) -> list[int]:
    return sorted(column_values(by_pylance(uri)["id"]))


def save(frame: DataFrame, uri: str, mode: str = "append", **options: str) -> None:
    frame.write.format("conroi").mode(mode).options(**options).save(uri)


@pytest.mark.contract("S2")
def test_save_makes_appends_and_overwrites(spark: SparkSession, uri: str):
    save(numbers(spark, 0, 2), uri, key="id", message="made")
    save(numbers(spark, 2, 6), uri, message="more")
    assert ids(uri) == [0, 1, 2, 3, 4, 5]
    save(numbers(spark, 4, 5), uri, "overwrite", where="id >= 4")
    assert ids(uri) == [0, 1, 2, 3, 4]
    save(numbers(spark, 7, 9), uri, "overwrite")
    table = conroi.open_table(uri)
    assert (ids(uri), table.key, table.version) == ([7, 8], ("id",), 4)
    assert [commit.message for commit in table.history()] == [None, None, "more", "made"]


@pytest.mark.contract("S2")
def test_save_refuses_what_append_refuses(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, numbers(spark, 0, 2), key="id")
    for frame, text in [
        (numbers(spark, 1, 3), "DuplicateKeyError"),
        (numbers(spark, 5, 7).selectExpr("id", "name", "1 AS more"), "columns the table does not have"),
        (numbers(spark, 5, 7).selectExpr("nullif(id, 6) AS id", "name"), "may not be null"),
    ]:
        with pytest.raises(PySparkException, match=text):
            save(frame, uri)
    with pytest.raises(PySparkException, match="version cannot be given"):
        save(numbers(spark, 5, 7), uri, version="1")
    with pytest.raises(PySparkException, match="where cannot be given"):
        save(numbers(spark, 5, 7), uri, where="true")
    assert table.latest().version == 1


@pytest.mark.contract("S2")
def test_a_failing_task_of_a_save_lands_once_or_not_at_all(spark: SparkSession, uri: str, tmp_path: Path):
    conroi.create_table(uri, TWO.schema)
    save(Counting(tmp_path / "some", failing_attempts=1, kill=True).over(numbers(spark, 0, 50)), uri)
    assert (ids(uri), len(manifests(uri))) == (list(range(50)), 2)
    with pytest.raises(PySparkException):
        save(Counting(tmp_path / "all", failing_attempts=9).over(numbers(spark, 50, 99)), uri)
    assert (ids(uri), len(manifests(uri))) == (list(range(50)), 2)


@pytest.mark.contract("S2")
def test_sql_reads_and_inserts_through_a_view(spark: SparkSession, uri: str):
    conroi.create_table(uri, TWO)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW fixed USING conroi OPTIONS (path '{uri}')")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW live USING conroi OPTIONS (path '{uri}', follow 'true')")
    spark.sql("INSERT INTO fixed SELECT id + 2, name FROM fixed")
    spark.sql("INSERT INTO live VALUES (9, NULL)")
    assert ids(uri) == [1, 2, 3, 4, 9]
    assert spark.sql("SELECT id FROM fixed ORDER BY id").toArrow()["id"].to_pylist() == [1, 2]
    assert spark.sql("SELECT id FROM live ORDER BY id").toArrow()["id"].to_pylist() == [1, 2, 3, 4, 9]
    spark.sql("INSERT OVERWRITE TABLE live SELECT 7L, 'only'")
    assert by_pylance(uri).to_pylist() == [{"id": 7, "name": "only"}]


def counted(frame: DataFrame) -> int:
    row = frame.first()
    assert row is not None
    return row["n"]


@pytest.mark.contract("S11")
def test_follow_reads_the_newest_version_in_every_query(spark: SparkSession, tmp_path: Path):
    """C3: Spark keeps the plan of the first read, so the second count was that of the first."""
    lake = conroi.connect(tmp_path / "lake")
    table = lake.create_table("orders", TWO)
    options = f"OPTIONS (path '{lake.uri}', table 'orders', follow 'true')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW live USING conroi {options}")
    frame = spark.read.format("conroi").option("follow", "true").load(table.uri)
    count = "SELECT count(*) AS n FROM live"
    kept = spark.sql(count)
    assert (counted(spark.sql(count)), frame.count(), counted(kept)) == (2, 2, 2)
    spark.sql("INSERT INTO live VALUES (3, 'c')")
    assert (counted(spark.sql(count)), frame.count()) == (3, 3)
    lake["orders"].delete("id < 3")
    lake["orders"].append([{"id": number, "name": "d"} for number in (4, 5)])
    assert sorted(row["id"] for row in frame.where("name = 'd'").collect()) == [4, 5]
    assert [row["id"] for row in spark.sql("SELECT id FROM live ORDER BY id").collect()] == [3, 4, 5]
    spark.sql("INSERT INTO live SELECT id + 10, name FROM live")
    assert counted(spark.sql(count)) == 6
    lake["orders"].overwrite([{"id": 7, "name": "z"}])
    assert spark.table("live").collect() == [(7, "z")]
    lake["orders"].drop_columns(["name"])
    with pytest.raises(PySparkException, match="no column name"):
        frame.collect()
    with pytest.raises(PySparkException, match="version cannot be given to a read that follows"):
        spark.read.format("conroi").option("follow", "true").option("version", "1").load(table.uri)


@pytest.mark.contract("S14")
def test_a_table_of_sparks_catalog_is_refused_instead_of_written_nowhere(spark: SparkSession, uri: str):
    """C5: with columns Spark does not ask us before the first use, and then does not say where the table is."""
    conroi.create_table(uri, TWO)
    for place in (f"OPTIONS (path '{uri}')", f"LOCATION '{uri}'"):
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            spark.sql(f"CREATE TABLE lost USING conroi {place}")
    assert (ids(uri), spark.catalog.tableExists("lost")) == ([1, 2], False)
    spark.sql(f"CREATE TABLE lost (id BIGINT, name STRING) USING conroi LOCATION '{uri}'")
    for statement in ("SELECT * FROM lost", "INSERT INTO lost VALUES (3, 'c')"):
        with pytest.raises(PySparkException, match="DROP TABLE"):
            spark.sql(statement).collect()
    spark.sql("DROP TABLE lost")
    assert ids(uri) == [1, 2]


# ------------------------------------------------------------------------------ the writer by itself, without Spark


def written(
    uri: str, *rows: pa.Table, overwrite: bool = False, **options: str
) -> tuple[ConroiWriter, list[WriterCommitMessage]]:
    """A job whose tasks are through, and that is not committed yet."""
    writer = ConroiWriter(Options({"path": uri, **options}), COLUMNS, overwrite=overwrite)
    return writer, [writer.write(iter(each.to_batches())) for each in rows]


@pytest.mark.contract("S2")
def test_a_commit_that_spark_repeats_lands_once(uri: str):
    conroi.create_table(uri, TWO)
    writer, messages = written(uri, TWO, TWO.slice(0, 0))
    writer.commit([*messages, None])
    conroi.open_table(uri).append([{"id": 9, "name": "other"}])
    writer.commit(messages)
    assert ids(uri) == [1, 1, 2, 2, 9]
    again, messages = written(uri, TWO)  # the control: another job with the same rows is another job
    again.commit(messages)
    assert len(ids(uri)) == 7


@pytest.mark.contract("S2")
def test_giving_up_after_a_commit_that_landed_takes_nothing_away(uri: str):
    conroi.create_table(uri, TWO)
    writer, messages = written(uri, TWO)
    writer.commit(messages)
    writer.abort(messages)
    assert ids(uri) == [1, 1, 2, 2]


def test_a_save_is_checked_against_what_was_committed_while_its_tasks_wrote(uri: str):
    table = conroi.create_table(uri, TWO)
    appending, rows = written(uri, TWO)
    replacing, more_rows = written(uri, TWO, overwrite=True)
    late, late_rows = written(uri, TWO)
    table.delete("id = 2")
    appending.commit(rows)
    assert ids(uri) == [1, 1, 2]
    with pytest.raises(conroi.ExpectedVersionMismatch):
        replacing.commit(more_rows)
    conroi.open_table(uri).add_columns({"more": "id"})
    with pytest.raises(conroi.RetryableConflict, match="columns or its key changed"):
        late.commit(late_rows)
    assert ids(uri) == [1, 1, 2]


def test_a_table_of_a_lake_is_written_through_the_lake(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    table = lake.create_table("orders", TWO)
    before = lake.version
    writer, messages = written(lake.uri, TWO, table="orders")
    writer.commit(messages)
    writer.commit(messages)
    assert (lake.version, lake["orders"].count_rows()) == (before + 1, 4)
    assert ids(table.uri) == [1, 1, 2, 2]


@pytest.mark.contract("T30")
def test_put_reaches_sparks_format_and_a_lock_is_refused(spark: SparkSession, uri: str, tmp_path: Path):
    numbers(spark, 0, 3).write.format("conroi").option("put", "rename").mode("append").save(uri)
    numbers(spark, 3, 5).write.format("conroi").option("put", "rename").mode("append").save(uri)
    assert (conroi.open_table(uri).version, by_pylance(uri).num_rows) == (2, 5)
    with pytest.raises(conroi.InvalidInputError, match="put='copy'"):
        Options({"path": uri, "put": "copy"}).head()
    with pytest.raises(conroi.InvalidInputError, match="object of this process"):
        Options({"path": uri, "commitLock": "x"})
    with pytest.raises(conroi.InvalidInputError, match="A lake commits"):
        Options({"path": str(tmp_path / "lake"), "table": "t", "put": "rename"}).head()
