"""The catalog: namespaces, tables, DDL and time travel in SQL, as a user of Spark writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession

import conroi
from conroi.spark.connector.configuration import catalog_settings
from tests.spark.connector.support import rows

pytestmark = pytest.mark.contract("S16")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> conroi.Lake:
    """A lake for these tests alone."""
    return conroi.connect(tmp_path_factory.mktemp("connector") / "lake")


def test_namespaces_and_tables_are_listed(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("listed.deep.one", pa.table({"id": [1]}))
    lake.create_table("listed.two", pa.table({"id": [1]}))
    lake.create_table("three", pa.table({"id": [1]}))
    assert ("listed",) in rows(sql, "SHOW NAMESPACES IN lake")
    assert rows(sql, "SHOW NAMESPACES IN lake.listed") == [("listed.deep",)]
    assert rows(sql, "SHOW TABLES IN lake.listed") == [("listed", "two", False)]
    assert ("", "three", False) in rows(sql, "SHOW TABLES IN lake")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        sql.sql("SHOW TABLES IN lake.absent")


def test_a_namespace_is_created_and_dropped(sql: SparkSession, lake: conroi.Lake):
    sql.sql("CREATE NAMESPACE lake.made")
    assert "made" in lake.namespaces()
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        sql.sql("CREATE NAMESPACE lake.made")
    sql.sql("CREATE NAMESPACE IF NOT EXISTS lake.made")
    sql.sql("CREATE TABLE lake.made.t (id BIGINT)")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        sql.sql("DROP NAMESPACE lake.made")
    sql.sql("DROP NAMESPACE lake.made CASCADE")
    assert "made" not in lake.namespaces()
    assert "made.t" not in lake


def test_a_table_is_created_with_key_types_and_properties(sql: SparkSession, lake: conroi.Lake):
    sql.sql(
        "CREATE TABLE lake.created (id BIGINT NOT NULL, v DECIMAL(10,2), tags ARRAY<STRING>, at TIMESTAMP) "
        "TBLPROPERTIES ('key' = 'id', 'stable_row_ids' = 'true', 'team' = 'sales')"
    )
    table = lake["created"]
    assert table.key == ("id",)
    assert table.has_stable_row_ids
    assert table.config["team"] == "sales"
    assert not table.schema.field("id").nullable
    assert table.schema.field("v").type == pa.decimal128(10, 2)
    described = {row[0]: row[1] for row in rows(sql, "DESCRIBE EXTENDED lake.created")}
    assert described["id"] == "bigint"
    assert "key=id" in described["Table Properties"]
    assert described["Provider"] == "conroi"
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        sql.sql("CREATE TABLE lake.created (id BIGINT)")
    sql.sql("CREATE TABLE IF NOT EXISTS lake.created (id BIGINT)")


def test_a_table_is_altered_in_one_version(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("altered", pa.table({"id": pa.array([1, 2], pa.int32()), "old": ["a", "b"], "gone": [1, 2]}))
    sql.sql("ALTER TABLE lake.altered ADD COLUMNS (x DOUBLE, y STRING)")
    assert lake["altered"].version == 2
    sql.sql("ALTER TABLE lake.altered RENAME COLUMN old TO new")
    sql.sql("ALTER TABLE lake.altered DROP COLUMN gone")
    sql.sql("ALTER TABLE lake.altered ALTER COLUMN id TYPE BIGINT")
    sql.sql("ALTER TABLE lake.altered SET TBLPROPERTIES ('team' = 'a')")
    assert lake["altered"].config["team"] == "a"
    sql.sql("ALTER TABLE lake.altered UNSET TBLPROPERTIES ('team')")
    assert "team" not in lake["altered"].config
    assert lake["altered"].schema.names == ["id", "new", "x", "y"]
    assert rows(sql, "SELECT * FROM lake.altered ORDER BY id") == [(1, "a", None, None), (2, "b", None, None)]
    assert dict(sql.table("lake.altered").dtypes)["id"] == "bigint"


def test_a_table_is_renamed_and_dropped(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("first", pa.table({"id": [1]}))
    lake.create_table("other", pa.table({"id": [1]}))
    sql.sql("ALTER TABLE lake.first RENAME TO second")
    assert "first" not in lake
    assert rows(sql, "SELECT * FROM lake.second") == [(1,)]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        sql.sql("ALTER TABLE lake.second RENAME TO other")
    sql.sql("DROP TABLE lake.second")
    assert "second" not in lake
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql.sql("SELECT * FROM lake.second")
    sql.sql("DROP TABLE IF EXISTS lake.second")


def test_names_are_found_in_any_letters(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("Mixed", pa.table({"Id": [1]}))
    assert rows(sql, "SELECT id FROM lake.mixed") == [(1,)]
    lake.create_table("mixed", pa.table({"Id": [2]}))
    assert rows(sql, "SELECT id FROM lake.mixed") == [(2,)]
    assert rows(sql, "SELECT id FROM lake.Mixed") == [(1,)]


def test_the_past_is_read_by_version_time_and_tag(sql: SparkSession, lake: conroi.Lake):
    table = lake.create_table("past", pa.table({"id": [1]}))
    table.tags.create("first")
    lake.tags.create("q3")
    then = sql.sql("SELECT current_timestamp()").collect()[0][0]
    table = lake["past"].append(pa.table({"id": [2]}))
    assert rows(sql, "SELECT * FROM lake.past VERSION AS OF 1") == [(1,)]
    assert rows(sql, "SELECT * FROM lake.past VERSION AS OF 'first'") == [(1,)]
    assert rows(sql, f"SELECT * FROM lake.past TIMESTAMP AS OF '{then}'") == [(1,)]
    assert rows(sql, "SELECT * FROM lake.past.tag_q3") == [(1,)]
    assert rows(sql, "SELECT * FROM lake.past.tag_first") == [(1,)]
    assert rows(sql, "SELECT count(*) FROM lake.past") == [(2,)]
    with pytest.raises(AnalysisException):
        sql.sql("INSERT INTO lake.past.tag_q3 VALUES (9)")
    with pytest.raises(IllegalArgumentException, match=r"conroi\.NotFoundError"):
        sql.sql("SELECT * FROM lake.past VERSION AS OF 99").collect()


def test_a_branch_is_read_and_written_by_its_name(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("branched", pa.table({"id": [1]}))
    lake.branches.create("dev")
    sql.sql("INSERT INTO lake.branched.branch_dev VALUES (2)")
    sql.sql("UPDATE lake.branched.branch_dev SET id = id * 10 WHERE id + 1 = 2")
    assert rows(sql, "SELECT id FROM lake.branched.branch_dev ORDER BY id") == [(2,), (10,)]
    assert rows(sql, "SELECT id FROM lake.branched") == [(1,)]
    assert rows(sql, "SELECT id FROM lake.branched.branch_dev EXCEPT SELECT id FROM lake.branched ORDER BY id") == [
        (2,),
        (10,),
    ]


def test_what_a_lake_does_not_have_is_refused_with_its_reason(sql: SparkSession):
    for statement in (
        "CREATE TABLE lake.refused (id BIGINT, d DATE) PARTITIONED BY (d)",
        "CREATE TABLE lake.refused (id BIGINT) LOCATION 'elsewhere'",
        "CREATE TABLE lake.refused (id BIGINT) USING parquet",
    ):
        with pytest.raises(IllegalArgumentException, match=r"conroi\.UnsupportedError.*Hint"):
            sql.sql(statement)


def test_a_session_without_a_uri_says_what_is_missing(spark: SparkSession):
    session = spark.newSession()
    for key, value in catalog_settings({"empty": {}}, is_local=True).items():
        session.conf.set(key, value)
    with pytest.raises(IllegalArgumentException, match=r"conroi.InvalidInputError.*has no uri.*Hint"):
        session.sql("SHOW TABLES IN empty")
