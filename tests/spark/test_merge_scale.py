"""A merge of half a million rows into five million: what each way takes of time, and of this process's memory."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import lance
import pytest
from pyspark.sql import SparkSession

import conroi
from conroi.merge.plan_choice import Way

TABLE_ROWS, SOURCE_ROWS = 5_000_000, 500_000


class Memory:
    """The most memory that this process had while something ran, beyond what it had before."""

    def __enter__(self) -> Memory:
        self._before = self._most = resident_bytes()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.02):
            self._most = max(self._most, resident_bytes())

    @property
    def mib(self) -> float:
        return (self._most - self._before) / 2**20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.contract("S3")
def test_merge_500k_into_5m(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    columns = ["id", "id * 0.5D AS v", "concat('customer-', id % 1000) AS name", "id % 100 AS day"]
    big = spark.range(0, TABLE_ROWS, numPartitions=8).selectExpr(*columns)
    start = TABLE_ROWS - SOURCE_ROWS // 2
    frame = spark.range(start, start + SOURCE_ROWS, numPartitions=4).selectExpr("id", "-1D AS v", *columns[2:])
    taken: dict[Way, tuple[float, float]] = {}
    ways: list[Way] = ["join", "probe", "process"]
    for way in ways:
        table = conroi.create_table(str(tmp_path / f"{way}.lance"), big)
        begun = time.monotonic()
        with Memory() as memory:
            merge = table.merge(frame, on="id").when_matched_update_all().when_not_matched_insert_all()
            result = merge.execute(plan=way)
        taken[way] = time.monotonic() - begun, memory.mib
        assert (result.rows_updated, result.rows_inserted) == (SOURCE_ROWS // 2, SOURCE_ROWS // 2)
        found = lance.dataset(table.uri)
        assert (found.count_rows(), found.count_rows("v = -1")) == (TABLE_ROWS + SOURCE_ROWS // 2, SOURCE_ROWS)
        assert found.count_rows(f"id >= {start} AND v <> -1") == 0
    with capsys.disabled():
        for way, (seconds, mib) in taken.items():
            print(f"\n{way}: {seconds:.1f} s, {mib:.0f} MiB of the driver", end="")
    assert taken["join"][1] < 100  # rows stay where they are
