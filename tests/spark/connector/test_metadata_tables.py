"""Metadata tables in SQL: history, versions, fragments, indices and tags of a table; those of the lake."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import conroi
from tests.spark.connector.support import rows

pytestmark = pytest.mark.contract("S16")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> conroi.Lake:
    """A lake for these tests alone."""
    return conroi.connect(tmp_path_factory.mktemp("connector") / "lake")


@pytest.fixture(scope="module")
def orders(lake: conroi.Lake) -> conroi.Table:
    """Three versions, two fragments, a tag, an index."""
    table = lake.create_table("sales.orders", pa.table({"id": [1, 2], "v": [1.5, 2.5]}), key="id", message="first")
    table.tags.create("start")
    table = table.append(pa.table({"id": [3], "v": [3.5]}), message="more").delete("id = 1")
    return table.create_index("id")


def test_history_has_a_row_for_each_version(sql: SparkSession, orders: conroi.Table):
    query = "SELECT version, operation, message, rows, read_version FROM lake.sales.orders.history ORDER BY version"
    assert rows(sql, query) == [
        (each.version, each.operation, each.message, each.rows, each.read_version)
        for each in reversed(orders.history())
    ]
    newest = sql.sql("SELECT timestamp, properties FROM lake.sales.orders.history ORDER BY version DESC").first()
    assert newest is not None
    assert newest["timestamp"].timestamp() == pytest.approx(orders.history(1)[0].timestamp.timestamp())
    assert newest["properties"] == orders.history(1)[0].properties


def test_versions_know_their_tags(sql: SparkSession, orders: conroi.Table):
    found = rows(sql, "SELECT version, tags, is_current FROM lake.sales.orders.versions ORDER BY version")
    assert found[0] == (1, ["start"], False)
    assert found[-1] == (orders.version, [], True)
    assert [row[0] for row in found] == orders.versions()


def test_fragments_are_those_of_the_version_that_is_read(sql: SparkSession, orders: conroi.Table):
    query = "SELECT id, rows, physical_rows, deleted_rows FROM lake.sales.orders.fragments{} ORDER BY id"
    assert rows(sql, query.format("")) == [(0, 1, 2, 1), (1, 1, 1, 0)]
    assert rows(sql, query.format(" VERSION AS OF 1")) == [(0, 2, 2, 0)]
    assert rows(sql, "SELECT sum(rows) FROM lake.sales.orders.tag_start.fragments") == [(2,)]
    paths = [file.path for fragment in orders.pinned.manifest.fragments for file in fragment.files]
    assert [row[0] for row in rows(sql, "SELECT explode(files) FROM lake.sales.orders.fragments")] == paths


def test_indices_and_tags(sql: SparkSession, orders: conroi.Table):
    assert rows(sql, "SELECT * FROM lake.sales.orders.indices") == [(next(iter(orders.indices)), ["id"], 0)]
    assert rows(sql, "SELECT name, version FROM lake.sales.orders.TAGS") == [("start", 1)]


def test_the_lake_has_metadata_tables_of_its_own(sql: SparkSession, lake: conroi.Lake, orders: conroi.Table):
    lake.tags.create("q3")
    lake.branches.create("dev")
    newest = lake.history(1)[0]
    found = sql.sql("SELECT * FROM lake.system.history ORDER BY version DESC LIMIT 1").first()
    assert found is not None
    assert (found["version"], found["tables"]) == (newest.version, {k: str(v) for k, v in newest.tables.items()})
    assert ("q3",) in rows(sql, "SELECT name FROM lake.system.tags")
    assert rows(sql, "SELECT name FROM lake.system.branches ORDER BY name") == [("dev",), ("main",)]
    table = rows(sql, "SELECT version, rows, fragments, key FROM lake.system.tables WHERE name = 'sales.orders'")
    assert table == [(orders.version, 2, 2, ["id"])]


def test_a_metadata_table_joins_with_a_table(sql: SparkSession, orders: conroi.Table):
    query = "SELECT h.version FROM lake.sales.orders.history h JOIN lake.sales.orders o ON h.version = o.id ORDER BY 1"
    assert rows(sql, query) == [(2,), (3,)]
    sql.sql("CREATE TABLE lake.kept_history AS SELECT version, message FROM lake.sales.orders.history")
    assert rows(sql, "SELECT count(*) FROM lake.kept_history") == [(len(orders.history()),)]


def test_a_table_of_the_lake_is_found_before_a_metadata_table(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("system.tags", pa.table({"mine": ["yes"]}))
    assert rows(sql, "SELECT * FROM lake.system.tags") == [("yes",)]
    lake.drop_table("system.tags")


def test_a_metadata_table_is_not_written(sql: SparkSession, orders: conroi.Table):
    with pytest.raises(AnalysisException):
        sql.sql("DELETE FROM lake.sales.orders.history")
    with pytest.raises(AnalysisException):
        sql.sql("INSERT INTO lake.sales.orders.tags VALUES ('a', 1, NULL, NULL)")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql.sql("SELECT * FROM lake.sales.absent.history")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql.sql("SELECT * FROM lake.sales.orders.nothing")
    assert orders.latest().count_rows() == 2


def test_describe_extended_tells_the_facts_of_a_table(sql: SparkSession, orders: conroi.Table):
    described = {row[0]: row[1] for row in rows(sql, "DESCRIBE EXTENDED lake.sales.orders")}
    assert described["Provider"] == "conroi"
    assert described["Location"] == orders.uri
    for fact in ("key=id", f"version={orders.version}"):
        assert fact in described["Table Properties"]
