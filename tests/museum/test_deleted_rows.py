"""Deletes beside other writers: deleted rows stay deleted, and rows that a delete never saw stay."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from tests.museum.peers import ducklake, iceberg_catalog, iceberg_schema, outcome
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("H7")


def count_of(connection: object, sql: str) -> int | str:
    """The count, or the name of the error."""
    try:
        return connection.execute(sql).fetchone()[0]  # pyright: ignore[reportAttributeAccessIssue]
    except Exception as error:  # noqa: BLE001  # whatever the peer raises is its outcome
        return type(error).__name__


def rows_of(lake: conroi.Lake, name: str) -> list[int]:
    return sorted(column_values(lake[name].to_arrow()["id"]))


@pytest.mark.contract("T7", "T8")
def test_rows_that_two_transactions_delete_stay_deleted(tmp_path: Path) -> None:
    """ducklake#1215, #1084 and #1094: a small and a large delete of the same rows are kept in two places, and both
    are committed; scans give the rows back, and counts subtract them twice."""
    connection = ducklake(tmp_path / "ducklake")
    connection.execute("CREATE TABLE lake.t AS SELECT i AS id FROM range(100) r(i)")
    seen = [_overlap(connection, small, large) for small, large in (("id < 5", "id < 95"), ("id < 6", "id < 41"))]
    assert seen == [(["committed"] * 2, 0, 99), (["committed"] * 2, "InvalidInputException", 99)], "right: 5 and 5"

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"id": list(range(100))}))
    small, large = (conroi.connect(lake.uri).begin() for _ in range(2))
    small["t"].delete("id < 5")
    large["t"].delete("id < 95")
    assert [outcome(small.commit), outcome(large.commit)] == ["committed", "RetryableConflict"]
    lake.run(lambda tx: tx["t"].delete("id < 95"))
    assert (lake["t"].count_rows(), rows_of(lake, "t")) == (5, [95, 96, 97, 98, 99])


def _overlap(connection: object, *predicates: str) -> tuple[list[str], int | str, int]:
    """Two concurrent deletes: their outcomes, the count of the table, and the rows that a scan gives."""
    cursors = [connection.cursor() for _ in predicates]  # pyright: ignore[reportAttributeAccessIssue]
    for cursor, predicate in zip(cursors, predicates, strict=True):
        cursor.execute("BEGIN")
        cursor.execute(f"DELETE FROM lake.t WHERE {predicate}")
    outcomes = [outcome(lambda each=each: each.execute("COMMIT")) for each in cursors]
    scanned = connection.execute("SELECT id FROM lake.t").fetchall()  # pyright: ignore[reportAttributeAccessIssue]
    return outcomes, count_of(connection, "SELECT count(*) FROM lake.t"), len(scanned)


@pytest.mark.contract("W1", "W3")
def test_a_delete_that_is_tried_again_removes_only_rows_that_it_saw(tmp_path: Path) -> None:
    """iceberg-python#3320: a retry that evaluated the predicate again, under an isolation that keeps concurrent rows.
    It was found in review and is fixed in the release that brought retries."""
    catalog = iceberg_catalog(tmp_path / "iceberg")
    waits = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "2"}
    catalog.create_table(
        "n.t", iceberg_schema(id="LongType"), properties={"write.delete.isolation-level": "snapshot", **waits}
    ).append(pa.table({"id": [1, 1, 2]}))
    delete = catalog.load_table("n.t").transaction()
    delete.delete("id == 1")
    catalog.load_table("n.t").append(pa.table({"id": [1]}))
    assert outcome(delete.commit_transaction) == "committed"
    assert sorted(catalog.load_table("n.t").scan().to_arrow()["id"].to_pylist()) == [1, 2]

    lake = conroi.connect(tmp_path / "lake")
    for isolation, outcomes, rows in (
        ("snapshot", "committed", [1, 2]),
        ("serializable", "ExpectedVersionMismatch", [1, 1, 1, 2]),
    ):
        lake.create_table(isolation, [{"id": 1}, {"id": 1}, {"id": 2}])
        tx = conroi.connect(lake.uri).begin(isolation=isolation)  # pyright: ignore[reportArgumentType]
        tx[isolation].delete("id = 1")
        lake[isolation].append([{"id": 1}])
        assert (outcome(tx.commit), rows_of(lake, isolation)) == (outcomes, rows)
