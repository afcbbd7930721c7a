"""What must work wherever Spark runs; run as a program by the tests of Connect and of a cluster, in a new process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
from pyspark.sql import SparkSession

import conroi
import conroi.spark
from tests.support.arrow import column_values


def ids(uri: str) -> list[int]:
    return sorted(column_values(lance.dataset(uri).to_table()["id"]))


def check(spark: SparkSession, folder: Path) -> None:
    """Read, append, overwrite, keys, transactions, save and load."""
    lake = conroi.connect(folder / "lake")
    frame = spark.range(0, 40, numPartitions=4).selectExpr("id", "concat('n', id) AS name")
    orders = lake.create_table("orders", frame, key="id")
    then = lake.version
    assert ids(orders.uri) == list(range(40))
    assert orders.to_spark(spark, ["id"], "id >= 30").where("id < 35").count() == 5
    with lake.begin() as tx:
        tx["orders"].append(frame.selectExpr("id + 40 AS id", "name"))
        tx.create_table("notes", pa.table({"text": ["arrow"]}))
    assert (ids(orders.uri), lake.tables()) == (list(range(80)), ["notes", "orders"])
    try:
        lake["orders"].append(frame)
        raise AssertionError("keys were doubled")
    except conroi.DuplicateKeyError as refused:
        print("refused:", refused.message)
    merged = lake["orders"].merge(frame.where("id < 2").selectExpr("id", "'new' AS name"), on="id")
    assert merged.when_matched_update_all().execute().rows_updated == 2
    change_rows(spark, lake["orders"])
    assert lake.at(then)["orders"].to_spark(spark).count() == 40

    alone = str(folder / "alone.lance")
    frame.write.format("conroi").mode("append").save(alone)
    frame.where("id < 3").write.format("conroi").mode("overwrite").save(alone)
    assert ids(alone) == [0, 1, 2]
    assert spark.read.format("conroi").option("version", 1).load(alone).count() == 40
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW alone USING conroi OPTIONS (path '{alone}')")
    spark.sql("INSERT INTO alone VALUES (9, NULL)")
    assert ids(alone) == [0, 1, 2, 9]


def change_rows(spark: SparkSession, orders: conroi.Table) -> None:
    """Merge, update, delete, compact and compute columns, all by tasks; the rows are those with the ids 0 to 79."""
    source = spark.range(70, 90, numPartitions=3).selectExpr("id", "concat('m', id) AS name")
    for plan in ("probe", "join"):
        merge = orders.merge(source, on="id").when_matched_update({"name": "concat(target.name, source.name)"})
        done = merge.when_not_matched_insert_all().execute(plan=plan)  # pyright: ignore[reportArgumentType]
        assert done.rows_inserted == (10 if plan == "probe" else 0), done
    orders = orders.update({"name": "'small'"}, "id < 10", spark=spark).delete("id >= 85", spark=spark)
    orders = orders.compact(spark=spark).add_columns(lengths, spark=spark)
    found = {row["id"]: row for row in lance.dataset(orders.uri).to_table().to_pylist()}
    assert (len(found), found[3]["name"], found[84]["name"]) == (85, "small", "m84m84")
    assert (found[3]["length"], found[84]["length"]) == (5, 6)
    orders.drop_columns(["length"]).delete("id >= 80")


def lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"length": [len(name) for name in cast("Any", batch.column("name")).to_pylist()]})


def open_session(master: str) -> SparkSession:
    if master.startswith("connect "):
        session = SparkSession.builder.remote(master.removeprefix("connect ")).getOrCreate()
        conroi.spark.register(session)
        return session
    session = conroi.spark.session(master=master, memory="1g", config={"spark.executor.memory": "1g"})
    conroi.spark.ship(session)
    return session


if __name__ == "__main__":
    session = open_session(sys.argv[1])
    try:
        check(session, Path(sys.argv[2]))
        print("all is well")
    finally:
        session.stop()
