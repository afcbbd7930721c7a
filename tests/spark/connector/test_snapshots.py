"""One statement, one version of the lake: reads of several tables, transactions, and conflicts with other writers."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

import conroi
from conroi.spark.connector.errors import typed
from conroi.spark.connector.lake_session import LakeSession
from conroi.spark.connector.tables import load
from tests.spark.connector.support import rows

pytestmark = pytest.mark.contract("S18")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> conroi.Lake:
    """A lake for these tests alone."""
    return conroi.connect(tmp_path_factory.mktemp("connector") / "lake")


def both(lake: conroi.Lake, number: int) -> None:
    with lake.begin() as tx:
        for name in ("left", "right"):
            tx[name].overwrite(pa.table({"n": [number]}))


@contextmanager
def writer(lake: conroi.Lake) -> Generator[None]:
    """Another client that changes both tables together, all the time."""
    done = threading.Event()

    def work() -> None:
        number = 1
        while not done.wait(0.02):  # to commit without a pause takes a core
            both(lake, number)
            number += 1

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        try:
            yield
        finally:
            done.set()
            running.result()


@pytest.fixture(scope="module")
def pair(lake: conroi.Lake) -> None:
    for name in ("left", "right"):
        lake.create_table(name, pa.table({"n": [0]}))


QUERIES = [
    "SELECT l.n, r.n FROM lake.left l CROSS JOIN lake.right r",
    "SELECT (SELECT max(n) FROM lake.left), (SELECT max(n) FROM lake.right)",
    "WITH r AS (SELECT n FROM lake.right) SELECT l.n, r.n FROM lake.left l LEFT JOIN r ON true",
    "SELECT max(n), min(n) FROM (SELECT n FROM lake.left UNION ALL SELECT n FROM lake.right)",
]


@pytest.mark.usefixtures("pair")
def test_all_tables_of_a_query_are_read_at_one_version(sql: SparkSession, lake: conroi.Lake):
    seen: set[int] = set()
    with writer(lake):
        for _ in range(2):
            for query in QUERIES:
                (found,) = rows(sql, query)
                assert found[0] == found[1], query
                seen.add(found[0])
    assert len(seen) > 1, "the writer committed between the queries"


@pytest.mark.usefixtures("pair")
def test_a_statement_that_writes_reads_all_its_tables_at_one_version(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("seen", pa.schema({"l": pa.int64(), "r": pa.int64()}))
    with writer(lake):
        for _ in range(2):
            sql.sql("INSERT INTO lake.seen SELECT l.n, r.n FROM lake.left l CROSS JOIN lake.right r")
            sql.sql(
                "MERGE INTO lake.seen t USING (SELECT l.n AS l, r.n AS r FROM lake.left l CROSS JOIN lake.right r) s "
                "ON t.l = s.l WHEN MATCHED THEN UPDATE SET r = s.r WHEN NOT MATCHED THEN INSERT *"
            )
    found = lake["seen"].to_arrow()
    assert found.num_rows >= 2
    assert found["l"].equals(found["r"])


@pytest.mark.usefixtures("pair")
def test_without_the_rule_two_tables_are_of_two_versions(lake: conroi.Lake):
    """The negative control: tables that are loaded without an execution are loaded at the newest version."""
    session = LakeSession("lake", lake, {})

    def versions(execution: str | None) -> list[str]:
        found = [load(session, {"table": ["left"], "execution": execution})["version"]]
        both(lake, 1000)
        return [*found, load(session, {"table": ["left"], "execution": execution})["version"]]

    first, second = versions("app/1")
    assert first == second
    first, second = versions(None)
    assert first != second


@contextmanager
def running(sql: SparkSession, statement: str) -> Generator[Future[DataFrame]]:
    """A statement in another thread, which has begun its job."""
    jobs = set(sql.sparkContext.statusTracker().getActiveJobsIds())
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: sql.sql(statement))
        while not future.done() and set(sql.sparkContext.statusTracker().getActiveJobsIds()) <= jobs:
            pass
        yield future


def test_a_concurrent_append_is_rebased_over(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("rebased", pa.table({"id": [1, 2], "v": [0, 0]}), key="id")
    with running(sql, "UPDATE lake.rebased SET v = 1 WHERE id = 1 AND slow(id, 1)") as statement:
        lake["rebased"].append(pa.table({"id": [3], "v": [0]}))
        statement.result()
    assert rows(sql, "SELECT id, v FROM lake.rebased ORDER BY id") == [(1, 1), (2, 0), (3, 0)]
    assert lake["rebased"].version == 3


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE lake.{} SET v = 1 WHERE id = 1 AND slow(id, 1)",
        "DELETE FROM lake.{} WHERE id = 1 AND slow(id, 1)",
        "INSERT OVERWRITE lake.{} SELECT * FROM lake.{} WHERE id = 1 AND slow(id, 1)",
    ],
    ids=["update", "delete", "overwrite"],
)
def test_a_change_of_the_same_row_is_a_typed_conflict(sql: SparkSession, lake: conroi.Lake, statement: str):
    name = f"conflict_{len(lake.tables())}"
    lake.create_table(name, pa.table({"id": [1, 2], "v": [0, 0]}))
    with running(sql, statement.format(name, name)) as running_statement:
        lake[name].update({"v": 7}, "id = 1")
        with pytest.raises(IllegalArgumentException) as refused:
            running_statement.result()
    error = typed(refused.value)
    assert isinstance(error, conroi.RetryableConflict | conroi.ExpectedVersionMismatch)
    assert error.hint
    assert rows(sql, f"SELECT id, v FROM lake.{name} ORDER BY id") == [(1, 7), (2, 0)]


def test_a_key_that_another_writer_inserted_meanwhile_is_a_typed_conflict(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("same_key", pa.table({"id": [1], "v": [0]}), key="id")
    with running(sql, "INSERT INTO lake.same_key SELECT id + 1, v FROM lake.same_key WHERE slow(id, 1)") as statement:
        lake["same_key"].append(pa.table({"id": [2], "v": [5]}))
        with pytest.raises(IllegalArgumentException) as refused:
            statement.result()
    assert isinstance(typed(refused.value), conroi.RetryableConflict | conroi.DuplicateKeyError)
    assert rows(sql, "SELECT id, v FROM lake.same_key ORDER BY id") == [(1, 0), (2, 5)]


def test_a_dataframe_sees_new_rows_and_a_past_version_does_not(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("grows", pa.table({"id": [1]}))
    table, past = sql.table("lake.grows"), sql.sql("SELECT * FROM lake.grows VERSION AS OF 1")
    lake["grows"].append(pa.table({"id": [2]}))
    assert table.where("id > 0").count() == 2
    assert past.where("id > 0").count() == 1
