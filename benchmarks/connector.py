"""Spark SQL through the connector, beside Spark's own Parquet and the Python source, in one session and in turns."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import conroi
import conroi.spark
from benchmarks.harness import Workspace, take_turns
from benchmarks.report import Bar, Report
from benchmarks.spark import COLUMNS, QUICK, ROWS, SOURCE, TARGET, compared, seconds, timed

CONNECTOR, PYTHON, PARQUET = "connector", "Python source", "Spark's Parquet"
DIMENSION_ROWS = 1_000
ORDERS, LINES = 500_000, 2_000_000

QUERIES: dict[str, tuple[str, float]] = {
    "sum of two of ten columns": ("SELECT sum(a), sum(k) FROM {t}", 0.6),
    "filtered scan of three columns": (
        "SELECT count(name), sum(amount), max(day) FROM {t} WHERE k = 5 AND a > 500",
        0.55,
    ),
    "count(*)": ("SELECT count(*) FROM {t}", 0.35),
    "join with a table of 1,000 rows": (
        "SELECT label, sum(amount), count(*) FROM {t} t JOIN {d} d ON t.a % 1000 = d.id GROUP BY label ORDER BY 1",
        0.7,
    ),
    "two text columns": ("SELECT sum(length(name)), sum(length(city)), max(name) FROM {t}", 1.1),
    "all ten columns": ("SELECT sum(hash(id, k, a, amount, root, name, city, day, even, h)) FROM {t}", 1.15),
}
"""A query, and the most that it may take, as a multiple of Parquet's time."""
RETURNED = ("all rows of two columns, returned", "SELECT id, amount FROM {t}", 1.1)

