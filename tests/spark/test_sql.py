"""SQL over the tables of a lake: queries are Spark's, changes are the tables' own verbs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp, parse_one

import conroi
from conroi.errors import (
    DuplicateKeyError,
    ExpectedVersionMismatch,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from conroi.spark.expressions import NotSimple, simple_condition
from conroi.spark.sql import Statement
from conroi.spark.sql.changes import _qualified, executed
from conroi.spark.sql.references import Reference, found_column, frame, narrow, parsed, references
from tests.spark.support import without_connector


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake")
    orders = pa.table({"id": [1, 2, 3], "amount": [5.0, 7.0, 9.0], "name": ["ada", "bob", None]})
    items = pa.table({"order_id": [1, 1, 2], "n": pa.array([1, 2, 3], pa.int32())})
    with lake.begin("begin") as tx:
        tx.create_table("orders", orders, key="id")
        tx.create_table("sales.items", items)
    return lake


def rows(answer: Any) -> list[tuple[Any, ...]]:
    assert isinstance(answer, DataFrame)
    return [tuple(row) for row in answer.collect()]


def seen_by_pylance(lake: conroi.Lake, name: str) -> list[dict[str, Any]]:
    table = lake[name]
    read = lance.dataset(table.uri, version=table.version).to_table().to_pylist()
    return sorted(read, key=lambda row: tuple(str(value) for value in row.values()))


# ------------------------------------------------------------------------------------- SELECT


@pytest.mark.contract("S1")
def test_a_query_joins_tables_of_the_lake_and_views_of_spark(spark: SparkSession, lake: conroi.Lake, way: str) -> None:
    del way
    spark.createDataFrame([(1, "x"), (2, "y")], "id long, tag string").createOrReplaceTempView("tags_of_spark")
    answer = lake.sql(
        spark,
        """
        WITH totals AS (SELECT order_id, sum(n) AS n FROM sales.items GROUP BY order_id)
        SELECT orders.name, totals.n, t.tag, '{braces}' FROM Orders
        JOIN totals ON totals.order_id = orders.id JOIN tags_of_spark t ON t.id = orders.id ORDER BY 1
        """,
    )
    assert rows(answer) == [("ada", 3, "x", "{braces}"), ("bob", 3, "y", "{braces}")]


@pytest.mark.contract("S1", "P2")
def test_all_tables_of_a_query_are_at_one_version_of_the_lake(spark: SparkSession, lake: conroi.Lake, way: str) -> None:
    del way
    query = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM sales.items)"
    answer, before = lake.sql(spark, query), lake.version
    with lake.begin() as tx:
        tx["orders"].append([{"id": 4, "amount": 1.0, "name": "new"}])
        tx["sales.items"].append([{"order_id": 4, "n": 1}])
    assert rows(answer) == [(3, 3)]
    assert rows(lake.sql(spark, query)) == [(4, 4)]
    assert rows(lake.at(version=before).sql(spark, query)) == [(3, 3)]


@pytest.mark.contract("S1")
def test_a_table_can_be_asked_for_as_it_was(spark: SparkSession, lake: conroi.Lake, way: str) -> None:
    del way
    lake["orders"].tags.create("first")
    lake["orders"].delete("id = 1")
    for clause in ("VERSION AS OF 1", "FOR VERSION AS OF 1", "VERSION AS OF 'first'"):
        query = f"SELECT old.id FROM orders {clause} AS old LEFT ANTI JOIN orders ON old.id = orders.id"
        assert rows(lake.sql(spark, query)) == [(1,)]
    moment = lake["orders"].at(1).history()[0].timestamp.isoformat()
    assert rows(lake.sql(spark, f"SELECT count(*) FROM orders TIMESTAMP AS OF '{moment}'")) == [(3,)]
    with pytest.raises(InvalidInputError, match="cannot be understood"):
        lake.sql(spark, "SELECT * FROM orders VERSION AS OF 1 + 1")


class _Opened:
    """A lake for the query, which remembers what was asked of it."""

    def __init__(self, lake: conroi.Lake) -> None:
        self._lake = lake

    def names(self) -> list[str]:
        return self._lake.tables()

    def __contains__(self, name: str) -> bool:
        return name in self._lake

    def open(self, name: str, version: Any = None, tag: Any = None, as_of: Any = None) -> conroi.Table:
        return self._lake.table(name, version, tag=tag, as_of=as_of)


def narrowed(lake: conroi.Lake, query: str) -> dict[str, Reference]:
    tree = parsed(query)
    found = references(tree, _Opened(lake))
    narrow(tree, found)
    return {each.alias: each for each in found}


@pytest.mark.contract("S1")
def test_a_query_reads_only_the_columns_and_rows_that_it_needs(lake: conroi.Lake) -> None:
    found = narrowed(
        lake, "SELECT o.name FROM orders o JOIN sales.items i ON o.id = i.order_id WHERE o.id > 1 AND n < 3"
    )
    assert (found["o"].columns, found["o"].filter) == (["id", "name"], "(`id` > 1)")
    assert (found["i"].columns, found["i"].filter) == (["order_id", "n"], "(`n` < 3)")
    assert narrowed(lake, "SELECT count(*) FROM orders")["orders"].columns == []
    assert narrowed(lake, "SELECT * FROM orders")["orders"].columns == ["id", "amount", "name"]


@pytest.mark.contract("S1")
def test_a_query_that_only_counts_reads_no_data(spark: SparkSession, lake: conroi.Lake, way: str) -> None:
    del way
    lake["orders"].delete("id = 1")
    for path in (Path(lake.uri) / "orders.lance" / "data").iterdir():
        path.unlink()
    counting = "SELECT count(*), (SELECT count(*) FROM sales.items) FROM orders o CROSS JOIN orders p"
    assert rows(lake.sql(spark, counting)) == [(4, 3)]
    alone = lake.sql(spark, "SELECT count(*) AS `how many` FROM orders o")
    assert isinstance(alone, DataFrame)
    assert (alone.dtypes, rows(alone)) == ([("how many", "bigint")], [(2,)])
    assert rows(lake.sql(spark, "SELECT count(*) FROM orders LIMIT 0")) == []
    assert rows(lake.sql(spark, "SELECT count(*) FROM orders HAVING count(*) > 2")) == []
    assert rows(lake.sql(spark, "SELECT count(*) FROM orders TABLESAMPLE (0 PERCENT) AS o")) == [(0,)]
    with pytest.raises(Exception, match=r"(?i)not found"):
        rows(lake.sql(spark, "SELECT count(name) FROM orders"))


def test_a_condition_behind_an_outer_join_narrows_only_the_side_that_keeps_its_rows(lake: conroi.Lake) -> None:
    query = "SELECT 1 FROM orders o LEFT JOIN sales.items i ON o.id = i.order_id WHERE {}"
    assert narrowed(lake, query.format("i.n IS NULL"))["i"].filter is None
    assert narrowed(lake, query.format("o.id = 1"))["o"].filter == "(`id` = 1)"
    full = query.replace("LEFT", "FULL")
    assert narrowed(lake, full.format("o.id = 1"))["o"].filter is None


def test_a_condition_on_a_part_with_a_name_narrows_nothing_but_that_part(
    spark: SparkSession, lake: conroi.Lake
) -> None:
    query = "WITH orders AS (SELECT * FROM orders WHERE id < 3) SELECT id FROM orders WHERE id > 1"
    assert rows(lake.sql(spark, query)) == [(2,)]
    assert rows(lake.sql(spark, "SELECT id FROM orders WHERE id = 1 UNION ALL SELECT id FROM orders WHERE id = 3")) == [
        (1,),
        (3,),
    ]
    correlated = "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM sales.items i WHERE i.order_id = o.id AND n = 3)"
    assert rows(lake.sql(spark, correlated)) == [(2,)]


# ------------------------------------------------------------------ what Lance and Spark both understand

EDGES = pa.table(
    {
        "i": pa.array([-2, 0, 1, 5, None, 127, 3], pa.int8()),
        "l": pa.array([-(2**62), 0, 1, 5, None, 2**53 + 1, 3], pa.int64()),
        "d": pa.array([float("nan"), -0.0, 0.0, 1.5, None, float("inf"), float("-inf")]),
        "m": pa.array([-float("nan"), -1.5, 2.5, 1.5, None, 0.1, 5.0]),
        "s": pa.array(["", "a", "A", "it's", None, "a%b", "ab"]),
        "b": pa.array([True, False, True, None, None, False, True]),
        "t": pa.array(
            [date(2026, 1, 1), date(1969, 12, 31), None, date(2026, 1, 2), None, date(9999, 1, 1), date(2025, 5, 5)]
        ),
    }
)
CONDITIONS = [
    *("i > 1", "i >= 127", "i <> 5", "i = -2", "i + 1 > 2", "i * 2 - 1 <= 9", "i % 2 = 1", "i % -2 = 0", "i IS NULL"),
    *("i IS NOT NULL", "NOT i > 1", "i IN (1, 5, -2)", "i NOT IN (1, 5)", "i BETWEEN 0 AND 5", "i NOT BETWEEN 0 AND 5"),
    *("l > 9007199254740992", "l < -4611686018427387903", "l + i > 4", "d > 1.0", "d >= 1.5", "d < 1.0", "d <> 1.5"),
    *("d = 1.5", "1.0 < d", "1.0 > d", "m > 1.0", "m < 1.0", "m <= 0.1", "m >= -1.5", "m IN (1.5, 5.0)", "NOT m > 1.0"),
    *("m BETWEEN -2.0 AND 2.0", "s = 'it\\'s'", "s > 'A'", "s LIKE 'a%'", "s LIKE '_'", "s IN ('', 'ab')", "s <> ''"),
    *("s || 'x' = 'ax'", "b", "NOT b", "b = FALSE", "b AND i > 0", "b OR i > 0", "t > '2026-01-01'", "TRUE", "-i > 1"),
    *("t = DATE '2026-01-02'", "t < DATE '1970-01-01'", "t IN ('2026-01-01', '2025-05-05')", "coalesce(i, 3) = 3"),
    *(
        "coalesce(s, 'z') = 'z'",
        "CAST(i AS DOUBLE) > 1.5",
    ),
    *("CAST(i AS BIGINT) * 1000 > 2000", "(i > 1 OR s = 'a') AND (b OR t IS NULL)"),
]
REFUSED = [
    *("i / 2 = 1", "d = 0.0", "d > 0", "d > m", "upper(s) = 'A'", "i > 1.5", "l > 1.5", "i > 300", "s > 1", "i = '1'"),
    *("t > 'yesterday'", "t > timestamp '2026-01-01'", "s LIKE 'a\\\\%'", "i IN (SELECT 1)", "i IS TRUE", "i <=> 1"),
    *(
        "CAST(s AS INT) = 1",
        "s RLIKE 'a'",
        "d + i > 1",
        "nope = 1",
        "i = NULL",
        "l > 9223372036854775808",
        "b > 1",
        "CASE WHEN b THEN 1 END = 1",
    ),
]


def written(condition: str) -> str:
    node = parse_one(condition, dialect="spark")
    for column in node.find_all(exp.Column):
        column.set("table", exp.to_identifier("x"))
    return simple_condition(node, lambda column: found_column(column, EDGES.schema, "x"))


@pytest.mark.contract("S1")
def test_what_is_handed_to_lance_finds_the_rows_that_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "edges.lance", EDGES.append_column("row", pa.array(range(len(EDGES)))))
    by_spark = table.to_spark(spark).selectExpr("row", *(f"({text}) AS c{n}" for n, text in enumerate(CONDITIONS)))
    answers = by_spark.toArrow().to_pylist()
    for number, condition in enumerate(CONDITIONS):
        expected = sorted(row["row"] for row in answers if row[f"c{number}"])
        found: list[Any] = table.to_arrow(columns=["row"], filter=written(condition))["row"].to_pylist()
        assert sorted(found) == expected, condition


@pytest.mark.parametrize("condition", REFUSED)
def test_what_might_mean_something_else_is_not_handed_to_lance(condition: str) -> None:
    with pytest.raises(NotSimple):
        written(condition)


# ------------------------------------------------------------------------------------- changes


@pytest.mark.contract("S4", "W1")
def test_insert_by_place_by_name_and_instead_of_what_is_there(spark: SparkSession, lake: conroi.Lake) -> None:
    assert lake.sql(spark, "INSERT INTO orders VALUES (4, 1, 'eve'), (5, 2.5, NULL)") == Statement(
        "INSERT", "orders", 2
    )
    assert lake.sql(spark, "INSERT INTO orders (NAME, id) SELECT name, id + 10 FROM orders WHERE id = 4") == Statement(
        "INSERT", "orders", 1
    )
    lake.sql(spark, "INSERT INTO orders BY NAME SELECT 'zoe' AS name, 20 AS id")
    replaced = lake.sql(spark, "INSERT INTO orders REPLACE WHERE id >= 10 SELECT 30, 3, 'new'")
    assert replaced == Statement("INSERT", "orders", rows_inserted=1, rows_deleted=2)
    assert [row["id"] for row in sorted(seen_by_pylance(lake, "orders"), key=lambda row: row["id"])] == [
        1,
        2,
        3,
        4,
        5,
        30,
    ]
    assert lake["orders"].to_arrow(filter="id = 4").to_pylist() == [{"id": 4, "amount": 1.0, "name": "eve"}]
    lake.sql(spark, "INSERT OVERWRITE sales.items WITH a AS (SELECT 7 AS x) SELECT x, x FROM a")
    assert seen_by_pylance(lake, "sales.items") == [{"order_id": 7, "n": 7}]


@pytest.mark.contract("K1")
def test_insert_of_a_key_that_is_there_is_refused_and_changes_nothing(spark: SparkSession, lake: conroi.Lake) -> None:
    before = lake.version
    with pytest.raises(DuplicateKeyError):
        lake.sql(spark, "INSERT INTO orders VALUES (1, 1, 'again')")
    assert lake.version == before


@pytest.mark.contract("S3")
def test_update_with_what_lance_understands_and_with_what_only_spark_does(
    spark: SparkSession, lake: conroi.Lake
) -> None:
    done = lake.sql(
        spark, "UPDATE orders AS o SET amount = o.amount * 2.0, name = 'x' WHERE o.id < 3 AND name LIKE 'a%'"
    )
    assert done == Statement("UPDATE", "orders", rows_updated=1)
    query = """
        UPDATE orders SET name = concat(upper(name), '!'), amount = (SELECT max(n) FROM sales.items)
        WHERE id IN (SELECT order_id FROM sales.items)
    """
    assert lake.sql(spark, query) == Statement("UPDATE", "orders", rows_updated=2)
    assert seen_by_pylance(lake, "orders") == [
        {"id": 1, "amount": 3.0, "name": "X!"},
        {"id": 2, "amount": 3.0, "name": "BOB!"},
        {"id": 3, "amount": 9.0, "name": None},
    ]
    before = lake.version
    assert lake.sql(spark, "UPDATE orders SET name = 'y' WHERE id = 99") == Statement("UPDATE", "orders")
    assert lake.version == before


@pytest.mark.contract("S3")
def test_delete_with_what_lance_understands_and_with_what_only_spark_does(
    spark: SparkSession, lake: conroi.Lake
) -> None:
    assert lake.sql(spark, "DELETE FROM orders WHERE amount > 8.0") == Statement("DELETE", "orders", rows_deleted=1)
    done = lake.sql(
        spark, "DELETE FROM orders o WHERE NOT EXISTS (SELECT 1 FROM sales.items i WHERE i.order_id = o.id - 1)"
    )
    assert done == Statement("DELETE", "orders", rows_deleted=1)
    assert [row["id"] for row in seen_by_pylance(lake, "orders")] == [2]
    assert lake.sql(spark, "DELETE FROM sales.items") == Statement("DELETE", "sales.items", rows_deleted=3)


@pytest.mark.contract("S3")
def test_merge_into_with_all_kinds_of_clauses(spark: SparkSession, lake: conroi.Lake) -> None:
    lake.sql(spark, "INSERT INTO orders VALUES (4, 4, 'd'), (5, 5, 'e'), (6, 6, 'f')")
    done = lake.sql(
        spark,
        """
        MERGE INTO orders AS t
        USING (SELECT order_id + 0 AS number, count(*) AS c, 'u' AS op FROM sales.items GROUP BY 1
               UNION ALL SELECT 3, 0, 'd' UNION ALL SELECT 8, 1, 'i' UNION ALL SELECT 9, 1, 'skip') AS s
        ON s.number = t.id
        WHEN MATCHED AND op = 'd' THEN DELETE
        WHEN MATCHED AND s.c >= t.id THEN UPDATE SET amount = t.amount + 0.5, name = initcap(s.op)
        WHEN MATCHED THEN UPDATE SET t.name = t.name || '?'
        WHEN NOT MATCHED AND s.op <> 'skip' THEN INSERT (id, name) VALUES (s.number, concat('n', c))
        WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.id < 6 THEN UPDATE SET amount = 0.0
        """,
    )
    assert done == Statement("MERGE", "orders", rows_inserted=1, rows_updated=3, rows_deleted=2)
    assert seen_by_pylance(lake, "orders") == [
        {"id": 1, "amount": 5.5, "name": "U"},
        {"id": 2, "amount": 7.0, "name": "bob?"},
        {"id": 5, "amount": 0.0, "name": "e"},
        {"id": 6, "amount": 6.0, "name": "f"},
        {"id": 8, "amount": None, "name": "n1"},
    ]


@pytest.mark.contract("S3")
def test_merge_into_with_stars_from_another_table_of_the_lake(spark: SparkSession, lake: conroi.Lake) -> None:
    lake.create_table(
        "news", pa.table({"NAME": ["new", "bobby"], "id": [7, 2], "amount": pa.array([1, 2], pa.int16())})
    )
    merge = """MERGE INTO orders USING news ON orders.id = news.id
               WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    assert lake.sql(spark, merge) == Statement("MERGE", "orders", 1, 1)
    assert seen_by_pylance(lake, "orders")[1] == {"id": 2, "amount": 2.0, "name": "bobby"}
    with pytest.raises(InvalidInputError, match="source has no order_id, n"):
        lake.sql(
            spark,
            "MERGE INTO sales.items i USING news ON i.order_id = news.id WHEN MATCHED THEN UPDATE SET *",
        )


