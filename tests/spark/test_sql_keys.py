"""MERGE with keys of two types: the rows that match are those that Spark's own join finds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import conroi
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.merge.plan_choice import Way
from tests.support.arrow import column_values
from tests.support.sampling import sampled

NAN = float("nan")


@dataclass(frozen=True)
class Case:
    """Keys of the table and of the source, and by number which pairs are equal in Spark, written by hand."""

    stored: pa.DataType
    mine: list[Any]
    spark_type: str
    """The table's type as Spark calls it."""
    theirs: list[str]
    """Keys of the source in Spark SQL."""
    equal: set[tuple[int, int]]


CASES = {
    "int and bigint": Case(pa.int32(), [1, 2, -1], "INT", ["1L", "4294967297L", "4294967295L"], {(0, 0)}),
    "bigint and int": Case(pa.int64(), [1, 2], "BIGINT", ["1", "3"], {(0, 0)}),
    "int and double": Case(pa.int32(), [1, 2], "INT", ["1.5D", "2.0D", "0.9999D"], {(1, 1)}),
    "int and decimal": Case(pa.int64(), [1, 2], "BIGINT", ["1.50BD", "2.00BD", "99999999999999999999BD"], {(1, 1)}),
    "decimals": Case(
        pa.decimal128(10, 2), [Decimal("1.50"), Decimal("2.00")], "DECIMAL(10,2)", ["1.504BD", "2.000BD"], {(1, 1)}
    ),
    "float and double": Case(pa.float32(), [0.1, 0.5], "FLOAT", ["0.1D", "0.5D"], {(1, 1)}),
    "double and float": Case(pa.float64(), [0.1, 0.5], "DOUBLE", ["0.1F", "0.5F"], {(1, 1)}),
    "double and double": Case(
        pa.float64(), [-0.0, NAN, 2.0], "DOUBLE", ["0.0D", "double('NaN')", "3.0D"], {(0, 0), (1, 1)}
    ),
    "text and int": Case(pa.string(), ["01", "1", "2"], "STRING", ["1"], {(0, 0), (1, 0)}),
    "int and text": Case(pa.int32(), [1, 12], "INT", ["'01'", "' 12 '"], {(0, 0), (1, 1)}),
    "text and double": Case(pa.string(), ["1e0", "2"], "STRING", ["1.0D", "3.0D"], {(0, 0)}),
    "date and text": Case(pa.date32(), [date(2026, 1, 2)], "DATE", ["'2026-01-02'", "'2026-01-03'"], {(0, 0)}),
    "date and timestamp": Case(
        pa.date32(), [date(2026, 1, 2)], "DATE", ["TIMESTAMP_NTZ '2026-01-02 00:00:00'"], {(0, 0)}
    ),
    "milliseconds": Case(
        pa.timestamp("ms"),
        [datetime(2026, 1, 2, 3, 4, 5, 6000)],
        "TIMESTAMP_NTZ",
        ["TIMESTAMP_NTZ '2026-01-02 03:04:05.006'", "TIMESTAMP_NTZ '2026-01-02 03:04:05.006001'"],
        {(0, 0)},
    ),
    "unsigned and smallint": Case(pa.uint8(), [1, 255], "SMALLINT", ["255S", "-1S", "256S"], {(1, 0)}),
    "unsigned and bigint": Case(pa.uint64(), [1, 2**64 - 1], "DECIMAL(20,0)", ["1L", "-1L"], {(0, 0)}),
}


def joined_by_spark(spark: SparkSession, case: Case) -> set[tuple[int, int]]:
    """What Spark's own join finds, over views of the same values."""
    is_decimal = case.spark_type.startswith("DECIMAL")
    keys = [Decimal(key) for key in case.mine] if is_decimal else case.mine
    frame = spark.createDataFrame([(key, n) for n, key in enumerate(keys)], f"k {case.spark_type}, n INT")
    frame.createOrReplaceTempView("keys_of_table")
    found = spark.sql("SELECT t.n, s.m FROM keys_of_table t JOIN keys_of_source s ON t.k = s.k").collect()
    return {(row[0], row[1]) for row in found}


