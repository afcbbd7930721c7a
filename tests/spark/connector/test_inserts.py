"""INSERT, INSERT OVERWRITE, TRUNCATE and the DataFrame writers: one commit each, keys exact, nothing half-written."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession, functions

import conroi
from conroi.spark.connector.errors import typed
from conroi.spark.connector.worker import aligned
from tests.spark.connector.support import rows
from tests.spark.connector.test_scans import VALUES
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("S17")


def test_rows_of_every_type_are_written_as_they_are(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("types", VALUES)
    lake.create_table("copied", VALUES.schema)
    sql.sql("INSERT INTO lake.copied SELECT * FROM lake.types")
    assert str(lake["copied"].to_arrow().sort_by("id").to_pylist()) == str(VALUES.to_pylist())
    assert str(lance.dataset(lake["copied"].uri).to_table().sort_by("id").to_pylist()) == str(VALUES.to_pylist())


def misaligned(batch: pa.RecordBatch) -> pa.RecordBatchReader:
    """The batch in a message that begins 8 bytes after a multiple of 64."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    message = sink.getvalue().to_pybytes()
    memory = bytearray(len(message) + 72)
    start = -pa.py_buffer(memory).address % 64 + 8
    memory[start : start + len(message)] = message
    return pa.ipc.open_stream(pa.py_buffer(memoryview(memory)[start : start + len(message)]))


def test_decimals_may_stand_anywhere_in_a_message(tmp_path: Path):
    """Messages of Java align them to 8 bytes; pylance needs 16, and panics."""
    decimals = pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal128(20, 1))
    batch = pa.record_batch({"d": decimals, "s": pa.StructArray.from_arrays([decimals], ["d"])})
    rows = misaligned(batch)
    copied = pa.RecordBatchReader.from_batches(rows.schema, aligned(rows))
    lance.write_dataset(copied, tmp_path / "copied.lance")
    assert lance.dataset(tmp_path / "copied.lance").to_table().to_batches() == [batch]
    with pytest.raises(BaseException, match="not aligned"):  # the control
        lance.write_dataset(misaligned(batch), tmp_path / "as_it_is.lance")


def test_an_insert_is_one_version(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("one", pa.table({"id": [1], "name": ["a"]}))
    before = lake.version
    sql.range(10, 20, numPartitions=4).selectExpr("id", "concat('n', id) AS name").writeTo("lake.one").append()
    assert (lake["one"].version, lake.version) == (2, before + 1)
    assert lake["one"].count_rows() == 11


def test_columns_are_matched_by_position_or_by_name(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("matched", pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.float64()}))
    sql.sql("INSERT INTO lake.matched VALUES (1, 'x', 1.5)")
    sql.sql("INSERT INTO lake.matched (c, a) VALUES (2.5, 2)")
    sql.sql("INSERT INTO lake.matched BY NAME SELECT 'z' AS b, 3 AS a, 3.5 AS c")
    assert rows(sql, "SELECT * FROM lake.matched ORDER BY a") == [(1, "x", 1.5), (2, None, 2.5), (3, "z", 3.5)]
    with pytest.raises(AnalysisException):
        sql.sql("INSERT INTO lake.matched VALUES (1, 'x')")
    with pytest.raises(AnalysisException):
        sql.sql("INSERT INTO lake.matched BY NAME SELECT 1 AS unknown, 3 AS a")


