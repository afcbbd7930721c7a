"""Run by test_cluster: the driver of a standalone cluster, to which conroi is shipped. Clients connect to it later."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

import conroi
import conroi.spark
from tests.spark.connector.support import rows

FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def hold_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows; the first attempt of one task never gives its last ones."""
    context = TaskContext.get()
    assert context is not None
    yield from batches
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        time.sleep(3600)


if __name__ == "__main__":
    master, root, port = sys.argv[1:]
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": FAST,
        "spark.executor.extraJavaOptions": FAST,
        "spark.executor.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{root}/warehouse",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
    }
    lake = {"lake": {"uri": f"{root}/lake", "bytesPerTask": "1000"}}  # a task for each fragment
    spark = conroi.spark.session(master=master, memory="1g", config=settings, lake=lake)
    conroi.spark.ship(spark)

    spark.sql("CREATE TABLE lake.orders (id BIGINT, name STRING, amount DOUBLE) TBLPROPERTIES ('key' = 'id')")
    spark.sql("INSERT INTO lake.orders SELECT id, concat('n', id), id * 1.5 FROM range(0, 20, 1, 4)")
    spark.sql("CREATE TABLE lake.names AS SELECT concat('n', id) AS name, id * 100 AS code FROM range(0, 20, 5, 2)")
    joined = rows(
        spark, "SELECT o.id, n.code FROM lake.orders o JOIN lake.names n ON o.name = n.name WHERE o.id > 3 ORDER BY 1"
    )
    spark.sql("UPDATE lake.orders SET amount = -1 WHERE length(name) = 2 AND id % 2 = 0")
    spark.sql(
        "MERGE INTO lake.orders t USING (SELECT id, 'merged' AS name FROM range(18, 22, 1, 2)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name "
        "WHEN NOT MATCHED THEN INSERT (id, name, amount) VALUES (s.id, s.name, 0)"
    )
    spark.sql("DELETE FROM lake.orders WHERE id BETWEEN 10 AND 16 AND length(name) = 3")
    held_up = spark.range(0, 120_000, numPartitions=2).mapInArrow(hold_up, "id long")
    conroi.connect(f"{root}/lake").create_table("by_verb", held_up, key="id")
    Path(root, "joined.txt").write_text(repr(joined))
    print("ready", flush=True)
    sys.stdin.read()  # until the tests have ended
    spark.stop()
