from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import conroi
from tests.cli.conftest import Run


def test_a_select_over_tables_and_namespaces(cli: Run, lake: conroi.Lake) -> None:
    text = "SELECT c.name, o.amount FROM sales.customers c JOIN orders o ON o.id = c.n"
    assert cli("sql", "lake", text).out == "name  amount\nAda      0.5\n"
    assert cli("sql", "lake", text, "--json").rows == [{"name": "Ada", "amount": 0.5}]
    assert cli("sql", "lake", 'SELECT count(*) AS n FROM "sales.customers"', "--json").rows == [{"n": 2}]


def test_all_tables_are_read_at_one_version(cli: Run, lake: conroi.Lake) -> None:
    assert cli("sql", "lake@2", "SELECT count(*) AS n FROM orders", "--json").rows == [{"n": 10}]
    gone = cli("sql", "lake@2", "SELECT * FROM sales.customers")
    assert gone.code == 1
    assert "The lake has orders." in gone.err


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("i = 2", [2]),
        ("s = 'b' OR i > 2", [1, 3]),
        ("d >= DATE '2026-01-03'", [2, 3]),
        ("t < TIMESTAMPTZ '2026-01-01 02:00:00+00'", [0, 1]),
        ("m = 1.50", [3]),
        ("b", [0, 2]),
        ("NOT b", [1, 3]),
        ("deep.a = 3", [3]),
        ("s IS NULL", [3]),
        ("f > 1.5", [2, 3]),
        ("s IN ('a', 'c') AND i < 2", [0]),
        ("list_contains(l, 2)", [2]),
        ("i + 1 = 2", [1]),
    ],
)
def test_conditions_on_every_type(cli: Run, lake: conroi.Lake, condition: str, ids: list[int]) -> None:
    rows = {
        "i": pa.array(range(4)),
        "s": pa.array(["a", "b", "c", None]),
        "d": pa.array([datetime.date(2026, 1, n + 1) for n in range(4)]),
        "t": pa.array(
            [datetime.datetime(2026, 1, 1, n, tzinfo=datetime.UTC) for n in range(4)], pa.timestamp("us", "UTC")
        ),
        "m": pa.array([Decimal(n) / 2 for n in range(4)], pa.decimal128(10, 2)),
        "b": pa.array([True, False, True, False]),
        "deep": pa.array([{"a": n} for n in range(4)]),
        "f": pa.array([float(n) for n in range(4)]),
        "l": pa.array([[n, 9] for n in range(4)]),
    }
    lake.create_table("kinds", pa.table(rows))
    found = cli("sql", "lake", f"SELECT i FROM kinds WHERE {condition} ORDER BY i", "--json").rows
    assert [row["i"] for row in found] == ids


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM orders",
        "CREATE TABLE x (a INT)",
        "COPY orders TO 'stolen.csv'",
        "ATTACH 'other.db'",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('lake/__manifest/x')",
        "SELECT * FROM 'some.parquet'",
        "INSTALL httpfs",
        "SELECT FROM WHERE",
    ],
)
def test_anything_but_one_select_on_the_lake_is_refused(cli: Run, lake: conroi.Lake, text: str) -> None:
    ran = cli("sql", "lake", text)
    assert ran.code == 1
    assert "hint: " in ran.err
    assert lake.version == 4


def test_a_long_answer_is_cut_on_the_screen_and_whole_as_json(cli: Run, lake: conroi.Lake) -> None:
    text = "SELECT * FROM range(250)"
    shown = cli("sql", "lake", text)
    assert len(shown.out.splitlines()) == 101
    assert "--json all" in shown.err
    assert len(cli("sql", "lake", text, "--json").rows) == 250
    assert len(cli("sql", "lake", text, "-n", 7).out.splitlines()) == 8


def test_numbers_that_json_does_not_have_become_null(cli: Run, lake: conroi.Lake) -> None:
    assert cli("sql", "lake", "SELECT 'nan'::DOUBLE AS x, [1.0, 'inf'::DOUBLE] AS y", "--json").rows == [
        {"x": None, "y": [1.0, None]}
    ]


def test_two_columns_of_one_name_are_both_there(cli: Run, lake: conroi.Lake) -> None:
    (row,) = cli("sql", "lake", "SELECT 1 AS a, 2 AS a", "--json").rows
    assert sorted(row.values()) == [1, 2]
