"""Joins with small tables below an aggregate: workers evaluate both; every answer is that of Spark over Parquet."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

import conroi
import conroi.spark
from conroi.spark.connector.configuration import catalog_settings
from tests.spark.connector.join_rows import TABLES
from tests.spark.connector.support import plan, rows
from tests.support.sampling import sampled, seeds_of_the_day

pytestmark = pytest.mark.contract("S20")

JOINED = "joined with"
"""What EXPLAIN shows of a join that workers evaluate."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> conroi.Lake:
    """A lake for these tests alone."""
    return conroi.connect(tmp_path_factory.mktemp("connector") / "lake")


@pytest.fixture(scope="module", autouse=True)
def tables(sql: SparkSession, lake: conroi.Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The same rows in a lake, which is the catalog `many`, too, with a task for each fragment; and as Parquet."""
    folder = tmp_path_factory.mktemp("parquet")
    for key, value in catalog_settings({"many": {"uri": lake.uri, "bytesPerTask": 1}}, is_local=True).items():
        sql.conf.set(key, value)
    for name, table in TABLES.items():
        made = lake.create_table(name, table.slice(0, table.num_rows // 3))
        for start in (table.num_rows // 3, 2 * table.num_rows // 3):
            made.append(table.slice(start, table.num_rows // 3 if start < table.num_rows // 2 else None))
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "part.parquet")
        sql.read.parquet(str(folder / name)).createOrReplaceTempView(f"same_{name}")
    yield
    sql.conf.unset("spark.conroi.transaction.lake")


def filled(query: str, catalog: str) -> str:
    return query.format_map({name: f"{catalog}{name}" for name in TABLES})


def found(sql: SparkSession, query: str, catalog: str) -> list[str]:
    return sorted(repr(tuple(row)) for row in sql.sql(filled(query, catalog)).collect())


def check(sql: SparkSession, query: str, *, is_pushed: bool) -> None:
    """Compare with Parquet, by one task; also by several, if workers evaluate the join."""
    shown = plan(sql.sql(filled(query, "lake.")))
    assert (JOINED in shown) == is_pushed, shown
    expected = found(sql, query, "same_")
    for catalog in ("lake.", "many.") if is_pushed else ("lake.",):
        assert found(sql, query, catalog) == expected


PUSHED = [
    "SELECT label, sum(x), count(*) FROM {facts} t JOIN {dim} d ON t.i % 40 = d.id GROUP BY label ORDER BY 1",
    "SELECT label, sum(x), count(*) FROM {dim} d JOIN {facts} t ON d.id = t.i % 40L GROUP BY label",
    "SELECT label, count(*) FROM {facts} t, {dim} d WHERE t.l = d.id GROUP BY label",
    "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.b = d.id GROUP BY label",
    "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.i = d.small GROUP BY label",
    "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.l % 1000000000000 = d.small GROUP BY label",
    "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.b % 1000 = d.id",
    "SELECT count(*), sum(x), min(n), max(wide), min(day) FROM {facts} t JOIN {dim} d USING (day)"
    .replace("min(day)", "min(t.day)").replace("min(n)", "min(t.n)"),
    "SELECT kind, count(*), sum(n), sum(wide) FROM {facts} t JOIN {texts} s ON t.code = s.code GROUP BY kind",
    "SELECT count(x), count(code), count(t.flag), count(money) FROM {facts} t JOIN {twice} u ON t.i = u.k",
    "SELECT name, sum(n), sum(wide), sum(weight), count(weight), count(name) "
    "FROM {facts} t JOIN {twice} u ON t.i = u.k GROUP BY name",
    "SELECT name, min(weight), max(weight), min(n), max(n), min(day), max(b) "
    "FROM {facts} t JOIN {twice} u ON t.i = u.k GROUP BY name",
    "SELECT name, count(*) FROM {facts} t JOIN {twice} u ON t.i % 4 = u.k GROUP BY name",
    "SELECT rate, count(*), sum(t.n) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY rate",
    "SELECT d.flag, label, d.n, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY d.flag, label, d.n",
    "SELECT d.money, d.at, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY d.money, d.at",
    "SELECT d.day, sum(odd), sum(f) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY d.day",
    "SELECT DISTINCT label FROM {facts} t JOIN {dim} d ON t.l = d.id",
    "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label HAVING count(*) > 100",
    "SELECT label, count(*) AS c FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label ORDER BY c, label LIMIT 2",
    "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id WHERE t.n > 0 AND d.n > -15 GROUP BY label",
    "SELECT label, sum(t.n) FROM {facts} t JOIN {dim} d ON t.l = d.id AND t.code = 'a' AND d.flag GROUP BY label",
    "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id WHERE label IS NOT NULL GROUP BY label",
    "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id WHERE t.n > 5000 GROUP BY label",
    "SELECT count(*), sum(x), min(t.n) FROM {facts} t JOIN {dim} d ON t.l = d.id WHERE d.n > 5000",
    "SELECT label, count(*) FROM {facts} t JOIN {empty} d ON t.l = d.id GROUP BY label",
    "SELECT count(*), sum(x), max(t.n) FROM {facts} t JOIN {empty} d ON t.l = d.id",
    "SELECT count(*), sum(d.id) FROM {empty} t JOIN {dim} d ON t.id = d.id",
    "SELECT b.label, count(*), sum(a.n) FROM {dim} a JOIN {dim} b ON a.id = b.small GROUP BY b.label",
    "SELECT d.label, kind, count(*), sum(x) FROM {facts} t JOIN {dim} d ON t.l = d.id "
    "JOIN {texts} s ON t.code = s.code GROUP BY d.label, kind",
    "SELECT name, kind, count(*), sum(weight), sum(n) FROM {facts} t JOIN {texts} s ON t.code = s.code "
    "JOIN {twice} u ON t.i % 8 = u.k GROUP BY name, kind",
    "SELECT u.name, v.name, count(*), sum(u.weight), max(v.weight) FROM {facts} t JOIN {twice} u ON t.i = u.k "
    "JOIN {twice} v ON t.l = v.k GROUP BY u.name, v.name",
    "SELECT t.l, t.i, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.small "
    "JOIN {twice} u ON t.i = u.k GROUP BY t.l, t.i",
    "SELECT t.b, t.code, count(*) FROM {facts} t JOIN {dim} d ON t.b = d.id JOIN {texts} s USING (code) GROUP BY ALL",
    "SELECT `select`, sum(`größe €`) AS `a.b` FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY `select`",
    "SELECT c, count(*) FROM (SELECT label, count(*) AS c FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label) "
    "GROUP BY c",
    "SELECT * FROM {texts} WHERE (SELECT max(n) FROM {facts} t JOIN {empty} e ON t.l = e.id) IS NULL",
    "SELECT label, sum(t.n) + count(*) * 2, label || '!' FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT x.c FROM (SELECT label, count(*) AS c FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label) x "
    "JOIN {twice} u ON x.c % 5 = u.k",
]  # fmt: skip


@pytest.mark.parametrize("query", sampled("joins", [(query,) for query in PUSHED], least=6, covers=False))
def test_an_aggregate_over_a_join_is_what_spark_computes(sql: SparkSession, query: str):
    check(sql, query, is_pushed=True)


EVALUATED_BY_SPARK = [
    "SELECT label, count(*) FROM {facts} t LEFT JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT label, count(*) FROM {facts} t RIGHT JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT label, count(*) FROM {facts} t FULL JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT count(*) FROM {facts} t LEFT SEMI JOIN {dim} d ON t.l = d.id",
    "SELECT count(*) FROM {facts} t LEFT ANTI JOIN {dim} d ON t.l = d.id",
    "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.l <=> d.id",
    "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.l < d.id",
    "SELECT count(*) FROM {facts} t CROSS JOIN {texts} s",
    "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id AND t.n > d.n",
    "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id AND t.day = d.day",
    "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.b + 1 = d.id",
    "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.i % -40 = d.id",
    "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.x = d.id",
    "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.money = d.money",
    "SELECT label, avg(n) FROM (SELECT t.n, label FROM {facts} t JOIN {dim} d ON t.l = d.id) GROUP BY label",
    "SELECT label, sum(t.money) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT label, count(DISTINCT t.n) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT label, count(*) FILTER (WHERE t.n > 0) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT label, sum(t.n * 2) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT label, min(code) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT label, min(x) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label",
    "SELECT t.n, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY t.n",
    "SELECT t.l, count(*) FROM {facts} t JOIN {dim} d ON t.l % 5 = d.id GROUP BY t.l",
    "SELECT upper(label), count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY upper(label)",
    "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id WHERE upper(code) = 'A' GROUP BY label",
    "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id WHERE upper(label) = 'A' GROUP BY label",
    "SELECT label, t.n, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY ROLLUP (label, t.n)",
    "SELECT label, t.x FROM {facts} t JOIN {dim} d ON t.l = d.id",
    "SELECT kind, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id JOIN {twice} u ON d.n = u.k "
    "JOIN {texts} s ON t.code = s.code GROUP BY kind",
]


@pytest.mark.parametrize(
    "query", sampled("joins of Spark", [(query,) for query in EVALUATED_BY_SPARK], least=3, covers=False)
)
def test_other_joins_stay_with_spark(sql: SparkSession, query: str):
    check(sql, query, is_pushed=False)


def test_no_join_is_pushed_without_an_aggregate_above(sql: SparkSession):
    """Also if the session has Spark's own setting: a broadcast join is better there."""
    setting = "spark.sql.optimizer.datasourceV2JoinPushdown"
    sql.conf.set(setting, "true")
    try:
        check(sql, "SELECT label, t.x FROM {facts} t JOIN {dim} d ON t.l = d.id", is_pushed=False)
        check(sql, "SELECT label, sum(x) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label", is_pushed=True)
    finally:
        sql.conf.unset(setting)


def test_the_rule_can_be_excluded(sql: SparkSession):
    sql.conf.set("spark.sql.optimizer.excludedRules", "conroi.spark.LakeJoins")
    try:
        check(sql, "SELECT count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id", is_pushed=False)
    finally:
        sql.conf.unset("spark.sql.optimizer.excludedRules")


def test_a_sum_that_overflows_is_an_error_as_in_spark(sql: SparkSession):
    query = "SELECT name, sum(l) FROM {facts} t JOIN {twice} u ON t.i % 4 = u.k WHERE l > 100 GROUP BY name"
    for catalog in ("lake.", "many.", "same_"):
        with pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
            found(sql, query, catalog)


def test_a_sum_wraps_where_spark_does(sql: SparkSession):
    sql.conf.set("spark.sql.ansi.enabled", "false")
    try:
        join = "FROM {facts} t JOIN {twice} u ON {} = u.k WHERE l > 100 GROUP BY name"
        check(sql, f"SELECT name, sum(l), sum(wide) {join.replace('{}', 't.i')}", is_pushed=True)
        check(sql, f"SELECT name, sum(l) {join.replace('{}', 't.i % 4')}", is_pushed=False)  # Spark hands over no %
    finally:
        sql.conf.set("spark.sql.ansi.enabled", "true")


def test_a_large_table_is_not_held_in_memory(sql: SparkSession, lake: conroi.Lake):
    query = "SELECT count(*), sum(v) FROM lake.facts t JOIN lake.{} d ON t.l = d.k"
    for name, count in (("just_small", 32_768), ("one_more", 32_769)):
        numbers = pa.array(range(count), pa.int64())
        lake.create_table(name, pa.table({"k": numbers, "v": numbers}))
    # the larger of two tables is shared out, whichever is small enough
    assert JOINED in plan(sql.sql(query.format("just_small")))
    assert rows(sql, query.format("just_small")) == rows(sql, query.format("one_more"))
    both = "SELECT count(*) FROM lake.{} a JOIN lake.{} b ON a.k = b.k"
    assert JOINED in plan(sql.sql(both.format("just_small", "one_more")))
    assert JOINED not in plan(sql.sql(both.format("one_more", "one_more")))
    three = "SELECT count(*) FROM lake.one_more t JOIN lake.{} a ON t.k = a.k JOIN lake.{} b ON t.k = b.id"
    assert JOINED in plan(sql.sql(three.format("empty", "dim").replace("a.k", "a.id")))
    assert JOINED not in plan(sql.sql(three.format("just_small", "dim"))), "as many groups as pairs"


def test_sums_of_floating_point_numbers_have_the_bits_that_spark_gives(sql: SparkSession, lake: conroi.Lake):
    values = [1e16, 1.0, -1e16, 0.1, 1e-9, 3.3] * 40_000
    keys = [number % 7 for number in range(len(values))]
    lake.create_table("floats", pa.table({"k": keys, "x": values}))
    lake.create_table("odd_keys", pa.table({"k": [1, 3, 5, 6], "g": ["a", "b", "a", None]}))
    query = "SELECT g, sum(x) FROM lake.floats t JOIN lake.odd_keys d ON t.k = d.k GROUP BY g"
    assert JOINED in plan(sql.sql(query))
    expected: dict[str | None, float] = {}
    group = {1: "a", 3: "b", 5: "a", 6: None}
    for key, value in zip(keys, values, strict=True):
        if key in group:
            expected[group[key]] = expected.get(group[key], 0.0) + value
    bits = {name: struct.pack("d", total) for name, total in expected.items()}
    assert {name: struct.pack("d", total) for name, total in rows(sql, query)} == bits
    exact = math.fsum(value for key, value in zip(keys, values, strict=True) if key == 3)
    assert struct.pack("d", exact) != bits["b"], "the control: the order matters"
    (unpushed,) = rows(sql, query.replace("lake.floats t", "(SELECT * FROM lake.floats WHERE rand() >= 0) t")
                       .replace("GROUP BY g", "WHERE g = 'b' GROUP BY g"))  # fmt: skip
    assert struct.pack("d", unpushed[1]) == bits["b"], "Spark's own"


def test_deleted_rows_and_rows_of_a_transaction_are_joined_as_they_are_seen(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("sales", [{"k": n % 3, "v": n} for n in range(30)])
    lake.create_table("names", [{"k": 0, "name": "zero"}, {"k": 1, "name": "one"}])
    query = "SELECT name, sum(v), count(*) FROM lake.sales t JOIN lake.names d ON t.k = d.k GROUP BY name ORDER BY 1"
    assert JOINED in plan(sql.sql(query))
    assert rows(sql, query) == [("one", 145, 10), ("zero", 135, 10)]
    sql.sql("DELETE FROM lake.sales WHERE v >= 15")
    sql.sql("DELETE FROM lake.names WHERE name = 'zero'")
    assert rows(sql, query) == [("one", 35, 5)]
    old = query.replace("lake.sales", "lake.sales VERSION AS OF 1")
    assert rows(sql, old) == [("one", 145, 10)], "tables at different versions"
    assert rows(sql, old.replace("lake.names", "lake.names VERSION AS OF 1")) == [("one", 145, 10), ("zero", 135, 10)]
    with conroi.spark.transaction(sql, "new rows") as tx:
        tx.sql("INSERT INTO lake.sales VALUES (1, 1000), (7, 5)")
        tx.sql("INSERT INTO lake.names VALUES (7, 'seven')")
        assert JOINED in plan(sql.sql(query))
        assert rows(sql, query) == [("one", 1035, 6), ("seven", 5, 1)]
        assert lake["sales"].count_rows() == 15, "not committed yet"
    assert rows(sql, query) == [("one", 1035, 6), ("seven", 5, 1)]


def test_views_and_dataframes_of_versions_are_joined(sql: SparkSession, lake: conroi.Lake, spark: SparkSession):
    sql.sql(
        "CREATE OR REPLACE TEMPORARY VIEW joined AS SELECT label, t.n FROM lake.facts t JOIN lake.dim d ON t.l = d.id"
    )
    frame = sql.sql("SELECT label, sum(n), count(*) FROM joined GROUP BY label")
    assert JOINED in plan(frame)
    expected = found(sql, "SELECT label, sum(t.n), count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label",
                     "same_")  # fmt: skip
    assert sorted(repr(tuple(row)) for row in frame.collect()) == expected
    facts, dim = lake["facts"].to_spark(spark, filter="n > 0"), lake["dim"].to_spark(spark)
    pinned = facts.join(dim, facts.l == dim.id).groupBy(dim.label).agg({"*": "count"})
    assert JOINED in plan(pinned)
    filtered = "SELECT label, count(*) FROM {facts} t JOIN {dim} d ON t.l = d.id WHERE t.n > 0 GROUP BY label"
    assert sorted(repr(tuple(row)) for row in pinned.collect()) == found(sql, filtered, "same_")


def test_tables_of_two_lakes_are_joined_by_spark(sql: SparkSession, tmp_path: Path):
    other = conroi.connect(tmp_path / "other")
    other.create_table("dim", TABLES["dim"])
    for key, value in catalog_settings({"other": other.uri}, is_local=True).items():
        sql.conf.set(key, value)
    query = "SELECT label, sum(t.n) FROM lake.facts t JOIN other.dim d ON t.l = d.id GROUP BY label"
    assert JOINED not in plan(sql.sql(query))
    expected = found(sql, "SELECT label, sum(t.n) FROM {facts} t JOIN {dim} d ON t.l = d.id GROUP BY label", "same_")
    assert sorted(repr(tuple(row)) for row in sql.sql(query).collect()) == expected


# ---------------------------------------------------------------------------- random queries

_KEYS = [
    ("dim", "t.l = d.id"), ("dim", "d.id = t.i"), ("dim", "t.i % 40 = d.id"), ("dim", "t.l % 7 = d.small"),
    ("dim", "t.day = d.day"), ("dim", "t.b = d.small"), ("twice", "t.i = d.k"), ("twice", "t.l % 5 = d.k"),
    ("twice", "d.k = t.b"), ("texts", "t.code = d.code"), ("empty", "t.l = d.id"), ("dim", "t.wide % 3000000 = d.id"),
]  # fmt: skip
_GROUPS = {
    "dim": ["d.label", "d.rate", "d.n", "d.flag", "d.money", "d.day", "d.at"],
    "twice": ["d.name", "d.weight", "d.k"],
    "texts": ["d.kind", "d.code"],
    "empty": ["d.label"],
}
_CONDITIONS = {
    "dim": ["d.n > 0", "d.label = 'label 1'", "d.flag", "d.n <> 3"],
    "twice": ["d.weight IS NOT NULL", "d.name < 'y'"],
    "texts": ["d.kind <> 'one'"],
    "empty": ["d.id > 0"],
}
_FUNCTIONS = [
    "count(*)", "count(t.x)", "sum(t.n)", "sum(t.wide)", "sum(t.x)", "sum(t.odd)", "sum(t.f)", "min(t.day)", "max(t.i)",
    "min(t.b)", "max(t.wide)", "count(t.code)", "count(t.money)",
]  # fmt: skip
_OWN = {
    "dim": ["sum(d.n)", "count(d.label)", "max(d.day)", "min(d.small)"],
    "twice": ["sum(d.weight)", "count(d.name)", "max(d.k)"],
    "texts": ["count(d.kind)"],
    "empty": ["sum(d.id)"],
}
_PROBED = ["t.n > 0", "t.code IN ('a', 'A')", "t.x IS NOT NULL", "t.flag", "(t.n > 0 OR t.l < 3)"]


def random_query(chance: random.Random) -> str:
    """An aggregate over a join of one or two small tables."""
    table, condition = chance.choice(_KEYS)
    functions = chance.sample([*_FUNCTIONS, *_OWN[table]], chance.randint(1, 5))
    groups = chance.sample(_GROUPS[table], chance.randint(0, min(2, len(_GROUPS[table]))))
    conditions = [each for each in (*_CONDITIONS[table], *_PROBED) if chance.random() < 0.2]
    joins = f"{{facts}} t JOIN {{{table}}} d ON {condition}"
    if chance.random() < 0.3:
        second, on = chance.choice(_KEYS)
        joins += f" JOIN {{{second}}} e ON {on.replace('d.', 'e.')}"
        groups += [group.replace("d.", "e.") for group in _GROUPS[second][:1]]
        conditions += [each.replace("d.", "e.") for each in _CONDITIONS[second] if chance.random() < 0.2]
    wanted = ", ".join(f"{each} AS c{number}" for number, each in enumerate([*groups, *functions]))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {wanted} FROM {joins}{where}" + (f" GROUP BY {', '.join(groups)}" if groups else "")


@pytest.mark.parametrize("seed", seeds_of_the_day("joins", 0, 3))
def test_random_joins_are_what_spark_computes(sql: SparkSession, seed: int):
    query = random_query(random.Random(seed))
    check(sql, query, is_pushed=True)
