"""Run by test_sessions: a session with a lake in one line, with credentials, Spark's event log and UI on, and pipes."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import IllegalArgumentException

import conroi
import conroi.spark
from conroi.spark.connector.errors import typed
from tests.spark.connector.processes import HELPER, WORKER, processes, wait_until
from tests.spark.connector.support import rows

if __name__ == "__main__":
    root, secret, control = sys.argv[1:]
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{root}/log",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.sql.warehouse.dir": f"{root}/warehouse",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.conroi.worker.sockets": "false",
        "spark.conroi.worker.idleSeconds": "1",
    }
    store = f"sqlite:///{root}/{secret}.db"
    lake = {"uri": f"{root}/lake", "store": store, "storage_options": {"note": secret}}
    spark = conroi.spark.session(master="local[2]", memory="1g", config=settings, lake={"lake": lake, "sales": lake})
    spark.sparkContext.setLogLevel("INFO")
    shown: list[str] = []

    # ------------------------------------------------------------------------ ten lines of SQL
    spark.sql("CREATE TABLE lake.orders (id BIGINT, v STRING) TBLPROPERTIES ('key' = 'id')")
    spark.sql("INSERT INTO lake.orders SELECT id, concat('v', id) FROM range(0, 100000, 1, 2)")
    spark.sql(f"UPDATE lake.orders SET v = '{control}' WHERE length(v) = 2")
    spark.sql("MERGE INTO lake.orders t USING (SELECT id FROM range(5, 15)) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    counted = rows(spark, f"SELECT count(*), count(DISTINCT v) FROM sales.orders WHERE v <> '{control}' OR id < 3")
    assert counted == [(100_000 - 10 - 2, 100_000 - 15 + 1)], counted
    with pytest.raises(IllegalArgumentException) as refused:
        spark.sql(f"INSERT INTO lake.orders VALUES (1, '{control}')")
    assert isinstance(typed(refused.value), conroi.DuplicateKeyError), refused
    shown.append(str(refused.value))

    # ------------------------------------------------------------------------ DataFrames and SQL of this process
    own = conroi.connect(f"{root}/lake", store=store, storage_options={"note": secret})
    frame = own["orders"].to_spark(spark, filter=f"v = '{control}' OR id = 99")
    assert sorted(row.id for row in frame.collect()) == [0, 1, 2, 3, 4, 99]
    own.sql(spark, "UPDATE orders SET v = upper(v) WHERE length(v) * id = 3 * 99")
    query = cast("Any", frame)._jdf.queryExecution()
    shown += [query.toString(), query.logical().toJSON(), query.optimizedPlan().toJSON()]

    # ------------------------------------------------------------------------ what is shown
    for statement in (
        f"SELECT * FROM lake.orders WHERE v = '{control}'",
        f"UPDATE lake.orders SET v = '{control}'",
        f"INSERT INTO lake.orders VALUES (1, '{control}')",
    ):
        shown += [row[0] for row in spark.sql(f"EXPLAIN EXTENDED {statement}").collect()]
        shown += [row[0] for row in spark.sql(f"EXPLAIN FORMATTED {statement}").collect()]
    shown += [str(row) for row in spark.sql("SET").collect()]
    shown += [str(row) for row in spark.sql("DESCRIBE EXTENDED lake.orders").collect()]
    Path(root, "plans.txt").write_text("\n".join(shown))
    commands = [Path(entry, "cmdline") for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    found: list[str] = []
    for command in commands:
        try:
            found.append(command.read_text().replace("\0", " "))
        except OSError:
            continue
    Path(root, "commands.txt").write_text("\n".join(found))
    address = spark.sparkContext.uiWebUrl
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    pages = [f"{address}/environment/", f"{address}/SQL/", *(f"{address}/SQL/execution/?id={n}" for n in range(6))]
    Path(root, "ui.txt").write_text("\n".join(opener.open(page, timeout=60).read().decode() for page in pages))

    # ------------------------------------------------------------------------ processes
    assert len(processes(spark, HELPER)) == 2, "one for each catalog"
    wait_until(lambda: not processes(spark, WORKER))
    assert rows(spark, "SELECT max(id) FROM lake.orders WHERE v LIKE 'v%'") == [(99_999,)]
    spark.stop()
    print("all is well")
