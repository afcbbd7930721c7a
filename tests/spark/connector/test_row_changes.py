"""DELETE, UPDATE and MERGE with any expression of Spark: one version each, row ids kept, keys exact."""

from __future__ import annotations

import itertools
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import conroi
from conroi.spark.connector.configuration import catalog_settings
from conroi.spark.connector.errors import typed
from conroi.spark.types import is_exact_in_spark, spark_type
from tests.spark.connector.support import rows
from tests.support.arrow_types import TYPES
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("S17")

ROWS = pa.table({"id": [1, 2, 3, 4], "v": [1.0, 2.0, None, float("nan")], "s": ["a", "bb", None, "dddd"]})
KINDS = ["plain", "keyed", "stable"]


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, lake: conroi.Lake) -> conroi.Table:
    """A table without a key, with one, with stable row ids; in two fragments."""
    kind: str = request.param
    name = f"{kind}_{len(lake.tables())}"
    table = lake.create_table(
        name, ROWS.slice(0, 3), key="id" if kind == "keyed" else None, stable_row_ids=kind == "stable"
    )
    return table.append(ROWS.slice(3))


def changed(sql: SparkSession, lake: conroi.Lake, table: conroi.Table, statement: str) -> list[tuple[Any, ...]]:
    """The rows after a statement that is one version of the table and of the lake."""
    name, before = table.name, lake.version
    sql.sql(statement.replace("{t}", f"lake.{name}"))
    assert (lake.version, lake[name].version) == (before + 1, table.version + 1)
    found = [tuple(row.values()) for row in lake[name].to_arrow().sort_by("id").to_pylist()]
    assert str(rows(sql, f"SELECT * FROM lake.{name} ORDER BY id")) == str(found)
    return found


DELETES = [
    ("length(s) > 1", [1, 3]),
    ("id IN (SELECT id + 1 FROM {t} WHERE s = 'a')", [1, 3, 4]),
    ("EXISTS (SELECT 1 FROM {t} o WHERE o.id = t.id + 1 AND o.s IS NULL)", [1, 3, 4]),
    ("id = (SELECT max(id) FROM {t})", [1, 2, 3]),
    ("v <=> NULL", [1, 2, 4]),
    ("isnan(v) OR upper(s) = 'A'", [2, 3]),
    ("NOT (length(s) > 1)", [2, 3, 4]),
    ("_rowaddr = 1", [1, 3, 4]),
    ("true", []),
]


@pytest.mark.parametrize(
    ("table", "where", "left"),
    sampled("deletes", [(kind, *case) for kind in KINDS for case in DELETES]),
    indirect=["table"],
)
def test_delete(sql: SparkSession, lake: conroi.Lake, table: conroi.Table, where: str, left: list[int]):
    assert [row[0] for row in changed(sql, lake, table, f"DELETE FROM {{t}} t WHERE {where}")] == left


def test_update_with_expressions(sql: SparkSession, lake: conroi.Lake, table: conroi.Table):
    statement = "UPDATE {t} SET s = upper(concat(s, s)), v = (SELECT max(id) FROM {t}) WHERE length(s) < 3"
    found = changed(sql, lake, table, statement)
    assert found[:3] == [(1, 4.0, "AA"), (2, 4.0, "BBBB"), (3, None, None)]


def test_stable_row_ids_stay_with_updated_rows(sql: SparkSession, lake: conroi.Lake, table: conroi.Table):
    query = f"SELECT id, _rowid FROM lake.{table.name} ORDER BY id"
    before = rows(sql, query)
    changed(sql, lake, table, "UPDATE {t} SET s = 'new' WHERE id % 2 = 0")
    merge = (
        "MERGE INTO {t} t USING (SELECT * FROM VALUES (1), (9), (8) AS s(id)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, 'inserted')"
    )
    changed(sql, lake, lake[table.name], merge)
    after = rows(sql, query)
    assert len({row_id for _, row_id in after}) == 6
    if table.has_stable_row_ids:
        assert after[:4] == before
    else:
        assert after[:4] != before


def test_a_key_may_change_but_never_be_doubled(sql: SparkSession, lake: conroi.Lake):
    table = lake.create_table("moved", ROWS, key="id")
    found = changed(sql, lake, table, "UPDATE {t} SET id = id + 1 WHERE id >= 2")
    assert [row[0] for row in found] == [1, 3, 4, 5]
    with pytest.raises(IllegalArgumentException) as refused:
        sql.sql("UPDATE lake.moved SET id = 1 WHERE length(s) = 2")
    assert isinstance(typed(refused.value), conroi.DuplicateKeyError)
    assert lake["moved"].version == 2


