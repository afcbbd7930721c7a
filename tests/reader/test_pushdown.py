"""Lazy scans for DuckDB and polars: the same rows as without pushdown, and fewer bytes read."""

# ruff: noqa: SIM300 (polars has both orders)

from __future__ import annotations

import datetime
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import conroi
from conroi.data import scans
from conroi.data.scans import to_lance_filter

pytestmark = pytest.mark.contract("E2")

KINDS = pa.table(
    {
        "i": pa.array([0, 1, 2, 3, None, 5], pa.int64()),
        "small": pa.array([0, 1, -128, 127, None, 5], pa.int8()),
        "u": pa.array([0, 1, 2**64 - 1, 3, None, 5], pa.uint64()),
        "s": pa.array(["a", "it's", "", None, "é", "A"]),
        "f": pa.array([0.0, -0.0, math.nan, math.inf, None, -1.5]),
        "g": pa.array([0.0, -0.0, math.nan, math.inf, None, -1.5], pa.float32()),
        "d": pa.array([datetime.date(2026, 1, n + 1) for n in range(5)] + [None]),
        "t": pa.array([datetime.datetime(2026, 1, 1, n) for n in range(5)] + [None], pa.timestamp("us")),
        "z": pa.array([n * 3_600_000 for n in range(5)] + [None], pa.timestamp("ms", "UTC")),
        "m": pa.array([Decimal(n) / 2 for n in range(5)] + [None], pa.decimal128(10, 2)),
        "o": pa.array([True, False, None, True, False, None]),
        "deep": pa.array([{"a": n} for n in range(6)]),
        "l": pa.array([[n, 9] for n in range(6)]),
        "order id": pa.array(range(6)),
    }
)


@pytest.fixture
def kinds(uri: str) -> conroi.Table:
    return conroi.create_table(uri, KINDS)


