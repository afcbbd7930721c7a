"""Six streams that go on where they stopped; run as a program, which is killed.

`alone`   from JSON files, one for each batch, to a table without a lake          (the sink)
`orders`  from the same to a table of a lake                                      (the sink)
`both`    from the same to two tables of the lake                                 (foreachBatch)
`copy`    from a table with a version for each batch to a table without a lake    (source and sink)
`events`  from JSON files to a table of the lake as a catalog                     (the connector's sink)
`mirror`  from a table of that catalog to another one, a version for each batch   (the connector's source and sink)
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import conroi
import conroi.spark
from tests.support.arrow import column_values

STARTED = "the streams have started"
STREAMS = ("alone", "orders", "both", "copy", "events", "mirror")
ROWS_PER_BATCH = 20
KEYS = 7
COLUMNS = pa.schema({"id": pa.int64(), "key": pa.int64()})


def rows_of(batch: int) -> list[dict[str, int]]:
    ids = range(batch * ROWS_PER_BATCH, (batch + 1) * ROWS_PER_BATCH)
    return [{"id": number, "key": number % KEYS} for number in ids]


def prepare(folder: Path, batches: int) -> None:
    """What the streams read, and empty tables for what they write."""
    (folder / "files").mkdir(parents=True)
    versions = conroi.create_table(folder / "versions.lance", COLUMNS)
    for batch in range(batches):
        rows = rows_of(batch)
        (folder / "files" / f"{batch:04}.json").write_text("\n".join(map(json.dumps, rows)))
        versions = versions.append(pa.Table.from_pylist(rows, COLUMNS))
    lake = conroi.connect(folder / "lake")
    for name in ("orders", "events", "mirror"):
        lake.create_table(name, COLUMNS)
    source = lake.create_table("source", COLUMNS)
    for batch in range(batches):
        source = source.append(pa.Table.from_pylist(rows_of(batch), COLUMNS))
    lake.create_table("log", COLUMNS, key="id")
    lake.create_table("per_key", pa.schema({"key": pa.int64(), "n": pa.int64()}), key="key")


def count_up(tx: conroi.Transaction, batch: DataFrame, batch_id: int) -> None:
    """Twice is once too often here: the counts would show it, and `log` would refuse it."""
    tx["log"].append(batch)
    counts = batch.groupBy("key").count().selectExpr("key", "count AS n").toArrow()
    merge = tx["per_key"].merge(counts, on="key")
    merge.when_matched_update({"n": "target.n + source.n"}).when_not_matched_insert_all().execute()


def start(spark: SparkSession, folder: Path, names: Sequence[str] = STREAMS) -> list[StreamingQuery]:
    """These streams; each ends when it has read what there is."""

    def begin(name: str, frame: DataFrame) -> Any:
        writing = frame.writeStream.option("checkpointLocation", str(folder / "checkpoints" / name))
        return writing.trigger(availableNow=True)

    files = spark.readStream.schema("id long, key long").option("maxFilesPerTrigger", 1).json(str(folder / "files"))

    def options(reading: Any) -> Any:
        return reading.option("startingVersion", 1).option("maxVersionsPerTrigger", 1)

    following = options(spark.readStream.format("conroi"))
    lake = conroi.connect(folder / "lake")
    starting: dict[str, Callable[[], StreamingQuery]] = {
        "alone": lambda: begin("alone", files).format("conroi").start(str(folder / "alone.lance")),
        "orders": lambda: begin("orders", files).format("conroi").option("table", "orders").start(lake.uri),
        "both": lambda: begin("both", files).foreachBatch(conroi.spark.each_batch(lake, count_up)).start(),
        "copy": lambda: (
            begin("copy", following.load(str(folder / "versions.lance")))
            .format("conroi")
            .start(str(folder / "copy.lance"))
        ),
        "events": lambda: begin("events", files).toTable("lake.events"),
        "mirror": lambda: begin("mirror", options(spark.readStream).table("lake.source")).toTable("lake.mirror"),
    }
    return [starting[name]() for name in names]


def check(folder: Path, batches: int, streams: Sequence[str] = STREAMS) -> None:
    """Every row exactly once, read by pylance; and both tables of the lake together at every version of the lake."""
    lake = conroi.connect(folder / "lake")
    every = [row for batch in range(batches) for row in rows_of(batch)]
    uris = {"alone": str(folder / "alone.lance"), "copy": str(folder / "copy.lance")}
    uris |= {"both": lake["log"].uri, **{name: lake[name].uri for name in ("orders", "events", "mirror")}}
    for stream in streams:
        found = lance.dataset(uris[stream]).to_table().sort_by("id").to_pylist()
        assert found == every, f"{uris[stream]}: {len(found)} rows instead of {len(every)}"
    if "both" in streams:
        counts = {row["key"]: row["n"] for row in lance.dataset(lake["per_key"].uri).to_table().to_pylist()}
        assert counts == Counter(row["key"] for row in every)
    check_together(folder)


def check_together(folder: Path) -> None:
    """At no version of the lake one table has a batch that the other has not."""
    lake = conroi.connect(folder / "lake")
    for commit in lake.history():
        then = lake.at(commit.version)
        if "log" in then and "per_key" in then:
            log, per_key = then["log"], then["per_key"]
            counted = column_values(lance.dataset(per_key.uri, version=per_key.version).to_table()["n"])
            assert sum(counted) == lance.dataset(log.uri, version=log.version).count_rows()


if __name__ == "__main__":
    from tests.spark.support import FAST_START, quiet

    here = Path(sys.argv[1])
    session = conroi.spark.session("streams", master="local[2,2]", memory="1g", config=FAST_START, lake=here / "lake")
    quiet(session)
    queries = start(session, here, sys.argv[2:])
    print(STARTED, flush=True)
    for query in queries:
        query.awaitTermination()
    session.stop()
