"""What must work wherever Spark runs; run as a program by the tests of Connect and of a cluster, in a new process."""

from __future__ import annotations

import sys
from pathlib import Path

import lance
import pyarrow as pa
from pyspark.sql import SparkSession

import conroi
import conroi.spark


def ids(uri: str) -> list[int]:
    return sorted(lance.dataset(uri).to_table()["id"].to_pylist())


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
    assert lake.at(then)["orders"].to_spark(spark).count() == 40

    alone = str(folder / "alone.lance")
    frame.write.format("conroi").mode("append").save(alone)
    frame.where("id < 3").write.format("conroi").mode("overwrite").save(alone)
    assert ids(alone) == [0, 1, 2]
    assert spark.read.format("conroi").option("version", 1).load(alone).count() == 40
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW alone USING conroi OPTIONS (path '{alone}')")
    spark.sql("INSERT INTO alone VALUES (9, NULL)")
    assert ids(alone) == [0, 1, 2, 9]


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
