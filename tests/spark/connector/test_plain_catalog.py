"""`conroi.spark.LakeCatalog`, the class for Spark 4.1, which has no transactions of its own: each write has one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import conroi
from conroi.spark.connector.configuration import catalog_settings
from conroi.spark.connector.errors import typed
from tests.spark.connector.support import rows
from tests.spark.connector.test_snapshots import running

pytestmark = pytest.mark.contract("S18")


@pytest.fixture(scope="module")
def plain(spark: SparkSession, lake: conroi.Lake) -> SparkSession:
    """A session with the lake as the catalog `lake`, by the class without transactions."""
    session = spark.newSession()
    for key, value in catalog_settings(lake.uri, is_local=True).items():
        session.conf.set(key, value.replace("TransactionalLakeCatalog", "LakeCatalog"))

    def slow(value: int, sought: int) -> bool:
        import time

        if value == sought:
            time.sleep(3)
        return True

    session.udf.register("slow", slow, "boolean")
    return session


def test_statements_commit_one_by_one(plain: SparkSession, lake: conroi.Lake):
    plain.sql("CREATE TABLE lake.orders TBLPROPERTIES ('key' = 'id') AS SELECT id, 'a' AS s FROM range(5)")
    before = lake.version
    for statement in (
        "INSERT INTO lake.orders VALUES (5, 'b')",
        "UPDATE lake.orders SET s = concat(s, s) WHERE length(s) = 1 AND id % 2 = 1",
        "DELETE FROM lake.orders WHERE id = 0",
        "DELETE FROM lake.orders WHERE id IN (SELECT max(id) FROM lake.orders)",
        "MERGE INTO lake.orders t USING (SELECT id FROM range(3, 8)) s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'm' "
        "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, 'n')",
        "INSERT OVERWRITE lake.orders SELECT id + 1, s FROM lake.orders WHERE id < 7",
        "CREATE OR REPLACE TABLE lake.orders AS SELECT * FROM lake.orders WHERE id <> 2",
    ):
        plain.sql(statement)
        before += 1
        assert lake.version == before, statement
    assert rows(plain, "SELECT * FROM lake.orders ORDER BY id") == [(3, "a"), (5, "m"), (6, "n"), (7, "n")]
    plain.sql("TRUNCATE TABLE lake.orders")
    assert lake["orders"].count_rows() == 0


def test_conflicts_are_typed_and_appends_are_rebased_over(plain: SparkSession, lake: conroi.Lake):
    lake.create_table("shared", pa.table({"id": [1, 2], "v": [0, 0]}))
    with running(plain, "UPDATE lake.shared SET v = 1 WHERE slow(id, 1)") as statement:
        lake["shared"].append(pa.table({"id": [3], "v": [0]}))
        statement.result()
    assert rows(plain, "SELECT id, v FROM lake.shared ORDER BY id") == [(1, 1), (2, 1), (3, 0)]
    with running(plain, "UPDATE lake.shared SET v = 2 WHERE slow(id, 1)") as statement:
        lake["shared"].update({"v": 7}, "id = 1")
        with pytest.raises(IllegalArgumentException) as refused:
            statement.result()
    assert isinstance(typed(refused.value), conroi.RetryableConflict)


def test_a_failing_job_leaves_nothing(plain: SparkSession, lake: conroi.Lake):
    lake.create_table("spoiled_rows", pa.table({"id": [1]}))
    before = lake.version
    for statement in (
        "INSERT INTO lake.spoiled_rows SELECT if(id = 9, raise_error('spoiled'), id) FROM range(10)",
        "CREATE TABLE lake.never AS SELECT raise_error('spoiled') AS v FROM range(10)",
        "UPDATE lake.spoiled_rows SET id = raise_error('spoiled')",
    ):
        with pytest.raises(Exception, match="spoiled"):
            plain.sql(statement)
    assert lake.version == before
    assert "never" not in lake
