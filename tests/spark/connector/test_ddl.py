"""DDL in SQL: variants of CREATE TABLE, ALTER TABLE, comments, RENAME, and how a lake refuses what it does not have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import conroi
from tests.spark.connector.support import rows

pytestmark = pytest.mark.contract("S16")


def _described(sql: SparkSession, table: str) -> dict[str, tuple[str, str | None]]:
    return {row[0]: (row[1], row[2]) for row in rows(sql, f"DESCRIBE {table}")}


def test_comments_of_columns_and_tables(sql: SparkSession, lake: conroi.Lake):
    sql.sql("CREATE TABLE lake.commented (id BIGINT COMMENT 'the number', v STRING) COMMENT 'all of them'")
    assert _described(sql, "lake.commented")["id"] == ("bigint", "the number")
    sql.sql("ALTER TABLE lake.commented ALTER COLUMN v COMMENT 'it''s text'")
    sql.sql("ALTER TABLE lake.commented ADD COLUMN w INT COMMENT 'new'")
    sql.sql("COMMENT ON TABLE lake.commented IS 'others'")
    assert _described(sql, "lake.commented")["v"] == ("string", "it's text")
    assert _described(sql, "lake.commented")["w"] == ("int", "new")
    extended = {row[0]: row[1] for row in rows(sql, "DESCRIBE EXTENDED lake.commented")}
    assert extended["Comment"] == "others"
    sql.sql("INSERT INTO lake.commented VALUES (1, 'a', 2)")
    sql.sql("UPDATE lake.commented SET v = 'b'")
    assert rows(sql, "SELECT * FROM lake.commented") == [(1, "b", 2)]
    assert _described(sql, "lake.commented")["id"] == ("bigint", "the number")
    assert lake["commented"].config["comment"] == "others"


def test_fields_of_structs_are_renamed_dropped_and_retyped(sql: SparkSession, lake: conroi.Lake):
    sql.sql("CREATE TABLE lake.inner (id BIGINT, p STRUCT<a: INT, b: STRING, c: STRUCT<d: INT, e: INT>>)")
    sql.sql("INSERT INTO lake.inner VALUES (1, named_struct('a', 1, 'b', 'x', 'c', named_struct('d', 2, 'e', 3)))")
    sql.sql("ALTER TABLE lake.inner RENAME COLUMN p.a TO first")
    sql.sql("ALTER TABLE lake.inner DROP COLUMN p.c.d")
    sql.sql("ALTER TABLE lake.inner DROP COLUMN IF EXISTS p.b")
    assert rows(sql, "SELECT p.first, p.c.e, to_json(p) FROM lake.inner") == [(1, 3, '{"first":1,"c":{"e":3}}')]
    sql.sql("ALTER TABLE lake.inner DROP COLUMN IF EXISTS absent")
    sql.sql("ALTER TABLE lake.inner DROP COLUMN IF EXISTS p.absent")


def test_several_columns_change_in_one_version(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("several", pa.table({"a": pa.array([1], pa.int32()), "b": [1.5], "c": ["x"]}))
    sql.sql("ALTER TABLE lake.several ALTER COLUMN a TYPE BIGINT, b COMMENT 'half'")
    assert lake["several"].version == 2
    sql.sql("ALTER TABLE lake.several DROP COLUMNS (b, c)")
    assert lake["several"].schema.names == ["a"]
    assert rows(sql, "SELECT * FROM lake.several") == [(1,)]


def test_nullability(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("nulls", pa.table({"a": [1, 2], "b": [1, None]}))
    with pytest.raises(PySparkException, match=r"NOT_SUPPORTED_CHANGE_COLUMN|nullable"):  # Spark itself
        sql.sql("ALTER TABLE lake.nulls ALTER COLUMN a SET NOT NULL")
    sql.sql("CREATE TABLE lake.strict (a INT NOT NULL, b INT)")
    with pytest.raises(PySparkException, match="NOT_NULL_ASSERT_VIOLATION"):
        sql.sql("INSERT INTO lake.strict VALUES (NULL, 1)")
    sql.sql("ALTER TABLE lake.strict ALTER COLUMN a DROP NOT NULL")
    sql.sql("INSERT INTO lake.strict VALUES (NULL, 1)")
    assert rows(sql, "SELECT * FROM lake.strict") == [(None, 1)]


def test_a_table_moves_to_another_namespace(sql: SparkSession, lake: conroi.Lake):
    sql.sql("CREATE NAMESPACE lake.there")
    sql.sql("CREATE TABLE lake.here.moved AS SELECT 1 AS id")
    sql.sql("ALTER TABLE lake.here.moved RENAME TO there.arrived")
    assert rows(sql, "SELECT * FROM lake.there.arrived") == [(1,)]
    sql.sql("ALTER TABLE lake.there.arrived RENAME TO stayed")
    assert "there.stayed" in lake
    sql.sql("ALTER TABLE lake.there.stayed RENAME TO lake.here.back")
    assert "here.back" in lake
    assert "lake" not in lake.namespaces()


def test_variants_of_create_table(sql: SparkSession, lake: conroi.Lake):
    sql.sql(
        "CREATE TABLE lake.variants USING conroi TBLPROPERTIES ('key' = 'a, b') AS SELECT 1 AS a, 'x' AS b, 2.5 AS c"
    )
    assert lake["variants"].key == ("a", "b")
    sql.sql(
        "CREATE TABLE lake.typed (a TINYINT, b CHAR(3), c VARCHAR(5), d BINARY, e TIMESTAMP_NTZ, f MAP<STRING, INT>)"
    )
    sql.sql("INSERT INTO lake.typed VALUES (1, 'ab', 'abcde', X'00', TIMESTAMP_NTZ'2026-01-01 00:00:00', map('k', 1))")
    assert rows(sql, "SELECT a, rtrim(b), c FROM lake.typed") == [(1, "ab", "abcde")]
    sql.sql("CREATE OR REPLACE TABLE lake.typed (z INT)")
    assert lake["typed"].schema.names == ["z"]
    sql.sql("REPLACE TABLE lake.typed AS SELECT 1 AS one")
    assert rows(sql, "SELECT * FROM lake.typed") == [(1,)]
    assert rows(sql, "SHOW COLUMNS IN lake.typed") == [("one",)]
    assert ("key", "a,b") in rows(sql, "SHOW TBLPROPERTIES lake.variants")
    assert "CREATE TABLE lake.variants" in rows(sql, "SHOW CREATE TABLE lake.variants")[0][0]
    sql.sql("REFRESH TABLE lake.typed")


REFUSED = [
    ("CREATE TABLE lake.r (id INT) PARTITIONED BY (id)", "conroi.UnsupportedError"),
    ("CREATE TABLE lake.r (id INT) CLUSTERED BY (id) INTO 4 BUCKETS", "conroi.UnsupportedError"),
    ("CREATE TABLE lake.r (id INT) LOCATION 'elsewhere'", "conroi.UnsupportedError"),
    ("CREATE TABLE lake.r (id INT) USING parquet", "conroi.UnsupportedError"),
    ("CREATE TABLE lake.r (id INT DEFAULT 5)", "UNSUPPORTED_FEATURE.TABLE_OPERATION"),
    ("CREATE TABLE lake.r (id INT, two INT GENERATED ALWAYS AS (id * 2))", "UNSUPPORTED_FEATURE.TABLE_OPERATION"),
    ("CREATE TABLE lake.there_is (id INT)", "TABLE_OR_VIEW_ALREADY_EXISTS"),
    ("CREATE TABLE lake.r (id VARIANT)", "conroi.UnsupportedError"),
    ("CREATE TABLE lake.r (id INT) TBLPROPERTIES ('key' = 'absent')", "conroi.InvalidInputError"),
    ("CREATE TABLE lake.r (id INTERVAL YEAR TO MONTH)", "conroi.UnsupportedError"),
    ("CREATE TABLE lake.r (id ARRAY<STRUCT<a: VARIANT>>)", "conroi.UnsupportedError"),
    ("CREATE TABLE lake.`a.b` (id INT)", "conroi.InvalidInputError"),
    ("CREATE TABLE lake.`a.b` AS SELECT 1 AS id", "conroi.InvalidInputError"),
    ("CREATE NAMESPACE lake.`a.b`", "conroi.InvalidInputError"),
    ("ALTER TABLE lake.there_is RENAME TO `a.b`", "conroi.InvalidInputError"),
    ("ALTER TABLE lake.there_is ADD COLUMN a VARIANT", "conroi.UnsupportedError"),
    ("REPLACE TABLE lake.absent AS SELECT 1 AS a", "TABLE_OR_VIEW_NOT_FOUND"),
    ("DROP TABLE lake.absent", "TABLE_OR_VIEW_NOT_FOUND"),
    ("ALTER TABLE lake.absent ADD COLUMN a INT", "TABLE_OR_VIEW_NOT_FOUND"),
    ("ALTER TABLE lake.there_is ADD COLUMN id INT", "FIELD_ALREADY_EXISTS"),
    ("ALTER TABLE lake.there_is ADD COLUMN a INT FIRST", "conroi.UnsupportedError"),
    ("ALTER TABLE lake.there_is ADD COLUMN p.x INT", "conroi.UnsupportedError"),
    ("ALTER TABLE lake.there_is ADD COLUMN a INT DEFAULT 1", "conroi.UnsupportedError"),
    ("ALTER TABLE lake.there_is DROP COLUMN absent", "UNRESOLVED_COLUMN"),
    ("ALTER TABLE lake.there_is RENAME COLUMN id TO v", "FIELD_ALREADY_EXISTS"),
    ("ALTER TABLE lake.there_is ALTER COLUMN v TYPE INT", "NOT_SUPPORTED_CHANGE_COLUMN"),
    ("ALTER TABLE lake.there_is ALTER COLUMN v AFTER p", "conroi.UnsupportedError"),
    ("ALTER TABLE lake.there_is RENAME TO there_was", "TABLE_OR_VIEW_ALREADY_EXISTS"),
    ("ALTER TABLE lake.there_is DROP COLUMNS (id, v, p)", "conroi.InvalidInputError"),
    ("ALTER TABLE lake.there_is ADD PARTITION (id = 1)", "INVALID_PARTITION_OPERATION"),
    ("DROP TABLE lake.there_is PURGE", "UNSUPPORTED_FEATURE.PURGE_TABLE"),
    ("DROP NAMESPACE lake.absent", "SCHEMA_NOT_FOUND"),
    ("SHOW TABLES IN lake.absent", "SCHEMA_NOT_FOUND"),
    ("CREATE NAMESPACE lake.n COMMENT 'x'", "conroi.UnsupportedError"),
    ("ALTER NAMESPACE lake.is_there SET PROPERTIES ('a' = 'b')", "conroi.UnsupportedError"),
    ("CREATE VIEW lake.v AS SELECT 1", "MISSING_CATALOG_ABILITY"),
    ("CREATE INDEX i ON lake.there_is (id)", "CreateIndex is not supported"),
    ("ANALYZE TABLE lake.there_is COMPUTE STATISTICS", "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"),
]


@pytest.mark.parametrize(("statement", "error"), REFUSED, ids=[statement for statement, _ in REFUSED])
def test_what_a_lake_does_not_have_is_refused(sql: SparkSession, lake: conroi.Lake, statement: str, error: str):
    schema = pa.schema({"id": pa.int32(), "v": pa.string(), "p": pa.struct([("a", pa.int32())])})
    lake.create_table("there_is", schema, exist_ok=True)
    lake.create_table("there_was", schema, exist_ok=True)
    before = lake.version
    with pytest.raises(PySparkException) as caught:
        sql.sql(statement)
    assert error in str(caught.value), str(caught.value)
    assert lake.version == before
