"""Scans: columns, filters, limits and aggregates go to the workers; every answer is that of Spark over Parquet."""

from __future__ import annotations

import datetime
import itertools
import math
import re
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession

import conroi
from conroi.spark.connector.configuration import catalog_settings
from tests.spark.connector.support import BROADCAST, plan, rows
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("S20")

UTC = datetime.UTC
NAN, INF = float("nan"), float("inf")

VALUES = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "byte": pa.array([1, -128, 127, None, 0, 5, 6, 7], pa.int8()),
        "short": pa.array([1, -32768, 32767, None, 0, 5, 6, 7], pa.int16()),
        "int": pa.array([1, -(2**31), 2**31 - 1, None, 0, 5, 6, 7], pa.int32()),
        "long": pa.array([1, -(2**63), 2**63 - 1, None, 0, 5, 6, 7], pa.int64()),
        "float": pa.array([1.5, NAN, INF, None, -0.0, 0.0, -INF, 7.25], pa.float32()),
        "double": pa.array([1.5, NAN, INF, None, -0.0, 0.0, -INF, 7.25], pa.float64()),
        "flag": pa.array([True, False, None, True, False, True, None, False]),
        "text": pa.array(["a", "", "ü€😀", None, "it's", "100%", "a_b", "Z"]),
        "bytes": pa.array([b"a", b"", b"\x00\xff", None, b"x", b"y", b"z", b"w"], pa.binary()),
        "day": pa.array([datetime.date(2026, 1, 1), datetime.date(1, 1, 1), None, *[datetime.date(1969, 12, 31)] * 5]),
        "at": pa.array([datetime.datetime(2026, 1, 1, tzinfo=UTC), None] * 4, pa.timestamp("us", "UTC")),
        "local": pa.array([datetime.datetime(2026, 1, 1, 12, 30), None] * 4, pa.timestamp("us")),
        "small": pa.array([Decimal("1.50"), Decimal("-99999999.99"), None] * 2 + [None, None], pa.decimal128(10, 2)),
        "big": pa.array(
            [Decimal("-12345678901234567890.123"), Decimal("9" * 35 + ".999"), None] * 2 + [None, None],
            pa.decimal128(38, 3),
        ),
        "list": pa.array([[1, None], [], None, [3]] * 2, pa.list_(pa.int64())),
        "struct": pa.array(
            [{"a": 1, "b": ["x", None]}, None] * 4, pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
        ),
        "map": pa.array([[("k", 1)], None, [], [("a", None)]] * 2, pa.map_(pa.string(), pa.int64())),
    }
)