@pytest.mark.contract("S8")
@pytest.mark.parametrize("name", sampled("keys of two types", [(name,) for name in CASES], least=4, covers=False))
def test_keys_of_two_types_match_as_spark_joins_them(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """E1: a cast of the source's key to the table's type made other keys of it."""
    case = CASES[name]
    values = ", ".join(f"({key}, {number})" for number, key in enumerate(case.theirs))
    spark.sql(f"SELECT * FROM VALUES {values} AS s(k, m)").createOrReplaceTempView("keys_of_source")
    assert joined_by_spark(spark, case) == case.equal
    lake = conroi.connect(tmp_path / "lake")
    columns = {"k": pa.array(case.mine, case.stored), "n": pa.array(range(len(case.mine)), pa.int32())}
    lake.create_table("t", pa.table(columns | {"m": pa.nulls(len(case.mine), pa.int32())}))
    done = lake.sql(
        spark,
        "MERGE INTO t USING keys_of_source s ON t.k = s.k WHEN MATCHED THEN UPDATE SET m = s.m "
        "WHEN NOT MATCHED THEN INSERT (n, m) VALUES (-1, s.m)",
    )
    partner = dict(case.equal)
    alone = sorted(set(range(len(case.theirs))) - {m for _, m in case.equal})
    expected = [(n, partner.get(n)) for n in range(len(case.mine))] + [(-1, m) for m in alone]
    assert sorted(str((row["n"], row["m"])) for row in lake["t"].to_arrow().to_pylist()) == sorted(map(str, expected))
    assert (done.rows_updated, done.rows_inserted, done.rows_deleted) == (len(partner), len(alone), 0)  # type: ignore[union-attr]


@pytest.mark.contract("S8")
def test_two_equalities_on_one_column_must_both_hold(spark: SparkSession, tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": n, "v": "old"} for n in (1, 2, 3)], key="id")
    spark.sql("SELECT * FROM VALUES (1, 1, 'a'), (2, 3, 'b'), (3, 2, 'c') AS s(a, b, v)").createOrReplaceTempView("two")
    lake.sql(
        spark,
        "MERGE INTO t USING two AS s ON t.id = s.a AND s.b = t.id WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.a * 10, s.v)",
    )
    rows = sorted((row["id"], row["v"]) for row in lake["t"].to_arrow().to_pylist())
    assert rows == [(1, "a"), (2, "old"), (3, "old"), (20, "b"), (30, "c")]


@pytest.mark.contract("S8")
def test_two_rows_of_the_source_that_equal_one_of_the_table_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1, "v": "old"}])
    spark.sql("SELECT * FROM VALUES ('1', 'a'), ('01', 'b') AS s(id, v)").createOrReplaceTempView("twice")
    with pytest.raises(conroi.DuplicateKeyError):
        lake.sql(spark, "MERGE INTO t USING twice s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v")
    assert lake["t"].to_arrow()["v"].to_pylist() == ["old"]


@pytest.mark.contract("S8")
@pytest.mark.usefixtures("way")
def test_keys_that_spark_cannot_compare_or_hold_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    nanos = pa.array([1], pa.timestamp("ns"))
    lake.create_table("t", pa.table({"id": [True], "at": nanos, "v": ["old"]}))
    lake.create_table("keyed", pa.table({"at": pa.array([1], pa.timestamp("ns")), "v": ["old"]}), key="at")
    spark.sql("SELECT DATE '2026-01-01' AS id, '1970-01-01' AS at, 'new' AS v").createOrReplaceTempView("odd")
    with pytest.raises(InvalidInputError, match="Spark refuses"):
        lake.sql(spark, "MERGE INTO t USING odd s ON t.id = s.id WHEN MATCHED THEN DELETE")
    with pytest.raises(UnsupportedError, match="cannot hold at"):
        lake.sql(spark, "MERGE INTO t USING odd s ON t.at = s.at WHEN MATCHED THEN DELETE")
    for statement in ("DELETE FROM keyed WHERE length(v) = 3", "UPDATE keyed SET v = upper(v)"):
        with pytest.raises(UnsupportedError, match="cannot hold the key column"):
            lake.sql(spark, statement)
    assert (lake["t"].count_rows(), lake["keyed"].to_arrow()["v"].to_pylist()) == (1, ["old"])


