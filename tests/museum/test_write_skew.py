"""Write skew: two transactions read what the other one writes, and each would be right alone."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from tests.museum.peers import column, commit, ducklake, outcome, written
from tests.support.arrow import column_values
from tests.support.lakes import settle

pytestmark = pytest.mark.contract("H7")

FRUIT = {"pear": "apple", "apple": "pear"}
"""Each may be added only if the other is absent."""


@pytest.mark.contract("W13")
def test_pear_and_apple_never_lie_in_one_basket(tmp_path: Path) -> None:
    """lance#5662."""
    uri = str(tmp_path / "pylance")
    basket = lance.write_dataset(pa.table({"fruit": pa.array([], pa.string())}), uri)
    appends = [
        lance.LanceOperation.Append([written(uri, pa.table({"fruit": [mine]}))])
        for mine, other in FRUIT.items()
        if basket.count_rows(f"fruit = '{other}'") == 0
    ]
    for operation in appends:
        commit(uri, operation, read_version=basket.version)
    assert column(uri, "fruit") == ["apple", "pear"]

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("basket", pa.table({"fruit": pa.array([], pa.string())}))
    transactions = [conroi.connect(lake.uri).begin(isolation="serializable") for _ in FRUIT]
    for tx, (mine, other) in zip(transactions, FRUIT.items(), strict=True):
        if tx["basket"].count_rows(f"fruit = '{other}'") == 0:
            tx["basket"].append([{"fruit": mine}])
    assert [outcome(tx.commit) for tx in transactions] == ["committed", "ExpectedVersionMismatch"]
    assert column_values(lake["basket"].to_arrow()["fruit"]) == ["pear"]


@pytest.mark.contract("W13")
def test_two_tables_that_must_not_both_have_a_row(tmp_path: Path) -> None:
    """The same over two tables. DuckLake offers snapshot isolation and no more, so it commits both, as it says."""
    connection = ducklake(tmp_path / "ducklake")
    connection.execute("CREATE TABLE lake.a(n INT)")
    connection.execute("CREATE TABLE lake.b(n INT)")
    cursors = {"a": connection.cursor(), "b": connection.cursor()}
    for cursor, other in zip(cursors.values(), "ba", strict=True):
        cursor.execute("BEGIN")
        assert cursor.execute(f"SELECT count(*) FROM lake.{other}").fetchone() == (0,)
    for name, cursor in cursors.items():
        cursor.execute(f"INSERT INTO lake.{name} VALUES (1)")
    assert [outcome(lambda each=each: each.execute("COMMIT")) for each in cursors.values()] == ["committed"] * 2
    assert [connection.execute(f"SELECT n FROM lake.{name}").fetchall() for name in "ab"] == [[(1,)], [(1,)]]

    lake = conroi.connect(tmp_path / "lake")
    for name in "ab":
        lake.create_table(name, pa.table({"n": pa.array([], pa.int64())}))
    transactions = {name: conroi.connect(lake.uri).begin(isolation="serializable") for name in "ab"}
    for (name, tx), other in zip(transactions.items(), "ba", strict=True):
        assert tx[other].count_rows() == 0
        tx[name].append([{"n": 1}])
    assert [outcome(tx.commit) for tx in transactions.values()] == ["committed", "ExpectedVersionMismatch"]
    assert [lake[name].count_rows() for name in "ab"] == [1, 0]


@pytest.mark.contract("P5", "P7")
def test_a_table_has_one_record_for_each_version(tmp_path: Path) -> None:
    """lance-namespace#296: two transactions insert their record of the next version of one table into `__manifest`."""
    uri = str(tmp_path / "manifest")
    lance.write_dataset(pa.table({"object_id": pa.array([], pa.string()), "version": pa.array([], pa.int64())}), uri)
    records = [{"object_id": ["t0_1"], "version": [21]}, {"object_id": ["t0_1", "t1_1"], "version": [31, 32]}]
    for each in [lance.LanceOperation.Append([written(uri, pa.table(record))]) for record in records]:
        commit(uri, each, read_version=1)
    assert column(uri, "object_id") == ["t0_1", "t0_1", "t1_1"], "the first table has two next versions"

    lake = conroi.connect(tmp_path / "lake")
    for name in ("t0", "t1"):
        lake.create_table(name, [{"n": 0}])
    small, large = (conroi.connect(lake.uri).begin() for _ in range(2))
    small["t0"].append([{"n": 21}])
    large["t0"].append([{"n": 31}])
    large["t1"].append([{"n": 32}])
    assert (small.commit().tables, large.commit().tables) == ({"t0": 2}, {"t0": 3, "t1": 2})
    settle(lake)
    assert column(f"{lake.uri}/__manifest", "object_id") == ["t0", "t1"]
    assert column(str(lake["t0"].uri), "n") == [0, 21, 31]
    assert column(str(lake["t1"].uri), "n") == [0, 32]