def test_a_change_of_no_row_is_no_version(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("still", ROWS)
    before = lake.version
    sql.sql("UPDATE lake.still SET s = 'x' WHERE length(s) > 100")
    sql.sql("DELETE FROM lake.still WHERE length(s) > 100")
    sql.sql("DELETE FROM lake.still WHERE id > 100")
    sql.sql("MERGE INTO lake.still t USING lake.still s ON false WHEN MATCHED THEN DELETE")
    assert lake.version == before


SOURCE = "(SELECT * FROM VALUES (2, 20.0), (3, 30.0), (4, 40.0), (9, 90.0) AS s(id, v))"
MERGES: list[tuple[str, str, list[tuple[int, float | None, str | None]]]] = [
    (
        "several clauses",
        f"USING {SOURCE} s ON t.id = s.id WHEN MATCHED AND s.id = 2 THEN DELETE "
        "WHEN MATCHED AND s.id = 3 THEN UPDATE SET v = s.v + t.id, s = concat_ws('-', t.s, 'x') "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED AND s.v > 1 THEN INSERT (id, v) VALUES (s.id, s.v)",
        [(1, 1.0, "a"), (3, 33.0, "x"), (4, 40.0, "dddd"), (9, 90.0, None)],
    ),
    (
        "not matched by source",
        f"USING {SOURCE} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 0 "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET s = 'alone'",
        [(1, 1.0, "alone"), (2, 0.0, "bb"), (3, 0.0, None), (4, 0.0, "dddd")],
    ),
    (
        "not matched by source deletes",
        f"USING {SOURCE} s ON t.id = s.id WHEN MATCHED AND t.id = 4 THEN UPDATE SET v = 4 "
        "WHEN NOT MATCHED BY SOURCE AND t.v = 1 THEN DELETE",
        [(2, 2.0, "bb"), (3, None, None), (4, 4.0, "dddd")],
    ),
    (
        "an inequality, and a condition on either side",
        f"USING {SOURCE} s ON t.id = s.id AND s.v < 35 AND t.s IS NOT NULL WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND s.id = 9 THEN INSERT (id, v, s) VALUES (s.id * 10, s.v, 'n')",
        [(1, 1.0, "a"), (3, None, None), (4, float("nan"), "dddd"), (90, 90.0, "n")],
    ),
    (
        "false",
        "USING (SELECT 7 AS id, 7.0 AS v, 'seven' AS s) s ON false WHEN NOT MATCHED THEN INSERT *",
        [(1, 1.0, "a"), (2, 2.0, "bb"), (3, None, None), (4, float("nan"), "dddd"), (7, 7.0, "seven")],
    ),
    (
        "stars",
        "USING (SELECT id, v * 10 AS v, 'star' AS s FROM {t} WHERE id < 3) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *",
        [(1, 10.0, "star"), (2, 20.0, "star"), (3, None, None), (4, float("nan"), "dddd")],
    ),
    (
        "keys of another type",
        "USING (SELECT * FROM VALUES (1.5), (2.0) AS s(id)) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        [(1, 1.0, "a"), (3, None, None), (4, float("nan"), "dddd")],
    ),
    (
        "doubled source rows that only delete",
        "USING (SELECT * FROM VALUES (1), (1) AS s(id)) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        [(2, 2.0, "bb"), (3, None, None), (4, float("nan"), "dddd")],
    ),
]


@pytest.mark.parametrize(
    ("table", "name"),
    sampled("merges", [(kind, case[0]) for kind in KINDS for case in MERGES]),
    indirect=["table"],
)
def test_merge(sql: SparkSession, lake: conroi.Lake, table: conroi.Table, name: str):
    merge, expected = {case[0]: case[1:] for case in MERGES}[name]
    assert str(changed(sql, lake, table, f"MERGE INTO {{t}} t {merge}")) == str(expected)


def test_a_row_that_two_source_rows_update_is_refused(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("twice", ROWS)
    with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
        sql.sql(
            "MERGE INTO lake.twice t USING (SELECT * FROM VALUES (1, 5.0), (1, 6.0) AS s(id, v)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = s.v"
        )
    assert lake["twice"].version == 1


def test_nested_fields_are_updated(sql: SparkSession, lake: conroi.Lake):
    struct = pa.struct([("a", pa.int64()), ("b", pa.string())])
    lake.create_table("nested", pa.table({"id": [1, 2], "s": pa.array([{"a": 1, "b": "x"}, None], struct)}))
    sql.sql("UPDATE lake.nested SET s.a = 7 WHERE s.b = 'x'")
    assert rows(sql, "SELECT id, s.a, s.b FROM lake.nested ORDER BY id") == [(1, 7, "x"), (2, None, None)]


@pytest.fixture(scope="module")
def split(spark: SparkSession, lake: conroi.Lake) -> SparkSession:
    """The lake as the catalog `split`, in which each fragment is read by a task of its own."""
    session = spark.newSession()
    settings = catalog_settings({"split": {"uri": lake.uri, "bytesPerTask": "1"}}, is_local=True)
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def test_an_update_by_many_tasks_leaves_few_fragments(split: SparkSession, lake: conroi.Lake):
    table = lake.create_table("parts", pa.table({"id": [0]}))
    for number in range(1, 10):
        table = table.append(pa.table({"id": [number]}))
    split.sql("UPDATE split.parts SET id = id + 100 WHERE length(cast(id AS STRING)) = 1")
    assert rows(split, "SELECT count(*), min(id) FROM split.parts") == [(10, 100)]
    assert len(lake["parts"].pinned.manifest.fragments) <= 2


def test_many_changed_rows_come_in_several_messages(split: SparkSession, lake: conroi.Lake):
    table = lake.create_table("long", pa.table({"id": range(0, 400_000, 4)}), stable_row_ids=True)
    for start in range(1, 4):
        table = table.append(pa.table({"id": range(start, 400_000, 4)}))
    split.sql("DELETE FROM split.long WHERE id % 8 < 4 AND length(cast(id AS STRING)) > 1")
    assert rows(split, "SELECT count(*), count(DISTINCT _rowid) FROM split.long") == [(200_006, 200_006)]
    split.sql("UPDATE split.long SET id = -id WHERE length(cast(id AS STRING)) > 1")
    assert rows(split, "SELECT count(*), count(DISTINCT _rowid), max(id) FROM split.long") == [(200_006, 200_006, 9)]


def test_a_merge_after_a_shuffle_leaves_few_fragments(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("wide", pa.table({"id": range(20_000), "v": [0] * 20_000}))
    sql.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    sql.conf.set("spark.sql.shuffle.partitions", "20")
    try:
        sql.sql(
            "MERGE INTO lake.wide t USING (SELECT id * 2 AS id FROM range(0, 20000, 1, 8)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = 1 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 2)"
        )
    finally:
        sql.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        sql.conf.unset("spark.sql.shuffle.partitions")
    counts = rows(sql, "SELECT v, count(*) FROM lake.wide GROUP BY v ORDER BY v")
    assert counts == [(0, 10_000), (1, 10_000), (2, 10_000)]
    assert len(lake["wide"].pinned.manifest.fragments) <= 3


# ---------------------------------------------------------------------------- values that a statement leaves alone

EXACT = [each for each in TYPES if each.stored is None and spark_type(each.type) and is_exact_in_spark(each.type)]
CHANGES = (
    "UPDATE {t} SET v = upper(v)",
    "MERGE INTO {t} t USING {t} s ON t.i = s.i WHEN MATCHED THEN UPDATE SET v = 'z'",
)


@pytest.mark.parametrize("statement", CHANGES, ids=["update", "merge"])
def test_other_columns_of_a_changed_row_keep_their_values_in_every_type(
    sql: SparkSession, lake: conroi.Lake, statement: str
):
    columns = {f"c{number}": pa.array(each.values, each.type) for number, each in enumerate(EXACT)}
    fields = [pa.field(f"c{number}", each.type, metadata=each.metadata) for number, each in enumerate(EXACT)]
    given = pa.table(
        {"i": range(6), "v": ["a"] * 6, **columns},
        schema=pa.schema([pa.field("i", pa.int64()), pa.field("v", pa.string()), *fields]),
    )
    table = lake.create_table(f"all_types_{len(lake.tables())}", given)
    before = lance.dataset(table.uri).to_table().sort_by("i")
    sql.sql(statement.replace("{t}", f"lake.{table.name}"))
    dataset = lance.dataset(table.uri)
    after = dataset.to_table().sort_by("i")
    assert dataset.version == table.version + 1
    assert set(after["v"].to_pylist()) <= {"A", "z"}
    assert len(EXACT) > 40
    for name, each in zip(columns, EXACT, strict=True):
        assert repr(after[name].to_pylist()) == repr(before[name].to_pylist()), each.name


NANOSECONDS = {
    "timestamp": pa.timestamp("ns"),
    "time": pa.time64("ns"),
    "duration": pa.duration("ns"),
    "inside a list of structs": pa.list_(pa.struct([("at", pa.timestamp("ns", "UTC"))])),
}


@pytest.mark.parametrize(("statement", "kind"), sampled("nanoseconds", list(itertools.product(CHANGES, NANOSECONDS))))
def test_an_update_never_cuts_nanoseconds_of_columns_that_it_does_not_name(
    sql: SparkSession, lake: conroi.Lake, statement: str, kind: str
):
    """Rows that Spark writes again go through its types, which end at microseconds."""
    plain = pa.array([1001], pa.int64())
    nested = pa.ListArray.from_arrays(
        [0, 1], pa.StructArray.from_arrays([plain.cast(pa.timestamp("ns", "UTC"))], ["at"])
    )
    values = nested if kind.startswith("inside") else plain.cast(NANOSECONDS[kind])
    table = lake.create_table(f"nanoseconds_{len(lake.tables())}", pa.table({"i": [1], "v": ["a"], "at": values}))
    with pytest.raises(IllegalArgumentException) as refused:
        sql.sql(statement.replace("{t}", f"lake.{table.name}"))
    error = typed(refused.value)
    assert isinstance(error, conroi.UnsupportedError), refused.value
    assert "nanoseconds" in error.message
    assert lake[table.name].version == table.version
    merge = f"MERGE INTO lake.{table.name} t USING (SELECT 2L i) s ON t.i = s.i"
    sql.sql(f"{merge} WHEN NOT MATCHED THEN INSERT (i, v) VALUES (2, 'b')")
    sql.sql(f"DELETE FROM lake.{table.name} WHERE length(v) + i = 3")
    assert lance.dataset(table.uri).to_table()["at"].combine_chunks().equals(values)
