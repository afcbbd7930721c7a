"""Stored procedures in SQL: maintenance, tags, branches, doctor."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession

import conroi
from conroi.spark.connector.metadata_tables import OF_LAKE, OF_TABLES
from conroi.spark.connector.procedures import PROCEDURES
from tests.spark.connector.support import rows
from tests.support.source import REPOSITORY

pytestmark = pytest.mark.contract("S16")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> conroi.Lake:
    """A lake for these tests alone."""
    return conroi.connect(tmp_path_factory.mktemp("connector") / "lake")


def _fragmented(lake: conroi.Lake, name: str) -> conroi.Table:
    table = lake.create_table(name, pa.table({"id": [3, 4]}))
    return table.append(pa.table({"id": [1, 2]})).append(pa.table({"id": [5]}))


def test_compact(sql: SparkSession, lake: conroi.Lake):
    table = _fragmented(lake, "compacted")
    done = rows(sql, "CALL lake.system.compact('compacted')")
    assert done == [(lake["compacted"].version, 3, 1)]
    assert lake["compacted"].version > table.version
    _fragmented(lake, "ns.sorted")
    rows(sql, "CALL lake.system.compact(table => 'lake.ns.sorted', sort_by => 'id')")
    assert lake["ns.sorted"].to_arrow().column("id").to_pylist() == [1, 2, 3, 4, 5]


def test_revert(sql: SparkSession, lake: conroi.Lake):
    table = _fragmented(lake, "reverted")
    table.tags.create("here", 2)
    assert rows(sql, "CALL lake.system.revert('reverted', 1)") == [(4, 2)]
    assert rows(sql, "CALL lake.system.revert(table => 'reverted', tag => 'here')") == [(5, 4)]
    assert lake["reverted"].count_rows() == 4


def test_tags(sql: SparkSession, lake: conroi.Lake):
    _fragmented(lake, "tagged")
    assert rows(sql, "CALL lake.system.tag('q1')") == [("q1", lake.version)]
    assert rows(sql, "CALL lake.system.tag(name => 'old', table => 'tagged', version => 1)") == [("old", 1)]
    assert rows(sql, "SELECT count(*) FROM lake.tagged VERSION AS OF 'old'") == [(2,)]
    assert rows(sql, "CALL lake.system.drop_tag('old', 'tagged')") == [("old",)]
    assert [tag.name for tag in lake["tagged"].tags] == []
    with pytest.raises(IllegalArgumentException, match=r"conroi\.AlreadyExistsError"):
        rows(sql, "CALL lake.system.tag('q1')")


def test_branches_are_made_merged_and_dropped(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("branched", pa.table({"id": [1]}), key="id")
    assert rows(sql, "CALL lake.system.branch('dev')")[0][0] == "dev"
    sql.sql("INSERT INTO lake.branched.branch_dev VALUES (2)")
    planned = rows(sql, "CALL lake.system.merge(source => 'dev', dry_run => true)")
    assert [row[0] for row in planned] == ["branched"]
    assert lake["branched"].count_rows() == 1
    rows(sql, "CALL lake.system.merge('dev')")
    assert lake["branched"].count_rows() == 2
    sql.sql("INSERT INTO lake.branched.branch_dev VALUES (3)")
    assert rows(sql, "CALL lake.system.compact('branched.branch_dev')")[0][2] == 1
    rows(sql, "CALL lake.system.drop_branch('dev')")
    assert "dev" not in lake.branches


def test_expire_and_gc_report_first(sql: SparkSession, lake: conroi.Lake):
    _fragmented(lake, "expired")
    expected = lake.expire("0s", keep=1)
    planned = rows(sql, "CALL lake.system.expire(older_than => '0s', keep => 1)")
    assert planned == [(len(expected.removed), expected.table_versions, expected.bytes, True)]
    assert rows(sql, "CALL lake.system.expire(older_than => '900d', dry_run => false)") == [(0, 0, 0, False)]
    with pytest.raises(IllegalArgumentException, match=r"conroi\.InvalidInputError.*is not an age"):
        rows(sql, "CALL lake.system.expire('soon')")
    assert rows(sql, "CALL lake.system.gc()")[0][2] is True
    assert rows(sql, "CALL lake.system.gc(min_age => '1h', dry_run => false)")[0][2] is False
    assert lake["expired"].count_rows() == 5


def test_indices(sql: SparkSession, lake: conroi.Lake):
    _fragmented(lake, "indexed")
    rows(sql, "CALL lake.system.create_index('indexed', 'id', name => 'by_id')")
    assert lake["indexed"].indices == {"by_id": ("id",)}
    rows(sql, "CALL lake.system.drop_index('indexed', 'by_id')")
    assert lake["indexed"].indices == {}


def test_doctor(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("healthy", pa.table({"id": [1]}))
    found = sql.sql("CALL lake.system.doctor(table => 'healthy')")
    assert found.columns == ["severity", "kind", "table", "what", "hint", "fixed"]
    assert [row for row in found.collect() if row["severity"] == "error"] == []
    assert [row for row in rows(sql, "CALL lake.system.doctor()") if row[0] == "error"] == []


def test_what_a_procedure_is_not_given_or_does_not_know_is_refused(sql: SparkSession):
    with pytest.raises(AnalysisException, match="REQUIRED_PARAMETER_NOT_FOUND"):
        sql.sql("CALL lake.system.compact()")
    with pytest.raises(AnalysisException, match="UNRECOGNIZED_PARAMETER_NAME"):
        sql.sql("CALL lake.system.compact(tables => 'x')")
    with pytest.raises(IllegalArgumentException, match=r"conroi\.NotFoundError.*no procedure system.nothing"):
        sql.sql("CALL lake.system.nothing()")
    with pytest.raises(IllegalArgumentException, match=r"conroi\.NotFoundError.*no table 'absent'"):
        sql.sql("CALL lake.system.compact('absent')")


def test_every_procedure_is_in_the_documentation():
    page = (REPOSITORY / "docs" / "spark.md").read_text("utf-8")
    assert [name for name in [*PROCEDURES, *OF_TABLES, *OF_LAKE] if name not in page] == []
    calls = {name: f"{name}({', '.join(found.parameters)})" for name, found in PROCEDURES.items()}
    assert [name for name, call in calls.items() if f"`{call}`" not in page] == []


def test_procedures_are_listed_and_described(sql: SparkSession):
    assert {row[-1] for row in sql.sql("SHOW PROCEDURES IN lake.system").collect()} == set(PROCEDURES)
    described = "\n".join(str(row[0]) for row in rows(sql, "DESCRIBE PROCEDURE lake.system.compact"))
    assert "Arguments: table, sort_by" in described
