"""Run by test_credentials: a program that gives conroi credentials in every way, with Spark's event log and UI on.

It does not import conroi before its first read and write, so Spark must have found the source by itself.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import urllib.request
from typing import cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

if __name__ == "__main__":
    root, secret, control, password = sys.argv[1:]
    lake_uri, store, options = f"{root}/lake", f"sqlite:///{root}/{secret}.db", {"note": secret}
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{root}/log",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.sql.warehouse.dir": f"{root}/warehouse",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.appName("credentials").master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    shown: list[str] = []

    def page(address: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address, timeout=60) as answer:
            return answer.read().decode()

    def explain(frame: DataFrame) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            frame.explain("formatted")
            frame.explain(True)
        shown.append(text.getvalue())

    # --------------------------------------------------------------- found by Spark, in a session that we did not touch
    assert "conroi" not in sys.modules
    frame = spark.createDataFrame([(2, "b")], "id long, v string")
    given = {"table": "t", "storeUrl": store, "secretStorageOptions": json.dumps(options)}
    frame.write.format("conroi").options(**given, message=control).mode("append").save(lake_uri)
    read = spark.read.format("conroi").options(**given, filter=f"v <> '{control}'").load(lake_uri)
    assert read.count() == 2
    explain(read)
    of_view = f"path '{lake_uri}', table 't', storeUrl '{store}', secretStorageOptions '{json.dumps(options)}'"
    view = f"CREATE TEMPORARY VIEW found USING conroi OPTIONS ({of_view}, filter 'v <> \\'{control}\\'')"
    shown.append(spark.sql(f"EXPLAIN EXTENDED {view}").collect()[0][0])
    spark.sql(view)
    assert spark.sql("SELECT * FROM found").count() == 2
    explain(spark.table("found"))
    assert "conroi" not in sys.modules

    # ---------------------------------------------------------------- with conroi's own verbs
    import conroi
    import conroi.spark

    assert conroi.spark.session() is spark
    lake = conroi.connect(lake_uri, store=store, storage_options=options)
    assert lake["t"].to_spark(spark).count() == 2
    explain(lake["t"].to_spark(spark))
    lake["t"].merge(frame, on="id").when_matched_update_all().execute(spark=spark)
    lake["t"].append(frame.selectExpr("id + 10 AS id", "v"))
    cast("DataFrame", lake.sql(spark, "SELECT count(*) FROM t")).collect()
    given = {"table": "t", "store": store, "storageOptions": json.dumps({"aws_secret_access_key": secret})}
    assert spark.read.format("conroi").options(**given).load(lake_uri).count() == 3
    for statement in (
        f"CREATE TEMPORARY VIEW bad USING conroi OPTIONS (path '{lake_uri}', store 'postgresql://u:{password}@h/d')",
        f"CREATE TEMPORARY VIEW bad USING conroi OPTIONS (path '{lake_uri}', storeUrl 'postgresql://u:{password}@nohost/d')",
    ):
        try:
            spark.sql(statement)
        except PySparkException as error:
            shown.append(str(error).replace(statement, ""))
        else:
            raise AssertionError("it was accepted")

    # ---------------------------------------------------------------- what can be seen
    address = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    queries = page(f"{address}/sql?details=true&planDescription=true&length=1000")
    pages = [queries, *(page(f"{address}/{each}") for each in ("environment", "jobs", "stages"))]
    pages += [page(f"{spark.sparkContext.uiWebUrl}/SQL/execution/?id={query['id']}") for query in json.loads(queries)]
    spark.stop()
    with open(f"{root}/ui.txt", "w") as file:
        file.write("\n".join(pages))
    with open(f"{root}/plans.txt", "w") as file:
        file.write("\n".join(shown))