REFUSED = {
    "a column assigned twice": "WHEN MATCHED THEN UPDATE SET v = 'a', V = 'b'",
    "a column inserted twice": "WHEN NOT MATCHED THEN INSERT (id, v, v) VALUES (s.id, 'a', 'b')",
    "twice, by source": "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 'a', t.v = 'b'",
    "matched": "WHEN MATCHED THEN DELETE WHEN MATCHED AND s.id = 1 THEN UPDATE SET v = 'a'",
    "matched, twice": "WHEN MATCHED THEN UPDATE SET v = 'a' WHEN MATCHED THEN DELETE",
    "not matched": "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) WHEN NOT MATCHED AND s.id = 1 THEN INSERT *",
    "by source": "WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE",
}


@pytest.mark.contract("S9")
@pytest.mark.parametrize("clauses", REFUSED.values(), ids=REFUSED)
def test_a_merge_that_contradicts_itself_is_refused(spark: SparkSession, tmp_path: Path, clauses: str) -> None:
    """E2: one of the two was taken without a word."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1, "v": "old"}], key="id")
    before = lake.version
    with pytest.raises(InvalidInputError, match=r"more than one value|never reached"):
        lake.sql(spark, f"MERGE INTO t USING (SELECT 1L AS id, 'x' AS v) AS s ON t.id = s.id {clauses}")
    assert lake.version == before


# -------------------------------------------------------------------------------- the verb

LOSSY = {
    "double for float": (pa.array([0.5, 0.1], pa.float32()), pa.array([0.1], pa.float64())),
    "no zone for Berlin": (
        pa.array([0, 1], pa.timestamp("us", "Europe/Berlin")),
        pa.array([datetime(1970, 1, 1)], pa.timestamp("us")),
    ),
    "Berlin for no zone": (pa.array([0, 1], pa.timestamp("us")), pa.array([0], pa.timestamp("us", "Europe/Berlin"))),
}


@pytest.mark.contract("S8")
@pytest.mark.parametrize(
    ("name", "way"),
    [*((name, None) for name in LOSSY), *(("double for float", way) for way in ("process", "probe", "join"))],
)
def test_a_merge_matches_no_key_that_its_cast_would_change(
    spark: SparkSession, tmp_path: Path, name: str, way: Way | None
) -> None:
    mine, theirs = LOSSY[name]
    table = conroi.create_table(tmp_path / "t", pa.table({"k": mine, "v": [1, 2]}))
    source: Any = pa.table({"k": theirs, "v": [9]})
    if way is not None:
        source = spark.sql("SELECT 0.1D AS k, 9L AS v")
    merge = table.merge(source, on="k").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(InvalidInputError, match=r"hold exactly|no time zone|holds timestamp"):
        merge.execute(plan=way)
    assert table.latest().to_arrow()["v"].to_pylist() == [1, 2]


@pytest.mark.contract("S8")
def test_keys_that_a_cast_keeps_still_match(tmp_path: Path) -> None:
    """The negative control: values that both types hold, NaN and zeros with a sign among them."""
    mine = pa.array([0.5, NAN, -0.0, None], pa.float32())
    table = conroi.create_table(tmp_path / "t", pa.table({"k": mine, "v": [1, 2, 3, 4]}))
    source = pa.table({"k": pa.array([0.5, NAN, 0.0], pa.float64()), "v": [10, 20, 30]})
    done = table.merge(source, on="k").when_matched_update({"v": "source.v"}).execute()
    assert sorted(column_values(done.table.to_arrow()["v"])) == [4, 10, 20, 30]