CONDITIONS = [
    "i = 2", "i > 1 AND i < 5", "i IS NULL", "i IS NOT NULL", "i <> 2", "i IN (1, 5, 9)", "NOT (i > 1)", "i = 2.0",
    "small = -128", "u > 3", "u = 18446744073709551615", "s = 'it''s'", "s > 'a'", "s = ''", "s LIKE 'i%'", "s IS NULL",
    "f > 0", "f >= 0", "f = 0", "f = -0.0", "f <> 0", "f < 0", "isnan(f)", "f = 'nan'::DOUBLE", "g > 0", "g = 0",
    "g = 'nan'::FLOAT", "d >= DATE '2026-01-03'", "t < TIMESTAMP '2026-01-01 02:00:00'",
    "z < TIMESTAMPTZ '1970-01-01 02:00:00+00'", "m = 1.50", "m > 0.5", "o", "NOT o", "o IS NULL", "deep.a = 3",
    "list_contains(l, 2)", '"order id" = 4', "i > 1 OR s = 'a'", "i + 1 = 2", "i > 1 AND f > 0", "false",
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_duckdb_gets_the_rows_that_it_gets_from_memory(kinds: conroi.Table, condition: str):
    scanned = kinds.to_duckdb()  # DuckDB looks up names of Python
    assert scanned.columns == KINDS.column_names
    text = f'SELECT "order id", s FROM {{}} WHERE {condition} ORDER BY 1'
    assert duckdb.sql(text.format("scanned")).fetchall() == duckdb.sql(text.format("KINDS")).fetchall()
    text = f"SELECT count(*) FROM {{}} WHERE {condition}"
    assert duckdb.sql(text.format("scanned")).fetchall() == duckdb.sql(text.format("KINDS")).fetchall()


def _polars_conditions() -> dict[str, pl.Expr]:
    c = pl.col
    given = [
        c("i") == 2, (c("i") > 1) & (c("i") < 5), c("i").is_null(), c("i").is_not_null(), c("i") != 2,
        c("i").is_in([1, 5, 9]), ~(c("i") > 1), c("i") == 2.0, 2 > c("i"), c("small") == -128, c("small") < 300,
        c("u") > 3, c("u") == 2**64 - 1, c("s") == "it's", c("s") > "a", c("s") == "", c("s").str.starts_with("i"),
        c("f") > 0, c("f") >= 0.0, c("f") == 0.0, c("f") != 0, c("f") < 0, c("f") > -1.0, c("f") > 1, c("f").is_nan(),
        c("f") == math.nan, c("f") <= 1e300, c("g") > 1, c("g") == 0, c("d") >= datetime.date(2026, 1, 3),
        c("t") < datetime.datetime(2026, 1, 1, 2), c("o"), ~c("o"), c("o") == True, c("o").is_null(),  # noqa: E712
        c("deep").struct.field("a") == 3, c("l").list.contains(2), c("order id") == 4, (c("i") > 1) | (c("s") == "a"),
        c("i").is_between(1, 3), c("i").is_between(1, 3, closed="none"), c("i").eq_missing(None),
        (c("i") > 1) & (c("f") > 1) & c("s").is_in(["a", "A"]), pl.lit(False), c("i") > c("small"),
        c("m") > Decimal("0.5"), (c("i") + 1) == 2, pl.len() > 3,
    ]  # fmt: skip
    return {str(each): each for each in given}


@pytest.mark.parametrize("name", _polars_conditions())
def test_polars_gets_the_rows_that_it_gets_from_memory(kinds: conroi.Table, name: str):
    condition = _polars_conditions()[name]
    lazy, plain = kinds.to_polars_lazy(), pl.DataFrame(KINDS).lazy()
    for ask in (
        lambda rows: rows.filter(condition),
        lambda rows: rows.filter(condition).select("s"),
        lambda rows: rows.filter(condition).select(pl.len()),
        lambda rows: rows.filter(condition).head(1),
    ):
        assert ask(lazy).collect().equals(ask(plain).collect(), null_equal=True)


@pytest.mark.parametrize(
    ("condition", "pushed"),
    [
        (pl.col("i") > 1, "`i` > 1"),
        ((pl.col("i") > 1) & pl.col("s").str.starts_with("i"), "(`i` > 1)"),
        (pl.col("s") == "it's", "`s` = 'it''s'"),
        (pl.col("f") < 1.5, "(`f` < 1.5 OR isnan(`f`))"),
        (pl.col("f") < 0, None),
        ((pl.col("i") > 1) | pl.col("s").str.starts_with("i"), None),
        (pl.col("o").is_null(), "`o` IS NULL"),
    ],
)
def test_what_polars_pushes_down(condition: pl.Expr, pushed: str | None):
    assert to_lance_filter(condition, KINDS.schema) == pushed


def test_only_the_columns_and_rows_that_a_query_needs_are_read(kinds: conroi.Table, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[Any, Any]] = []
    real = scans.Scan.reader

    def noted(self: scans.Scan, columns: Any = None, filter: Any = None, **options: Any) -> pa.RecordBatchReader:
        if "limit" not in options:
            asked.append((columns, None if filter is None else str(filter)))
        return real(self, columns, filter, **options)

    monkeypatch.setattr(scans.Scan, "reader", noted)
    scanned = kinds.to_duckdb()
    assert scanned.columns == KINDS.column_names
    assert duckdb.sql("SELECT s FROM scanned WHERE i = 2").fetchall() == [("",)]
    columns, filter = asked.pop()
    assert sorted(columns) == ["i", "s"]
    assert "i" in filter and "2" in filter  # noqa: PT018
    assert kinds.to_polars_lazy().filter(pl.col("i") == 2).select("s").collect().rows() == [("",)]
    assert [(sorted(columns), filter) for columns, filter in asked] == [(["i", "s"], "`i` = 2")]


def test_a_scan_stays_at_its_version_also_inside_a_transaction(lake: conroi.Lake):
    orders = lake["orders"]
    lazy, relation = orders.to_polars_lazy(), orders.to_duckdb()
    lake["orders"].delete("true")
    assert (lazy.collect().height, relation.columns) == (10, orders.schema.names)
    assert duckdb.sql("SELECT count(*) FROM relation").fetchall() == [(10,)]
    with lake.begin() as tx:
        tx["orders"].append([{"id": 7, "name": "a", "amount": 1.0}])
        staged = tx["orders"].to_duckdb()
        lazy = tx["orders"].to_polars_lazy()
        tx["orders"].append([{"id": 8, "name": "a", "amount": 1.0}])
        assert staged.columns == orders.schema.names
        assert duckdb.sql("SELECT id FROM staged").fetchall() == [(7,)]
        assert lazy.collect()["id"].to_list() == [7]


def test_a_relation_belongs_to_the_connection_that_is_given(lake: conroi.Lake):
    connection = duckdb.connect()
    relation = lake["orders"].to_duckdb(connection)
    assert relation.filter("id = 3").project("name").fetchall() == [("n3",)]
    relation.create_view("orders")
    assert connection.sql("SELECT count(*) FROM orders").fetchall() == [(10,)]


def test_a_polars_without_what_a_lazy_scan_needs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polars.io import plugins

    table = conroi.create_table(tmp_path / "t.lance", [{"id": 1}])
    monkeypatch.setattr(plugins, "register_io_source", lambda io_source, schema: None)  # as in polars 1.20
    with pytest.raises(conroi.UnsupportedError, match="too old for lazy scans"):
        table.to_polars_lazy()
    monkeypatch.setitem(sys.modules, "polars.io.plugins", None)
    with pytest.raises(conroi.UnsupportedError, match="not installed, or too old"):
        table.to_polars_lazy()