@pytest.fixture(scope="module")
def values(sql: SparkSession, lake: conroi.Lake, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same rows as a table of the lake, and as Parquet that Spark itself reads."""
    table = lake.create_table("vals", VALUES.slice(0, 5))
    table.append(VALUES.slice(5))
    path = str(tmp_path_factory.mktemp("parquet"))
    import pyarrow.parquet as pq

    pq.write_table(VALUES, Path(path) / "part.parquet")
    sql.conf.set("spark.sql.parquet.filterPushdown", "false")  # its row groups know no NaN
    sql.conf.set(BROADCAST, "-1")  # no table counts as small: workers do all that they can
    sql.read.parquet(path).createOrReplaceTempView("same")
    return "lake.vals"


def test_every_type_is_read_as_spark_reads_it_from_parquet(sql: SparkSession, values: str):
    ours, theirs = sql.table(values), sql.table("same")
    assert [(f.name, f.dataType) for f in ours.schema] == [(f.name, f.dataType) for f in theirs.schema]
    for name in VALUES.column_names:
        query = f"SELECT id, `{name}` FROM {{}} ORDER BY id"
        assert str(rows(sql, query.format(values))) == str(rows(sql, query.format("same"))), name


CONDITIONS = [
    "int = 5", "int <> 5", "int < 5", "int <= 5", "int > 5", "int >= 5", "int IN (1, 5, NULL)", "int NOT IN (1, 5)",
    "int IS NULL", "int IS NOT NULL", "NOT (int = 5)", "int = 5 OR text = 'a'", "NOT (int = 5 AND text = 'a')",
    "int <=> NULL", "int = NULL", "int > 2147483646", "int = 3000000000", "byte = 200", "long = -9223372036854775808",
    "double = 1.5", "double > 1", "double < 1", "double >= 0", "double = 0", "double <> 1.5", "double = double('NaN')",
    "double > double('NaN')", "double <= double('NaN')", "NOT (double > 1)", "isnan(double)", "double = -0.0",
    "float > 1", "float = 7.25", "double IN (1.5, double('NaN'))", "NOT (double < 1)",
    "text = 'it''s'", "text = ''", "text > 'a'", "text < 'ü'", "text LIKE 'a%'", "text LIKE '%0\\%'",
    "text LIKE 'a\\_%'",
    "startswith(text, '10')", "contains(text, '_')", "endswith(text, '😀')", "text IN ('a', 'Z')", "text LIKE '_'",
    "upper(text) = 'A'", "length(text) = 1", "text = '5'", "concat(text, 'x') = 'ax'",
    "flag", "NOT flag", "flag = true", "flag <> true", "flag IS NULL", "flag AND int > 0", "flag OR int IS NULL",
    "day = DATE'2026-01-01'", "day < '1970-01-01'", "day > DATE'0001-01-01'", "day = '2026-01-01 00:00:00'",
    "day IN (DATE'2026-01-01')", "year(day) = 2026", "at = TIMESTAMP'2026-01-01 00:00:00Z'", "at IS NULL",
    "local > TIMESTAMP_NTZ'2026-01-01 00:00:00'", "small = 1.5", "small > 1", "big < 0", "small IN (1.50, 2)",
    "bytes = X'61'", "bytes > X'00'", "struct.a = 1", "struct IS NULL", "size(list) = 0", "list IS NULL",
    "map['k'] = 1",
    "id + 1 = 6", "int % 2 = 1", "int / 2 = 2.5", "int BETWEEN 1 AND 6", "coalesce(int, 9) = 9", "id > int",
    "id = long",
    "CAST(int AS BIGINT) = 5", "CAST(int AS STRING) = '5'", "CASE WHEN int = 5 THEN true ELSE false END", "true",
    "false",
    "id IN (SELECT max(id) FROM same)", "EXISTS (SELECT 1 FROM same s WHERE s.id = v.id AND s.int = 5)",
]  # fmt: skip


def answers(session: SparkSession, queries: dict[str, str]) -> dict[str, list[str]]:
    """The answers to many queries with one column, by their names; one job for all."""
    parts = [
        f"SELECT {number} AS n, cast(a AS STRING) AS a FROM ({query}) q (a)"
        for number, query in enumerate(queries.values())
    ]
    found: dict[str, list[str]] = {name: [] for name in queries}
    for number, answer in rows(session, " UNION ALL ".join(parts)):
        found[list(queries)[number]].append(answer)
    return {name: sorted(each, key=str) for name, each in found.items()}


@pytest.mark.parametrize("part", sampled("conditions", [(part,) for part in range(6)], least=2, covers=False))
def test_a_condition_finds_the_rows_that_spark_finds(sql: SparkSession, values: str, part: int):
    ours, theirs = (
        answers(sql, {condition: f"SELECT id FROM {table} v WHERE {condition}" for condition in CONDITIONS[part::6]})
        for table in (values, "same")
    )
    assert ours == theirs
    assert any(theirs.values())


def test_only_the_wanted_columns_are_read(sql: SparkSession, values: str):
    frame = sql.sql(f"SELECT int + 1 FROM {values} WHERE text = 'a'")
    assert "[int]" in plan(frame)
    assert "(`text` = 'a')" in plan(frame)
    assert " Filter " not in plan(frame)


def test_a_condition_that_may_mean_something_else_stays_with_spark(sql: SparkSession, values: str):
    assert " Filter " in plan(sql.sql(f"SELECT id FROM {values} WHERE upper(text) = 'A'"))


def test_one_dataframe_in_two_places_is_filtered_in_one_only(sql: SparkSession, values: str):
    frame = sql.table(values)
    assert frame.where("id = 1").unionAll(frame).count() == 9


NULLS = [
    "SELECT id FROM {} WHERE int IS NOT NULL ORDER BY id",
    "SELECT int, text FROM {} WHERE int IS NOT NULL AND text IS NOT NULL AND at IS NOT NULL ORDER BY id",
    "SELECT id FROM {} WHERE flag IS NOT NULL AND int <> 5 ORDER BY id",
    "SELECT id FROM {} WHERE list IS NOT NULL AND struct IS NOT NULL ORDER BY id",
    "SELECT count(*), sum(id), max(text) FROM {} WHERE double IS NOT NULL",
    "SELECT count(*) FROM {} WHERE text IS NOT NULL",
    "SELECT id FROM {} WHERE day IS NOT NULL ORDER BY id DESC LIMIT 3",
    "SELECT count(*) FROM (SELECT id FROM {} WHERE small IS NOT NULL LIMIT 3)",
    "SELECT a.id, b.id FROM {} a JOIN {} b ON a.int = b.byte WHERE a.long > 0 ORDER BY 1, 2",
    "SELECT count(*) FROM {} a JOIN {} b ON a.short = b.short",
    "SELECT id FROM {} WHERE (int IS NOT NULL OR text = '') AND NOT (byte IS NULL) ORDER BY id",
    "SELECT id FROM {} WHERE int IN (1, 5, NULL) AND int IS NOT NULL ORDER BY id",
    "SELECT id FROM {} WHERE int IS NOT NULL AND long IS NULL",
]


@pytest.mark.parametrize("query", sampled("nulls", [(query,) for query in NULLS], least=5, covers=False))
def test_nulls_are_left_out_as_spark_does(sql: SparkSession, values: str, query: str):
    ours, theirs = (rows(sql, query.replace("{}", table)) for table in (values, "same"))
    assert ours == theirs


def test_a_column_that_is_compared_needs_no_filter_of_its_nulls(sql: SparkSession, values: str):
    shown = plan(sql.sql(f"SELECT id FROM {values} WHERE int > 1 AND text IS NOT NULL"))
    (filters,) = re.findall(r"where (.*)", shown)[:1]
    assert "`int` IS NULL" not in filters
    assert "`int` > 1" in filters
    assert "`text` IS NULL" in filters


def test_a_limit_ends_the_scan_and_leaves_the_worker_usable(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("many", pa.table({"id": pa.array(range(200_000), pa.int64())}))
    frame = sql.sql("SELECT * FROM lake.many LIMIT 3")
    assert "limit 3" in plan(frame)
    assert len(frame.collect()) == 3
    assert len(sql.table("lake.many").where("id % 7 = 1").take(5)) == 5
    assert rows(sql, "SELECT sum(id) FROM lake.many") == [(sum(range(200_000)),)]


AGGREGATES = [
    "count(*)", "count(int)", "min(int)", "max(int)", "min(text)", "max(text)", "min(day)", "max(day)", "min(double)",
    "max(double)", "sum(int)", "sum(byte)", "sum(id)", "sum(small)", "sum(DISTINCT int)", "avg(int)", "avg(id)",
    "count(DISTINCT int)", "max(at)", "min(small)", "max(flag)",
]  # fmt: skip


FILTERS = ["", "WHERE int > 0", "WHERE id > 100", "WHERE upper(text) = 'A'"]


@pytest.mark.parametrize("where", sampled("aggregates", [(where,) for where in FILTERS], least=2, covers=False))
def test_an_aggregate_is_what_spark_computes(sql: SparkSession, values: str, where: str):
    ours, theirs = (
        answers(sql, {aggregate: f"SELECT {aggregate} FROM {table} {where}" for aggregate in AGGREGATES})
        for table in (values, "same")
    )
    assert ours == theirs


def test_several_aggregates_of_one_scan(sql: SparkSession, values: str):
    query = "SELECT count(*), min(id), max(id), count(text) FROM {} WHERE id > 1"
    assert rows(sql, query.format(values)) == rows(sql, query.format("same")) == [(6, 2, 7, 5)]


def test_sums_go_to_the_workers(sql: SparkSession, values: str):
    assert "aggregated" in plan(sql.sql(f"SELECT sum(id), sum(byte), max(id), sum(double) FROM {values}"))
    for other in ("sum(small)", "avg(id)", "sum(id + 1)", "sum(DISTINCT id)"):
        assert "aggregated" not in plan(sql.sql(f"SELECT {other} FROM {values}")), other


def test_an_aggregate_of_one_task_needs_no_second_stage(sql: SparkSession, values: str, lake: conroi.Lake):
    for key, value in catalog_settings({"tiny": {"uri": lake.uri, "bytesPerTask": 1}}, is_local=True).items():
        sql.conf.set(key, value)
    one, several, none = "lake.vals", "tiny.vals", "lake.vals WHERE id > 100"
    for functions in ("sum(id), count(*)", "avg(int)", "max(at), count(flag)", "max(length(text))"):
        for table in (one, none):
            assert "Exchange" not in plan(sql.sql(f"SELECT {functions} FROM {table}"))
        assert "Exchange SinglePartition" in plan(sql.sql(f"SELECT {functions} FROM {several}"))
        assert len({str(rows(sql, f"SELECT {functions} FROM {table}")) for table in (one, several, "same")}) == 1
    runs = "SELECT count(*), sum(v.int) FROM lake.vals v JOIN same s ON v.id = s.id"
    assert "Exchange" in plan(sql.sql(runs)), "a join has exchanges of its own"


ABOVE = [
    "SELECT sum(int) FROM {} LIMIT 1",
    "SELECT sum(int) FROM {} LIMIT 0",
    "SELECT max(id), sum(double) FROM {} ORDER BY 1 LIMIT 1",
    "SELECT max(id) FROM {} OFFSET 1",
    "SELECT max(id) FROM {} LIMIT 3 OFFSET 1",
    "SELECT s FROM (SELECT sum(int) AS s FROM {}) WHERE s > 5",
    "SELECT s FROM (SELECT sum(int) AS s FROM {}) WHERE s IS NULL",
    "SELECT sum(int) FROM {} HAVING count(*) > 100",
    "SELECT sum(int) + 1, count(text) * max(id), sum(byte) FROM {} WHERE id > 1",
    "SELECT try_sum(int), try_sum(id), sum(small) FROM {}",
    "SELECT try_sum(long) FROM {} WHERE id < 3",
    "SELECT id FROM {} WHERE id > (SELECT max(int) FROM {} WHERE int < 5)",
    "SELECT sum(int) FROM {} UNION ALL SELECT min(short) FROM {}",
    "SELECT a.m, b.m FROM (SELECT max(id) AS m FROM {}) a JOIN (SELECT max(short) AS m FROM {}) b ON a.m < b.m",
    "SELECT max(id) OVER (), count(*) FROM {} GROUP BY id",
    "SELECT max(id) FROM {} WHERE int IN (SELECT short FROM {} WHERE id > 1)",
    "SELECT a.s, b.s FROM (SELECT sum(id) AS s FROM {}) a CROSS JOIN (SELECT sum(id) AS s FROM {} WHERE id < 3) b",
    "SELECT count(*), max(id) FROM (SELECT id FROM {} UNION ALL SELECT int FROM {})",
    "SELECT count(*), max(i) FROM (SELECT max(id) AS i FROM {} UNION ALL SELECT sum(int) FROM {})",
    "SELECT count(*), sum(id) FROM (SELECT id FROM {} ORDER BY id LIMIT 3)",
    "SELECT count(DISTINCT int), count(*), sum(DISTINCT id) FROM {}",
    "SELECT percentile(id, 0.5), collect_set(flag) FROM {} WHERE id < 1",
]


@pytest.mark.parametrize("query", sampled("above aggregates", [(query,) for query in ABOVE], least=8, covers=False))
def test_what_is_above_an_aggregate_is_what_spark_computes(sql: SparkSession, values: str, query: str):
    ours, theirs = (sorted(map(repr, rows(sql, query.replace("{}", table)))) for table in (values, "same"))
    assert ours == theirs


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_a_sum_of_floating_point_numbers_has_the_bits_that_spark_gives(
    sql: SparkSession, lake: conroi.Lake, kind: pa.DataType
):
    """One file is one task, whose rows Spark adds one after the other; in another order the sum differs."""
    found = [1e16, 1.0, -1e16, 0.1, None, 1e-9, 3.3] * 40_000
    groups = {
        "n": found,
        "nothing": [None] * len(found),
        "zero": [-0.0] * len(found),
        "odd": [1e308, math.inf] * 140_000,
    }
    table = pa.table({name: pa.array(column, kind) for name, column in groups.items()})
    name = f"floats_{kind}"
    lake.create_table(name, table)
    given: list[float] = [value for value in table["n"].to_pylist() if value is not None]
    expected = 0.0
    for value in given:
        expected += value
    query = f"SELECT sum(n), sum(nothing), sum(zero), sum(odd) FROM lake.{name}"
    assert "aggregated" in plan(sql.sql(query))
    (total, nothing, zero, odd), *_ = rows(sql, query)
    assert struct.pack("d", total) == struct.pack("d", expected)
    assert struct.pack("d", total) != struct.pack("d", math.fsum(given)), "the control"
    assert (nothing, math.copysign(1, zero), odd) == (None, 1.0, math.inf)
    (unpushed,) = rows(sql, f"SELECT sum(n) FROM (SELECT n FROM lake.{name} WHERE rand() >= 0)")
    assert struct.pack("d", unpushed[0]) == struct.pack("d", expected), "Spark's own"


@pytest.fixture(scope="module")
def large(sql: SparkSession, lake: conroi.Lake) -> str:
    """Integers whose partial sums need more than 64 bits, in one file."""
    found = pa.array([2**63 - 1] * 3 + [-(2**63)] * 3 + [None], pa.int64())
    lake.create_table("large", pa.table({"n": found}))
    return "lake.large"


def test_a_sum_that_needs_more_than_64_bits_is_an_error_as_in_spark(sql: SparkSession, large: str):
    with pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
        rows(sql, f"SELECT sum(n) FROM {large} WHERE n > 0")
    assert rows(sql, f"SELECT sum(n), count(n), count(*), min(n) FROM {large}") == [(-3, 6, 7, -(2**63))]


def test_an_average_does_not_overflow(sql: SparkSession, large: str):
    assert rows(sql, f"SELECT avg(n) FROM {large} WHERE n > 0") == [(float(2**63),)]


def test_a_sum_wraps_where_spark_does(sql: SparkSession, large: str):
    sql.conf.set("spark.sql.ansi.enabled", "false")
    try:
        query = "SELECT sum(n), count(n), count(*), max(n) FROM {} WHERE n > 0"
        theirs = "(VALUES (9223372036854775807L), (9223372036854775807L), (9223372036854775807L)) AS v(n)"
        assert rows(sql, query.format(large)) == rows(sql, query.format(theirs)) == [(2**63 - 3, 3, 3, 2**63 - 1)]
    finally:
        sql.conf.set("spark.sql.ansi.enabled", "true")


def test_a_count_of_all_rows_runs_no_job(sql: SparkSession, values: str):
    shown = plan(sql.sql(f"SELECT count(*) FROM {values}"))
    assert "LocalTableScan" in shown
    assert "BatchScan" not in shown


def test_an_aggregate_of_an_empty_table(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("empty", pa.schema({"id": pa.int64()}))
    query = "SELECT count(*), count(id), min(id) FROM lake.empty"
    assert rows(sql, query) == [(0, 0, None)]
    assert rows(sql, query + " WHERE id > 1") == [(0, 0, None)]
    assert rows(sql, "SELECT * FROM lake.empty") == []


ORDERS = [
        "int", "int DESC", "int NULLS LAST", "int DESC NULLS FIRST", "text", "text DESC, id", "day DESC, id DESC", "id",
        "day NULLS LAST, text DESC NULLS LAST", "day, text DESC",
]  # fmt: skip


@pytest.mark.parametrize(
    ("order", "where"),
    sampled("first rows", list(itertools.product(ORDERS, ["", "WHERE id > 1", "WHERE upper(text) <> 'A'"]))),
)
def test_the_first_rows_of_an_order_are_those_of_spark(sql: SparkSession, values: str, order: str, where: str):
    ours, theirs = (
        [rows(sql, f"SELECT id, text FROM {table} {where} ORDER BY {order}, id LIMIT {count}") for count in (1, 3, 100)]
        for table in (values, "same")
    )
    assert ours == theirs


def test_the_first_rows_of_an_order_are_found_by_the_workers(sql: SparkSession, lake: conroi.Lake, values: str):
    numbers = pa.array([n * 7919 % 200_003 for n in range(200_003)], pa.int64())
    lake.create_table("shuffled", pa.table({"n": numbers, "twice": pa.array([2 * n.as_py() for n in numbers])}))
    frame = sql.sql("SELECT twice FROM lake.shuffled ORDER BY n DESC LIMIT 3")
    assert "top {" in plan(frame)
    assert [row[0] for row in frame.collect()] == [400_004, 400_002, 400_000]
    assert rows(sql, "SELECT n FROM lake.shuffled WHERE n > 100 ORDER BY n LIMIT 2") == [(101,), (102,)]
    for other in ("double", "small", "int, text DESC NULLS FIRST, id NULLS LAST", "length(text)", "_rowaddr"):
        assert "top {" not in plan(sql.sql(f"SELECT id FROM {values} ORDER BY {other} LIMIT 2")), other
    assert "top {" not in plan(sql.sql("SELECT n FROM lake.shuffled ORDER BY n LIMIT 10001"))


@pytest.fixture
def broadcasts(sql: SparkSession) -> Iterator[None]:
    """Small tables are broadcast, as they are unless it is configured otherwise."""
    before = sql.conf.get(BROADCAST)
    sql.conf.set(BROADCAST, "10MB")
    yield
    sql.conf.set(BROADCAST, str(before))


@pytest.mark.usefixtures("broadcasts")
def test_a_join_with_a_small_table_reads_only_rows_that_it_may_match(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("facts", pa.table({"the dim": [n % 1000 for n in range(50_000)], "v": list(range(50_000))}))
    lake.create_table("dims", pa.table({"id": list(range(1000)), "name": [f"g{n % 100}" for n in range(1000)]}))
    query = "SELECT sum(v), max(name) FROM lake.facts f JOIN lake.dims d ON f.`the dim` = d.id WHERE d.name = 'g7'"
    expected = [v for v in range(50_000) if v % 100 == 7]
    frame = sql.sql(query)  # workers do not aggregate texts of a join, so Spark joins
    assert [tuple(row) for row in frame.collect()] == [(sum(expected), "g7")]
    assert scanned_rows(frame) == {"lake.facts": 500, "lake.dims": 10}
    sql.conf.set("spark.sql.optimizer.dynamicPartitionPruning.enabled", "false")
    try:
        control = sql.sql(query)
        assert [tuple(row) for row in control.collect()] == [(sum(expected), "g7")]
        assert scanned_rows(control) == {"lake.facts": 50_000, "lake.dims": 10}
    finally:
        sql.conf.unset("spark.sql.optimizer.dynamicPartitionPruning.enabled")


@pytest.mark.usefixtures("broadcasts")
def test_a_join_with_many_values_is_not_filtered_by_them(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("wide_dims", pa.table({"dim": list(range(5000))}))
    lake.create_table("keys", pa.table({"id": list(range(5000)), "even": [n % 2 == 0 for n in range(5000)]}))
    frame = sql.sql("SELECT count(*), max(even) FROM lake.wide_dims w JOIN lake.keys k ON w.dim = k.id WHERE k.even")
    assert [tuple(row) for row in frame.collect()] == [(2500, True)]
    assert scanned_rows(frame)["lake.wide_dims"] == 5000


def scanned_rows(frame: DataFrame) -> dict[str, int]:
    """How many rows each scan of an executed query handed to Spark."""
    found: dict[str, int] = {}
    leaves = cast("Any", frame)._jdf.queryExecution().executedPlan().executedPlan()
    stages = [leaves]
    while stages:
        node = stages.pop()
        name = node.nodeName()
        if name.endswith("QueryStage"):
            stages.append(node.plan())
        elif name.startswith("BatchScan"):
            found[name.split()[-1]] = node.metrics().apply("numOutputRows").value()
        children = node.children()
        stages += [children.apply(number) for number in range(children.size())]
    return found


def test_rows_without_columns_are_counted(sql: SparkSession, values: str):
    assert rows(sql, f"SELECT 1 FROM {values} WHERE id > 5") == [(1,), (1,)]
    assert sql.table(values).select().count() == 8


def test_metadata_columns(sql: SparkSession, values: str):
    found = rows(sql, f"SELECT id, _rowaddr, _rowid, _version FROM {values} ORDER BY id")
    assert found[0] == (0, 0, 0, 2)
    assert found[5] == (5, 1 << 32, 1 << 32, 2)
    assert rows(sql, f"SELECT max(_version) FROM {values}") == [(2,)]
    assert rows(sql, f"SELECT id FROM {values} WHERE _rowaddr = 1") == [(1,)]


@pytest.mark.usefixtures("broadcasts")
def test_a_small_table_is_broadcast(sql: SparkSession, values: str):
    frame = sql.sql(f"SELECT m.id FROM lake.many m JOIN {values} v ON m.id = v.long")
    assert "BroadcastHashJoin" in plan(frame)
    assert frame.count() == 5


def test_odd_names_of_columns(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("odd", pa.table({"a b": [1, 2], "select": [3, 4], "ü'x": [5, 6], "Case": [7, 8]}))
    query = "SELECT `a b`, `select`, `ü'x`, `case` FROM lake.odd WHERE `a b` = 2 AND `ü'x` > 1 AND `CASE` = 8"
    assert rows(sql, query) == [(2, 4, 6, 8)]