def test_a_duplicate_key_is_refused_with_its_type(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("keyed", pa.table({"id": [1, 2], "v": ["a", "b"]}), key="id")
    for values in ("(2, 'x')", "(7, 'x'), (7, 'y')"):
        with pytest.raises(IllegalArgumentException) as refused:
            sql.sql(f"INSERT INTO lake.keyed VALUES {values}")
        error = typed(refused.value)
        assert isinstance(error, conroi.DuplicateKeyError)
        assert error.keys == ({"id": int(values[1])},)
        assert error.hint
    assert lake["keyed"].version == 1


def test_null_in_a_column_that_has_none_is_refused(sql: SparkSession, lake: conroi.Lake):
    sql.sql("CREATE TABLE lake.not_null (id BIGINT NOT NULL, v STRING)")
    with pytest.raises(Exception, match="NOT_NULL_ASSERT_VIOLATION"):
        sql.sql("INSERT INTO lake.not_null SELECT nullif(id, 3), 'x' FROM range(5)")
    assert lake["not_null"].count_rows() == 0


def test_overwrite_replaces_all_rows(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("over", pa.table({"id": [1, 2, 3], "k": ["a", "a", "b"]}))
    sql.sql("INSERT OVERWRITE lake.over VALUES (9, 'z')")
    assert rows(sql, "SELECT * FROM lake.over") == [(9, "z")]
    sql.sql("INSERT OVERWRITE lake.over SELECT id + 1, k FROM lake.over")
    assert rows(sql, "SELECT * FROM lake.over") == [(10, "z")]
    sql.sql("INSERT OVERWRITE lake.over SELECT * FROM lake.over WHERE id < 0")
    assert rows(sql, "SELECT * FROM lake.over") == []
    assert lake["over"].version == 4


def test_overwrite_by_filter_replaces_the_rows_that_match(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("filtered", pa.table({"id": [1, 2, 3], "k": ["a", "a", "b"]}), key="id")
    sql.sql("INSERT INTO lake.filtered REPLACE WHERE k = 'a' SELECT 1L AS id, 'a' AS k")
    assert rows(sql, "SELECT * FROM lake.filtered ORDER BY id") == [(1, "a"), (3, "b")]
    new = sql.createDataFrame([(5, "b")], "id long, k string")
    new.writeTo("lake.filtered").overwrite(functions.col("k") == "b")
    assert rows(sql, "SELECT * FROM lake.filtered ORDER BY id") == [(1, "a"), (5, "b")]
    with pytest.raises(IllegalArgumentException, match=r"conroi\.InvalidInputError.*do not match"):
        new.writeTo("lake.filtered").overwrite(functions.col("k") == "a")
    new.writeTo("lake.filtered").overwritePartitions()
    assert rows(sql, "SELECT * FROM lake.filtered") == [(5, "b")]


def test_truncate_and_delete_by_a_filter_run_no_job(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("cut", pa.table({"id": [1, 2, 3], "k": ["a", "a", "b"]}))
    jobs = len(sql.sparkContext.statusTracker().getJobIdsForGroup(None))
    sql.sql("DELETE FROM lake.cut WHERE k = 'a' AND id > 1")
    assert column_values(lake["cut"].to_arrow()["id"]) == [1, 3]
    sql.sql("TRUNCATE TABLE lake.cut")
    assert lake["cut"].count_rows() == 0
    assert len(sql.sparkContext.statusTracker().getJobIdsForGroup(None)) == jobs
    assert lake["cut"].version == 3


def test_a_table_is_created_with_its_rows_at_once(sql: SparkSession, lake: conroi.Lake):
    before = lake.version
    sql.sql("CREATE TABLE lake.fresh.ctas TBLPROPERTIES ('key' = 'id') AS SELECT id, id * 2 AS v FROM range(10)")
    assert lake.version == before + 1
    assert lake["fresh.ctas"].key == ("id",)
    assert rows(sql, "SELECT sum(v) FROM lake.fresh.ctas") == [(90,)]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        sql.sql("CREATE TABLE lake.fresh.ctas AS SELECT 1 AS id")
    sql.range(3).writeTo("lake.fresh.other").create()
    assert lake["fresh.other"].count_rows() == 3


def test_a_failing_query_creates_no_table(sql: SparkSession, lake: conroi.Lake):
    before = lake.version
    with pytest.raises(Exception, match="spoiled"):
        sql.sql("CREATE TABLE lake.spoiled AS SELECT id, raise_error('spoiled') AS v FROM range(10)")
    assert "spoiled" not in lake
    assert lake.version == before


def test_a_table_is_replaced_with_its_rows_at_once(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("replaced", pa.table({"id": [1, 2]}), key="id")
    before = lake.version
    sql.sql("CREATE OR REPLACE TABLE lake.replaced AS SELECT 'x' AS name, id FROM lake.replaced")
    assert lake.version == before + 1
    assert rows(sql, "SELECT * FROM lake.replaced ORDER BY id") == [("x", 1), ("x", 2)]
    assert lake.at(before)["replaced"].schema.names == ["id"]
    with pytest.raises(Exception, match="spoiled"):
        sql.sql("REPLACE TABLE lake.replaced AS SELECT raise_error('spoiled') AS v FROM range(10)")
    assert rows(sql, "SELECT count(*) FROM lake.replaced") == [(2,)]
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        sql.sql("REPLACE TABLE lake.absent AS SELECT 1 AS v")


def test_a_failing_insert_leaves_nothing_visible(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("failing", pa.table({"id": [1]}))
    before = lake.version
    with pytest.raises(Exception, match="spoiled"):
        sql.sql("INSERT INTO lake.failing SELECT if(id = 900, raise_error('spoiled'), id) FROM range(0, 1000, 1, 4)")
    assert (lake.version, lake["failing"].count_rows()) == (before, 1)
    sql.sql("INSERT INTO lake.failing VALUES (2)")
    assert lake["failing"].count_rows() == 2
