"""Branches in Spark: read and written by name, checked, and merged."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import conroi


@pytest.mark.contract("S1", "B1", "B3")
def test_load_on_a_branch_with_spark_check_it_and_merge(spark: SparkSession, tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", [{"id": 1, "n": 10}, {"id": 2, "n": 20}], key="id")
    lake.branches.create("load")
    path = f"{lake.uri}/orders.lance"

    spark.range(3, 6).selectExpr("id", "id * 10 AS n").write.format("conroi").option("branch", "load").mode(
        "append"
    ).save(path)

    def sums(**options: str) -> tuple[int, int]:
        frame = spark.read.format("conroi").options(**options).load(path)
        row = frame.selectExpr("count(*) AS rows", "sum(n) AS total").first()
        assert row is not None
        return row["rows"], row["total"]

    assert sums() == (2, 30)
    assert sums(branch="load") == (5, 150)
    by_name = spark.read.format("conroi").option("branch", "load").option("table", "orders").load(lake.uri)
    assert by_name.count() == 5
    at_start = spark.read.format("conroi").options(branch="load", table="orders", version="2").load(lake.uri)
    assert at_start.count() == 2
    assert lake.branch("load")["orders"].to_spark(spark).count() == 5

    lake.merge("load")

    assert sums() == (5, 150)
    with pytest.raises(PySparkException, match="no branch"):
        spark.read.format("conroi").option("branch", "nope").load(path)