@pytest.mark.contract("S4", "W1")
def test_statements_of_a_transaction_see_each_other_and_happen_together(spark: SparkSession, lake: conroi.Lake) -> None:
    before = lake.version
    with lake.begin("all of it") as tx:
        tx.sql(spark, "INSERT INTO orders VALUES (4, 4, 'd')")
        tx["sales.items"].append([{"order_id": 4, "n": 9}])
        tx.sql(spark, "UPDATE orders SET amount = amount + 1.0 WHERE id = 4")
        joined = "SELECT o.amount, i.n FROM orders o JOIN sales.items i ON o.id = i.order_id WHERE o.id = 4"
        assert rows(tx.sql(spark, joined)) == [(5.0, 9)]
        assert rows(lake.sql(spark, joined)) == []
        assert lake.version == before
    assert lake.version == before + 1
    assert rows(lake.sql(spark, joined)) == [(5.0, 9)]
    tx = lake.begin()
    tx.sql(spark, "DELETE FROM orders")
    tx.rollback()
    assert lake.version == before + 1


@pytest.mark.contract("S3", "W2")
def test_a_statement_is_repeated_after_a_conflict(
    spark: SparkSession, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[int] = []

    def met_by_another(session: SparkSession, query: str, tables: Any) -> DataFrame:
        answer = frame(session, query, tables)
        if not met:
            met.append(1)
            lake["orders"].update({"amount": "amount + 100"}, "id = 1")
        return answer

    monkeypatch.setattr("conroi.spark.sql.changes.part_frame", met_by_another)
    lake.sql(spark, "UPDATE orders SET amount = abs(amount) + 1 WHERE id = 1")
    assert met
    assert lake["orders"].to_arrow(filter="id = 1")["amount"].to_pylist() == [106.0]


@pytest.mark.contract("P4")
def test_a_query_in_a_serializable_transaction_expects_only_the_tables_it_names(
    spark: SparkSession, lake: conroi.Lake
) -> None:
    tx = lake.begin(isolation="serializable")
    tx.sql(spark, "SELECT count(*) FROM orders")
    tx["sales.items"].append([{"order_id": 9, "n": 9}])
    lake.create_table("another", [{"a": 1}])
    tx.commit()
    tx = lake.begin(isolation="serializable")
    tx.sql(spark, "SELECT count(*) FROM orders")
    tx["sales.items"].append([{"order_id": 9, "n": 9}])
    lake["orders"].delete("id = 1")
    with pytest.raises(ExpectedVersionMismatch):
        tx.commit()


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        ("SELECT * FROM nope", NotFoundError, "Neither the lake nor Spark has a table"),
        ("SELECT nope FROM orders", InvalidInputError, "Spark refuses"),
        ("SELECT * FRM orders", InvalidInputError, "line 1, column"),
        ("SELECT 1; SELECT 2", InvalidInputError, "one statement"),
        ("", InvalidInputError, "one statement"),
        (7, InvalidInputError, "query=7"),
        ("DROP TABLE orders", UnsupportedError, "DROP"),
        ("SHOW TABLES", UnsupportedError, "SHOW"),
        ("INSERT INTO nope VALUES (1)", NotFoundError, "no table nope"),
        ("INSERT INTO orders VALUES (1)", InvalidInputError, "1 columns, where 3"),
        ("INSERT INTO orders (id, nope) VALUES (1, 2)", InvalidInputError, "no column"),
        ("INSERT INTO orders (id, id) VALUES (1, 2)", InvalidInputError, "columns, where"),
        ("INSERT OVERWRITE orders PARTITION (id = 1) SELECT 1, 'a'", UnsupportedError, "partitions"),
        ("UPDATE orders SET nope = 1", InvalidInputError, "no column"),
        ("UPDATE orders SET id = abs(id)", UnsupportedError, "key is changed"),
        ("UPDATE orders VERSION AS OF 1 SET id = 1", InvalidInputError, "cannot be changed"),
        ("DELETE FROM sales.items WHERE abs(n) = 1", UnsupportedError, "has no key"),
        (
            "MERGE INTO orders t USING orders s ON t.id > s.id WHEN MATCHED THEN DELETE",
            UnsupportedError,
            "which column",
        ),
        (
            "MERGE INTO orders t USING orders s ON id = s.id WHEN MATCHED THEN DELETE",
            InvalidInputError,
            "may be a column",
        ),
        (
            "MERGE INTO orders t USING orders s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = upper(t.name)",
            UnsupportedError,
            "Spark does not see",
        ),
        (
            "MERGE INTO orders t USING orders s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id, 2)",
            InvalidInputError,
            "1 columns and 2 values",
        ),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(
    spark: SparkSession,
    lake: conroi.Lake,
    monkeypatch: pytest.MonkeyPatch,
    query: Any,
    error: type[conroi.ConroiError],
    says: str,
) -> None:
    without_connector(monkeypatch)
    before = lake.version
    with pytest.raises(error, match=says) as caught:
        lake.sql(spark, query)
    assert caught.value.hint
    assert lake.version == before


@pytest.mark.contract("S19")
@pytest.mark.parametrize(
    ("statement", "done", "left"),
    [
        ("UPDATE orders SET id = abs(id) + 10", Statement("UPDATE", "orders", rows_updated=3), [11, 12, 13]),
        ("DELETE FROM Orders AS o WHERE abs(o.id) = 1", Statement("DELETE", "orders", rows_deleted=1), [2, 3]),
        (
            "DELETE FROM orders WHERE EXISTS (SELECT 1 FROM sales.items i WHERE i.order_id = orders.id)",
            Statement("DELETE", "orders", rows_deleted=2),
            [3],
        ),
        (
            "MERGE INTO orders t USING (WITH orders AS (SELECT 2L AS id UNION ALL SELECT 7L) SELECT * FROM orders) s "
            "ON t.id <= s.id AND t.id + 1 > s.id WHEN MATCHED THEN UPDATE SET name = upper(t.name) "
            "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'new') WHEN NOT MATCHED BY SOURCE AND t.id = 3 "
            "THEN DELETE",
            Statement("MERGE", "orders", rows_inserted=1, rows_updated=1, rows_deleted=1),
            [1, 2, 7],
        ),
    ],
)
def test_with_the_connector_spark_executes_what_the_verbs_cannot(
    spark: SparkSession, lake: conroi.Lake, statement: str, done: Statement, left: list[int]
) -> None:
    """In a transaction of this process, together with its other changes."""
    lake.create_table("log", [{"n": 0}])
    before = lake.version
    with lake.begin("both") as tx:
        tx["log"].append([{"n": 1}])
        assert tx.sql(spark, statement) == done
        assert sorted(row[0] for row in rows(tx.sql(spark, "SELECT id FROM orders"))) == left
        assert lake.version == before, "nothing is visible before the commit"
    assert lake.version == before + 1
    assert sorted(row["id"] for row in seen_by_pylance(lake, "orders")) == left
    assert len(seen_by_pylance(lake, "log")) == 2


@pytest.mark.contract("S19")
def test_a_conflict_of_a_statement_of_spark_is_retried(
    spark: SparkSession, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def executed_beside_another(*arguments: Any) -> Statement:
        answer = executed(*arguments)
        tried.append(1)
        if len(tried) == 1:
            lake["sales.items"].update({"n": "n + 100"}, "order_id = 2")
        return answer

    monkeypatch.setattr("conroi.spark.sql.executed", executed_beside_another)
    done = lake.sql(spark, "UPDATE sales.items SET n = abs(n) + 1")
    assert (done, len(tried)) == (Statement("UPDATE", "sales.items", rows_updated=3), 2)
    assert sorted(row["n"] for row in seen_by_pylance(lake, "sales.items")) == [2, 3, 104]


@pytest.mark.contract("S19")
def test_statements_of_several_threads_join_their_own_transactions(spark: SparkSession, lake: conroi.Lake) -> None:
    names = [f"t{number}" for number in range(4)]
    for name in names:
        lake.create_table(name, [{"v": name}])

    def change(name: str) -> None:
        with lake.begin(name) as tx:
            for _ in range(3):
                tx.sql(spark, f"UPDATE {name} SET v = concat(v, '.')")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(change, names))
    assert [seen_by_pylance(lake, name) for name in names] == [[{"v": f"{name}..."}] for name in names]


@pytest.mark.contract("S19")
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "DELETE FROM orders WHERE id IN (SELECT /*+ BROADCAST(other) */ id FROM other)",
            "DELETE FROM `C`.`orders` WHERE id IN (SELECT /*+ BROADCAST(other) */ id FROM `C`.`other`)",
        ),
        (
            "WITH other AS (SELECT * FROM other) MERGE INTO orders USING other ON orders.id = other.id "
            "WHEN MATCHED THEN DELETE",
            "WITH other AS (SELECT * FROM `C`.`other`) MERGE INTO `C`.`orders` USING other ON orders.id = other.id "
            "WHEN MATCHED THEN DELETE",
        ),
        (
            "DELETE FROM ORDERS WHERE id IN (WITH other AS (SELECT 1 id) SELECT id FROM other) "
            "AND s <> 'FROM other' AND id IN (SELECT id FROM `Other` o)",
            "DELETE FROM `C`.`orders` WHERE id IN (WITH other AS (SELECT 1 id) SELECT id FROM other) "
            "AND s <> 'FROM other' AND id IN (SELECT id FROM `C`.`other` o)",
        ),
    ],
)
def test_only_names_of_tables_of_the_lake_become_names_of_the_catalog(statement: str, expected: str) -> None:
    assert _qualified(statement, parsed(statement), _Named(), "C") == expected


