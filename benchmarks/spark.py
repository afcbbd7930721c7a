"""The Spark pipeline beside Spark's own Parquet, in one session and in turns."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import conroi
import conroi.spark
from benchmarks.harness import Series, Turn, Workspace, run_times, take_turns
from benchmarks.report import Bar, Report

ROWS, VECTORS, WIDTH = 10_000_000, 400_000, 128
TARGET, SOURCE = 5_000_000, 500_000
QUICK = 10
"""So many times fewer rows in a quick run."""
COLUMNS = (
    "id",
    "id % 100 AS k",
    "cast(id * 7 % 1000003 AS int) AS a",
    "id * 0.5D AS amount",
    "sqrt(id) AS root",
    "concat('name-', id % 5000) AS name",
    "concat('city-', id % 300) AS city",
    "date_add(date'2026-01-01', cast(id % 365 AS int)) AS day",
    "id % 2 = 0 AS even",
    "hash(id) AS h",
)
CONROI, PARQUET = "conroi", "Spark's Parquet"
DRIVER_ROWS = (1_000_000, 10_000_000)


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """Writing, reading, counting and merging."""
    size = QUICK if options.quick else 1
    spark = conroi.spark.session("bench", master="local[2,2]", memory="4g", config={"spark.log.level": "ERROR"})
    report = Report("spark")
    bench = _Bench(spark, workspace, options.turns, report)
    bench.write("append of ten columns", spark.range(ROWS // size).selectExpr(*COLUMNS), 1.6)
    bench.write("append of vectors", _vectors(spark, VECTORS // size), 0.8, schema=_vector_schema())
    bench.read_all(spark.range(ROWS // size).selectExpr(*COLUMNS))
    _merge(bench, TARGET // size, SOURCE // size)
    _driver_memory(report, [rows // size for rows in DRIVER_ROWS])
    report.canary_rates = workspace.canary_rates
    spark.stop()
    return report


def _vectors(spark: SparkSession, count: int) -> DataFrame:
    value = f"transform(sequence(1, {WIDTH}), x -> cast(sin(id * x) AS float))"
    return spark.range(count).selectExpr("id", f"{value} AS vector")


def _vector_schema() -> pa.Schema:
    return pa.schema({"id": pa.int64(), "vector": pa.list_(pa.float32(), WIDTH)})


class _Bench:
    def __init__(self, spark: SparkSession, workspace: Workspace, turns: int, report: Report) -> None:
        self.spark = spark
        self.workspace = workspace
        self.turns = turns
        self.report = report

    def compare(self, what: str, contenders: dict[str, Callable[[], Any]], limit: float | None) -> None:
        """Let them take turns, after one each that does not count."""
        for step in contenders.values():
            step()
        series = take_turns(self.workspace, {name: timed(step) for name, step in contenders.items()}, turns=self.turns)
        first = list(contenders)[1]
        self.report.add(
            f"{what}, median of {self.turns} turns",
            ("engine", "seconds", "least to most", f"× {first}"),
            [compared(name, found, series[first]) for name, found in series.items()],
        )
        if limit is not None:
            ratio = series[CONROI].ratio_to(series[first], seconds)
            self.report.bars.append(Bar(f"seconds of {what} ÷ {first}", ratio, limit, at_least=False))

    def write(self, what: str, frame: DataFrame, limit: float, schema: pa.Schema | None = None) -> None:
        """Append to an empty table, beside writing a folder of Parquet."""

        def ours() -> None:
            place = self.workspace.fresh("conroi")
            if schema is None:
                conroi.create_table(place / "t.lance", frame)
            else:
                conroi.create_table(place / "t.lance", schema).append(frame)

        def theirs() -> None:
            frame.write.parquet(str(self.workspace.fresh("parquet") / "t"))

        self.compare(what, {CONROI: ours, PARQUET: theirs}, limit)

    def read_all(self, frame: DataFrame) -> None:
        """Read parts of the same rows from both."""
        spark = self.spark
        lake = conroi.connect(self.workspace.fresh("lake"))
        table = lake.create_table("t", frame)
        path = str(self.workspace.fresh("parquet") / "t")
        frame.write.parquet(path)

        def both(what: str, query: str, limit: float | None) -> None:
            def theirs() -> Any:
                spark.read.parquet(path).createOrReplaceTempView("of_parquet")
                return spark.sql(query.format("of_parquet")).collect()

            def ours() -> Any:
                answer = lake.sql(spark, query.format("t"))
                assert isinstance(answer, DataFrame)
                return answer.collect()

            if ours() != theirs():
                raise AssertionError(f"{what}: {ours()} is not {theirs()}")
            self.compare(what, {CONROI: ours, PARQUET: theirs}, limit)

        both("scan of two of ten columns", "SELECT sum(a), sum(k) FROM {}", 2.0)
        both("filtered scan", "SELECT count(name), sum(amount), max(day) FROM {} WHERE k = 7", 1.5)
        both(
            "filtered scan by a range of a sorted column",
            f"SELECT sum(amount) FROM {{}} WHERE id < {table.count_rows() // 100}",
            None,
        )
        both("count(*)", "SELECT count(*) FROM {}", 0.2)


def _merge(bench: _Bench, target: int, source: int) -> None:
    """A Spark source merged on Spark, beside pylance and deltalake in one process with the same rows at hand."""
    import lance
    from deltalake import DeltaTable, write_deltalake

    spark, workspace = bench.spark, bench.workspace
    columns = ("id", "id * 0.5D AS amount", "concat('name-', id % 5000) AS name")
    rows = spark.range(target).selectExpr(*columns)
    news = spark.range(target - source // 2, target + source - source // 2).selectExpr(*columns)
    here, there = news.toArrow(), rows.toArrow()

    def ours() -> None:
        table = conroi.create_table(workspace.fresh("conroi") / "t.lance", there)
        start = time.perf_counter()
        table.merge(news, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
        taken[CONROI].append(time.perf_counter() - start)

    def pylance() -> None:
        dataset = lance.write_dataset(there, workspace.fresh("pylance") / "t.lance")
        start = time.perf_counter()
        dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(here)
        taken["pylance in process"].append(time.perf_counter() - start)

    def delta() -> None:
        path = str(workspace.fresh("delta") / "t")
        write_deltalake(path, there)
        start = time.perf_counter()
        merge = DeltaTable(path).merge(here, "s.id = t.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        taken["deltalake in process"].append(time.perf_counter() - start)

    taken: dict[str, list[float]] = {CONROI: [], "pylance in process": [], "deltalake in process": []}
    for _ in range(bench.turns):
        ours()
        pylance()
        delta()
    bench.report.add(
        f"Merge of {source:,} rows from Spark into {target:,}, half of them matching, least of {bench.turns} turns",
        ("engine", "seconds"),
        [(name, f"{min(seconds):.2f}") for name, seconds in taken.items()],
    )


def _driver_memory(report: Report, sizes: list[int]) -> None:
    """The peak memory of the Python driver that appends, for a few and for many rows; each in a process of its own."""
    peaks: list[float] = []
    for rows in sizes:
        command = [sys.executable, "-m", "benchmarks.spark", str(rows)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peaks.append(float(json.loads(answer.splitlines()[-1])["megabytes"]))
    report.add(
        "Memory of the Python driver while it appends",
        ("rows", "MB at most"),
        [(f"{rows:,}", f"{peak:.0f}") for rows, peak in zip(sizes, peaks, strict=True)],
    )
    report.bars.append(
        Bar(
            f"driver's memory for {sizes[-1]:,} rows ÷ that for {sizes[0]:,}", peaks[-1] / peaks[0], 1.2, at_least=False
        )
    )


def _append_alone(rows: int) -> None:
    import tempfile

    spark = conroi.spark.session("memory", master="local[2,2]", memory="2g", config={"spark.log.level": "OFF"})
    with tempfile.TemporaryDirectory() as folder:
        conroi.create_table(Path(folder) / "t.lance", spark.range(rows).selectExpr(*COLUMNS))
    status = Path("/proc/self/status").read_text("utf-8")
    spark.stop()
    print(json.dumps({"megabytes": int(status.split("VmHWM:")[1].split()[0]) / 1024}))


def timed(step: Callable[[], Any]) -> Callable[[], Turn]:
    """A turn that is one step."""
    return lambda: run_times(1, step)


def seconds(turn: Turn) -> float:
    """What a turn took."""
    return turn.elapsed_s


def compared(name: str, found: Series[Turn], other: Series[Turn]) -> tuple[str, str, str, str]:
    """A row of a table: engine, median, spread, and the ratio to another engine."""
    spread = "{:.2f} to {:.2f}".format(*found.spread(seconds))
    return name, f"{found.median(seconds):.2f}", spread, f"{found.ratio_to(other, seconds):.2f}"


if __name__ == "__main__":
    _append_alone(int(sys.argv[1]))
