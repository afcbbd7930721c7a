"""Streams in a session of Spark Connect, whose functions run on the server; run as a program, in a new process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import conroi
import conroi.spark
from tests.support.arrow import column_values

COLUMNS = pa.schema({"id": pa.int64()})


def ids(uri: str) -> list[int]:
    return sorted(column_values(lance.dataset(uri).to_table()["id"]))


def through(query: Any) -> None:
    query.awaitTermination()
    assert query.exception() is None


def check(spark: SparkSession, folder: Path) -> None:
    """Sink, source and foreachBatch; then each repeats its last batch, as after a crash."""
    files = folder / "files"
    files.mkdir()
    (files / "0.json").write_text(json.dumps({"id": 1}))
    lake_uri = str(folder / "lake")
    lake = conroi.connect(lake_uri)
    lake.create_table("log", COLUMNS)
    alone, copy = str(folder / "alone.lance"), str(folder / "copy.lance")

    def each(tx: conroi.Transaction, batch: Any, batch_id: int) -> None:
        tx["log"].append(batch)

    def begin(frame: Any, name: str) -> Any:
        writing = frame.writeStream.option("checkpointLocation", str(folder / name))
        return writing.trigger(availableNow=True)

    def run() -> None:
        stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(files))
        through(begin(stream, "1").format("conroi").start(alone))
        through(begin(spark.readStream.format("conroi").load(alone), "2").format("conroi").start(copy))
        batches = conroi.spark.each_batch(lambda: conroi.connect(lake_uri), each, query="log")
        through(begin(stream, "3").foreachBatch(batches).start())

    run()
    for name in "123":
        (folder / name / "commits" / "0").unlink()
        (folder / name / "commits" / ".0.crc").unlink(missing_ok=True)
    (files / "1.json").write_text(json.dumps({"id": 2}))
    run()
    for uri in [alone, copy, lake["log"].uri]:
        assert ids(uri) == [1, 2], uri

    nameless = begin(spark.readStream.format("conroi").load(alone), "4")
    query = nameless.foreachBatch(conroi.spark.each_batch(lambda: conroi.connect(lake_uri), each)).start()
    with pytest.raises(Exception, match="which query this batch is of"):  # its type is the server's
        query.awaitTermination()


if __name__ == "__main__":
    session = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    conroi.spark.register(session)
    try:
        check(session, Path(sys.argv[2]))
        print("all is well")
    finally:
        session.stop()