class _Named:
    """The names of two tables."""

    def names(self) -> list[str]:
        return ["orders", "other"]

    def __contains__(self, name: str) -> bool:
        return name in self.names()

    def open(self, name: str, *_: Any, **__: Any) -> Any:
        raise AssertionError(name)


@pytest.mark.contract("S19")
def test_an_unknown_function_is_named_in_the_error(spark: SparkSession, lake: conroi.Lake) -> None:
    with pytest.raises(InvalidInputError, match="uper"):
        lake.sql(spark, "UPDATE sales.items SET n = uper(n)")


@pytest.mark.contract("S19")
def test_statements_of_one_transaction_that_change_the_same_rows_at_once_are_a_conflict(
    spark: SparkSession, lake: conroi.Lake
) -> None:
    """Both computed new rows from the same old one, which then was there twice."""
    tx = lake.begin()
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(tx.sql, spark, "UPDATE sales.items SET n = abs(n) + 10") for _ in range(2)]
        errors = [each.exception() for each in both]
    found = sorted(row[0] for row in rows(tx.sql(spark, "SELECT n FROM sales.items")))
    tx.rollback()
    if any(errors):
        assert isinstance(next(filter(None, errors)), conroi.RetryableConflict)
        assert found == [11, 12, 13]
    else:  # one after the other
        assert found == [21, 22, 23]