TPC_H_LIKE = {
    "pricing summary": """SELECT flag, status, sum(quantity), sum(price), sum(price * (1 - discount)), count(*)
        FROM {lines} WHERE shipped <= date'2026-09-01' GROUP BY flag, status ORDER BY 1, 2""",
    "shipping priority": """SELECT l.order_id, sum(price * (1 - discount)) AS revenue, o.day, o.priority
        FROM {customers} c JOIN {orders} o ON c.id = o.customer JOIN {lines} l ON l.order_id = o.id
        WHERE c.segment = 'segment-2' AND o.day < date'2026-03-15' AND l.shipped > date'2026-03-15'
        GROUP BY l.order_id, o.day, o.priority ORDER BY revenue DESC, l.order_id LIMIT 10""",
    "revenue by segment": """SELECT c.segment, sum(price * (1 - discount)) AS revenue
        FROM {customers} c JOIN {orders} o ON c.id = o.customer JOIN {lines} l ON l.order_id = o.id
        WHERE o.day >= date'2026-01-01' AND o.day < date'2026-07-01' GROUP BY c.segment ORDER BY 1""",
    "revenue change": """SELECT sum(price * discount) FROM {lines}
        WHERE shipped >= date'2026-01-01' AND shipped < date'2026-07-01'
        AND discount BETWEEN 0.05 AND 0.07 AND quantity < 24""",
    "shipping modes": """SELECT l.mode, count_if(o.priority < 2), count_if(o.priority >= 2)
        FROM {orders} o JOIN {lines} l ON l.order_id = o.id
        WHERE l.mode IN ('mode-1', 'mode-3') AND l.shipped >= date'2026-02-01' GROUP BY l.mode ORDER BY 1""",
    "large orders": """SELECT o.customer, l.order_id, sum(l.quantity) AS quantity
        FROM {lines} l JOIN {orders} o ON l.order_id = o.id
        GROUP BY o.customer, l.order_id HAVING sum(l.quantity) > 170 ORDER BY quantity DESC, l.order_id LIMIT 100""",
}


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """Reading, writing and MERGE."""
    size = QUICK if options.quick else 1
    lake_path = workspace.fresh("lake")
    spark = conroi.spark.session(
        "bench", master="local[2,2]", memory="4g", lake=lake_path, config={"spark.log.level": "ERROR"}
    )
    report = Report("connector")
    bench = _Bench(spark, conroi.connect(lake_path), workspace, options.turns, report)
    wide = spark.range(ROWS // size).selectExpr(*COLUMNS)
    bench.append(wide)
    bench.keep("t", wide)
    bench.keep("d", spark.range(DIMENSION_ROWS).selectExpr("id", "concat('label-', id % 20) AS label"))
    for what, (query, limit) in QUERIES.items():
        bench.query(what, query, limit)
    bench.returned(*RETURNED)
    bench.tpc_h_like(size)
    _merge(bench, TARGET // size, SOURCE // size)
    report.canary_rates = workspace.canary_rates
    spark.stop()
    return report


class _Bench:
    def __init__(
        self, spark: SparkSession, lake: conroi.Lake, workspace: Workspace, turns: int, report: Report
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.workspace = workspace
        self.turns = turns
        self.report = report
        self._paths: dict[str, str] = {}

    def keep(self, name: str, frame: DataFrame) -> None:
        """The same rows as a table of the lake and as a folder of Parquet."""
        frame.writeTo(f"lake.{name}").using("conroi").create()
        self._paths[name] = str(self.workspace.fresh("parquet") / name)
        frame.write.parquet(self._paths[name])

    def append(self, frame: DataFrame) -> None:
        """Write all rows to a new table."""
        numbers = iter(range(1_000_000))

        def ours() -> None:
            frame.writeTo(f"lake.appended_{next(numbers)}").using("conroi").create()

        def theirs() -> None:
            frame.write.parquet(str(self.workspace.fresh("parquet") / "t"))

        self._compare("append of ten columns", {CONNECTOR: ours, PARQUET: theirs}, 1.15)

    def query(self, what: str, query: str, limit: float | None) -> float:
        """An aggregate, whose answers must be equal; the ratio to Parquet."""
        answers = {
            CONNECTOR: lambda: self.spark.sql(self._of_catalog(query)).collect(),
            PARQUET: lambda: self.spark.sql(self._of_parquet(query)).collect(),
            PYTHON: lambda: self._by_python(query).collect(),
        }
        found = {name: answer() for name, answer in answers.items()}
        if any(_rounded(rows) != _rounded(found[PARQUET]) for rows in found.values()):
            raise AssertionError(f"{what}: {found}")
        return self._compare(what, answers, limit)

    def returned(self, what: str, query: str, limit: float) -> None:
        """All rows, which Spark takes and drops."""

        def drained(frame: Callable[[], DataFrame]) -> Callable[[], None]:
            return lambda: frame().write.format("noop").mode("overwrite").save()

        contenders = {
            CONNECTOR: drained(lambda: self.spark.sql(self._of_catalog(query))),
            PARQUET: drained(lambda: self.spark.sql(self._of_parquet(query))),
            PYTHON: drained(lambda: self._by_python(query)),
        }
        self._compare(what, contenders, limit)

    def tpc_h_like(self, size: int) -> None:
        """Six queries over three tables that are joined."""
        spark, orders, lines = self.spark, ORDERS // size, LINES // size
        self.keep("customers", spark.range(orders // 10).selectExpr("id", "concat('segment-', id % 5) AS segment"))
        day = "date_add(date'2026-01-01', cast(hash({}) & 255 AS int))"
        self.keep(
            "orders",
            spark.range(orders).selectExpr(
                "id", f"pmod(hash(id), {orders // 10}) AS customer", f"{day.format('id')} AS day", "id % 5 AS priority"
            ),
        )
        self.keep(
            "lines",
            spark.range(lines).selectExpr(
                f"id % {orders} AS order_id", "hash(id) & 63 AS quantity", "(hash(id) & 65535) / 100D AS price",
                "(id % 11) / 100D AS discount", f"{day.format('id * 3')} AS shipped", "concat('mode-', id % 7) AS mode",
                "substr('ANR', cast(id % 3 AS int) + 1, 1) AS flag",
                "substr('OF', cast(id % 2 AS int) + 1, 1) AS status",
            ),
        )  # fmt: skip
        ratios = [self.query(f"TPC-H-like: {name}", query, None) for name, query in TPC_H_LIKE.items()]
        mean = statistics.geometric_mean(ratios)
        self.report.bars.append(Bar("six TPC-H-like queries ÷ Parquet, geometric mean", mean, 1.0, at_least=False))

    def _of_catalog(self, query: str) -> str:
        return query.format_map({name: f"lake.{name}" for name in self._paths})

    def _of_parquet(self, query: str) -> str:
        return query.format_map({name: f"parquet.`{path}`" for name, path in self._paths.items()})

    def _by_python(self, query: str) -> DataFrame:
        for name in self._paths:
            if f"{{{name}}}" in query:
                source = self.spark.read.format("conroi").option("table", name).load(str(self.lake.uri))
                source.createOrReplaceTempView(f"python_{name}")
        return self.spark.sql(query.format_map({name: f"python_{name}" for name in self._paths}))

    def _compare(self, what: str, contenders: dict[str, Callable[[], Any]], limit: float | None) -> float:
        """Let them take turns, after one each that does not count; the ratio to Parquet."""
        for step in contenders.values():
            step()
        series = take_turns(self.workspace, {name: timed(step) for name, step in contenders.items()}, turns=self.turns)
        self.report.add(
            f"{what}, median of {self.turns} turns",
            ("engine", "seconds", "least to most", f"× {PARQUET}"),
            [compared(name, found, series[PARQUET]) for name, found in series.items()],
        )
        ratio = series[CONNECTOR].ratio_to(series[PARQUET], seconds)
        if limit is not None:
            self.report.bars.append(Bar(f"seconds of {what} ÷ {PARQUET}", ratio, limit, at_least=False))
        return ratio


def _merge(bench: _Bench, target: int, source: int) -> None:
    """MERGE INTO in SQL, beside pylance and deltalake in one process with the same rows at hand."""
    import lance
    from deltalake import DeltaTable, write_deltalake

    spark, workspace = bench.spark, bench.workspace
    columns = ("id", "id * 0.5D AS amount", "concat('name-', id % 5000) AS name")
    rows = spark.range(target).selectExpr(*columns)
    news = spark.range(target - source // 2, target + source - source // 2).selectExpr(*columns)
    news.createOrReplaceTempView("news")
    here, there = news.toArrow(), rows.toArrow()
    taken: dict[str, list[float]] = {"MERGE INTO": [], "pylance in process": [], "deltalake in process": []}
    for turn in range(bench.turns):
        name = f"merged_{turn}"
        bench.lake.create_table(name, there)
        merge = f"MERGE INTO lake.{name} t USING news s ON t.id = s.id"
        sql = f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        taken["MERGE INTO"].append(_took(lambda sql=sql: spark.sql(sql)))
        dataset = lance.write_dataset(there, workspace.fresh("pylance") / "t.lance")
        in_pylance = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        taken["pylance in process"].append(_took(lambda verb=in_pylance: verb.execute(here)))
        path = str(workspace.fresh("delta") / "t")
        write_deltalake(path, there)
        in_delta = DeltaTable(path).merge(here, "s.id = t.id", source_alias="s", target_alias="t")
        in_delta = in_delta.when_matched_update_all().when_not_matched_insert_all()
        taken["deltalake in process"].append(_took(lambda verb=in_delta: verb.execute()))
    bench.report.add(
        f"MERGE of {source:,} rows into {target:,}, half of them matching, least of {bench.turns} turns",
        ("engine", "seconds"),
        [(name, f"{min(seconds):.2f}") for name, seconds in taken.items()],
    )


def _took(step: Callable[[], Any]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _rounded(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Sums of floating-point numbers depend on their order."""
    return [tuple(f"{value:.9g}" if isinstance(value, float) else value for value in row) for row in rows]
