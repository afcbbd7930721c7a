"""What several of these tests need."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pyspark
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
SINCE_4_2 = pytest.mark.skipif(SPARK < (4, 2), reason="what PySpark 4.1 lacks: docs/compatibility.md")

# A Java machine that starts fast and never gets really fast: right for tests, wrong for everything else.
FAST_START = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def quiet(session: SparkSession) -> None:
    session.sparkContext.setLogLevel("OFF")  # tasks fail here because they are made to


def without_connector(patch: pytest.MonkeyPatch) -> None:
    """As if the session had started without the connector's jar."""
    patch.setattr("conroi.spark.connector.driver.has_connector", lambda _spark: False)


def by_pylance(uri: str, version: int | None = None) -> pa.Table:
    """The rows, by software that is not ours."""
    return lance.dataset(uri, version=version).to_table()


def numbers(spark: SparkSession, start: int, end: int, partitions: int = 2) -> DataFrame:
    """Rows with an id and a name."""
    return spark.range(start, end, numPartitions=partitions).selectExpr("id", "concat('n', id) AS name")


def manifests(uri: str) -> list[str]:
    """The visible versions."""
    return sorted(name for name in os.listdir(Path(uri) / "_versions") if name.endswith(".manifest"))


class Counting:
    """Notes every start of a task in a folder, and may spoil some of them on the way."""

    def __init__(self, folder: Path, *, failing_attempts: int = 0, kill: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = str(folder)
        self.failing_attempts = failing_attempts
        self.kill = kill

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        name = f"{task.stageId()}-{task.partitionId()}-{task.attemptNumber()}"
        (Path(self.folder) / name).touch()
        for batch in batches:
            yield batch
            if task.attemptNumber() < self.failing_attempts and task.partitionId() == 1:
                if self.kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("spoiled by the test")

    @property
    def started(self) -> int:
        """So many tasks were started."""
        return len(os.listdir(self.folder))

    def over(self, frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(self, frame.schema)
