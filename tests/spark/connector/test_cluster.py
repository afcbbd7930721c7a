"""A cluster with executors in processes of their own, which have only what was shipped, and clients of Connect."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.types import StringType

import conroi
from conroi.spark.connector.errors import typed
from tests.spark.clusters import check_python_without_us, cluster, free_port, inherited, python_without_us
from tests.spark.connector.processes import PATIENCE_S, WORKER, children, is_running, kill, wait_until
from tests.spark.connector.support import rows
from tests.support.source import REPOSITORY

pytestmark = [pytest.mark.contract("S21"), pytest.mark.soak]

ORPHAN_S = 10
"""A worker process must end so soon after its executor."""


class Cluster:
    """A running cluster with a driver that serves clients of Connect."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.remote = f"sc://127.0.0.1:{port}"
        self.lake = conroi.connect(folder / "lake")

    def executors(self) -> list[int]:
        """The process ids of the executors."""
        daemons = [int(path.read_text()) for path in self.folder.glob("process-*.pid")]
        return [found for daemon in daemons for found in children(daemon, "CoarseGrainedExecutorBackend")]

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of a table in order, by plain pylance."""
        found = lance.dataset(self.lake[name].uri).to_table()
        return sorted(tuple(row.values()) for row in found.to_pylist())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of a standalone master, and the driver in a program of its own."""
    folder = tmp_path_factory.mktemp("cluster")
    bare = python_without_us(folder)
    check_python_without_us(bare)
    port = free_port()
    path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    pythons = {"PYSPARK_PYTHON": str(bare), "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": path}
    with cluster(folder) as master, open(folder / "driver.log", "w") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.connector.cluster_program", master, str(folder), str(port)],
            env=inherited() | {"SPARK_LOCAL_IP": "127.0.0.1"} | pythons,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "ready\n", (folder / "driver.log").read_text()[-4000:]
            yield Cluster(folder, port)
        finally:
            driver.communicate(timeout=60)


@pytest.fixture(scope="module")
def client(running: Cluster) -> Iterator[SparkSession]:
    """A client that knows nothing but the address."""
    session = SparkSession.builder.remote(running.remote).create()
    yield session
    session.stop()


def test_a_cluster_with_what_was_shipped_runs_all_statements(running: Cluster):
    assert ast.literal_eval((running.folder / "joined.txt").read_text()) == [(5, 500), (10, 1000), (15, 1500)]
    updated = [(0, "n0", -1.0), (1, "n1", 1.5), (2, "n2", -1.0), (3, "n3", 4.5), (4, "n4", -1.0)]
    updated += [(5, "n5", 7.5), (6, "n6", -1.0), (7, "n7", 10.5), (8, "n8", -1.0), (9, "n9", 13.5)]
    merged = [(17, "n17", 25.5), (18, "merged", 27.0), (19, "merged", 28.5), (20, "merged", 0.0), (21, "merged", 0.0)]
    assert running.rows("orders") == updated + merged
    assert len(running.executors()) == 2


# ---------------------------------------------------------------------------- clients of Connect


def test_a_client_of_connect_reads_and_writes_with_sql_alone(running: Cluster, client: SparkSession):
    client.sql("CREATE TABLE lake.stock (id BIGINT, n INT) TBLPROPERTIES ('key' = 'id')")
    client.sql("INSERT INTO lake.stock VALUES (1, 10), (2, 20), (3, 30)")
    client.sql(
        "MERGE INTO lake.stock t USING (SELECT * FROM VALUES (2, 21), (4, 40) AS s(id, n)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *"
    )
    assert "stock" in [row[1] for row in rows(client, "SHOW TABLES IN lake")]
    assert rows(client, "SELECT id, n FROM lake.stock WHERE n > 20 ORDER BY id") == [(2, 21), (3, 30), (4, 40)]
    assert rows(client, "SELECT id, n FROM lake.stock VERSION AS OF 2 ORDER BY id") == [(1, 10), (2, 20), (3, 30)]
    assert running.rows("stock") == [(1, 10), (2, 21), (3, 30), (4, 40)]


def test_errors_reach_a_client_of_connect_with_their_types(running: Cluster, client: SparkSession):
    client.sql("CREATE TABLE lake.strict (id BIGINT NOT NULL, n INT) TBLPROPERTIES ('key' = 'id')")
    client.sql("INSERT INTO lake.strict VALUES (1, 10)")
    before = running.lake.version
    with pytest.raises(IllegalArgumentException) as refused:
        client.sql("INSERT INTO lake.strict VALUES (1, 11)")
    duplicate = typed(refused.value)
    assert isinstance(duplicate, conroi.DuplicateKeyError)
    assert (duplicate.table, duplicate.version) == ("strict", 2)
    assert duplicate.message == "The table has rows with the same key id already: 1."
    with pytest.raises(IllegalArgumentException) as refused:
        client.sql("SELECT * FROM lake.strict VERSION AS OF 99").collect()
    assert isinstance(typed(refused.value), conroi.NotFoundError)
    with pytest.raises(IllegalArgumentException, match=r"^\[conroi\.UnsupportedError\] "):
        client.sql("CREATE TABLE lake.parted (id BIGINT) PARTITIONED BY (id)")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        client.sql("SELECT * FROM lake.missing").collect()
    assert running.lake.version == before


# ---------------------------------------------------------------------------- statements that something happens to


class Gate:
    """A function of SQL that stops tasks at certain values until the gate opens, and notes their attempts."""

    def __init__(self, client: SparkSession, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._shut = folder / "shut"
        self._shut.touch()
        client.udf.register("gate", _gated(str(folder)), StringType())

    def arrived(self) -> list[str]:
        """The attempts that stand before the gate, or have passed it."""
        return sorted(path.name for path in self.folder.glob("attempt-*"))

    def open(self) -> None:
        self._shut.unlink(missing_ok=True)


def _gated(folder: str) -> Callable[..., str]:
    """Defined inside a function, so that it travels by value: executors do not have the tests."""

    def gate(value: int, every: int, at: int, again: bool, ballast: str = "") -> str:
        """Stops at the values that have this remainder; if not `again`, only the first attempt of a task.

        Input and output are large enough to pass the buffers on the way: what comes before is written, and what comes
        after is not read.
        """
        if value % every == at:
            task = TaskContext.get()
            assert task is not None
            attempt = task.attemptNumber()
            Path(folder, f"attempt-{task.partitionId()}-{attempt}").touch()
            while Path(folder, "shut").exists() and (again or attempt == 0):
                time.sleep(0.05)
        return "x" * 200

    return gate


@pytest.fixture
def gate(client: SparkSession, tmp_path: Path) -> Iterator[Gate]:
    found = Gate(client, tmp_path / "gate")
    yield found
    found.open()


@contextmanager
def statement(running: Cluster, client: SparkSession, text: str, gate: Gate) -> Generator[Future[list[Any]]]:
    """A statement in a thread, with new worker processes; whatever happens, the gate opens at the end."""
    wait_until(lambda: len(running.executors()) == 2)
    kill(*(worker for each in running.executors() for worker in children(each, WORKER)))  # they are idle
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(lambda: client.sql(text).collect())
        finally:
            gate.open()


def busy_workers(running: Cluster) -> dict[int, list[int]]:
    """The workers of each executor, when each executor has some."""
    wait_until(lambda: len(running.executors()) == 2)
    wait_until(lambda: all(children(each, WORKER) for each in running.executors()))
    return {executor: children(executor, WORKER) for executor in running.executors()}


def kill_one(executors: dict[int, list[int]]) -> None:
    """Kill an executor; its workers must end soon after it."""
    executor, workers = next(iter(executors.items()))
    os.kill(executor, signal.SIGKILL)
    assert_ended(workers)


def assert_ended(workers: list[int]) -> None:
    end = time.monotonic() + ORPHAN_S
    while alive := [number for number in workers if is_running(number, WORKER)]:
        assert time.monotonic() < end, f"workers outlived their task: {alive}"
        time.sleep(0.05)


def test_an_executor_that_is_lost_in_a_write_doubles_and_loses_no_row(
    running: Cluster, client: SparkSession, gate: Gate
):
    client.sql("CREATE TABLE lake.written (id BIGINT)")
    before = running.lake.version
    text = "INSERT INTO lake.written SELECT id FROM range(0, 120000, 1, 2) WHERE gate(id, 60000, 55000, true) > ''"
    with statement(running, client, text, gate) as written:
        wait_until(lambda: len(gate.arrived()) == 2)
        kill_one(busy_workers(running))
        assert running.lake.version == before
        gate.open()
        written.result(PATIENCE_S)
    assert len(gate.arrived()) == 3, "one task ran again"
    assert running.rows("written") == [(id,) for id in range(120_000)]
    assert running.lake.version == before + 1


def test_an_executor_that_is_lost_in_a_read_changes_no_answer(running: Cluster, client: SparkSession, gate: Gate):
    client.sql("CREATE TABLE lake.source AS SELECT id, repeat('x', 100) AS text FROM range(0, 400000, 1, 2)")
    text = "SELECT count(*), sum(id) FROM lake.source WHERE gate(id, 200000, 500, true, text) > ''"
    with statement(running, client, text, gate) as read:
        wait_until(lambda: len(gate.arrived()) == 2)
        kill_one(busy_workers(running))
        gate.open()
        assert [tuple(row) for row in read.result(PATIENCE_S)] == [(400_000, 79_999_800_000)]
    assert len(gate.arrived()) == 3, "one task ran again"


def test_a_speculative_copy_of_a_task_writes_its_rows_once(running: Cluster, client: SparkSession, gate: Gate):
    client.sql("CREATE TABLE lake.copied (id BIGINT)")
    before = running.lake.version
    text = "INSERT INTO lake.copied SELECT id FROM range(0, 120000, 1, 2) WHERE gate(id, 120000, 115000, false) > ''"
    with statement(running, client, text, gate) as copied:
        copied.result(PATIENCE_S)  # the first attempt stands before the gate for ever: only the copy can have ended
        assert gate.arrived() == ["attempt-1-0", "attempt-1-1"]
    assert running.rows("copied") == [(id,) for id in range(120_000)]
    assert running.lake.version == before + 1


def test_a_client_of_connect_streams_by_name(running: Cluster, client: SparkSession):
    client.sql("CREATE TABLE lake.arrived (id BIGINT)")
    client.sql("CREATE TABLE lake.passed_on (id BIGINT)")
    for wanted in (3, 7):
        client.sql(f"INSERT INTO lake.arrived SELECT id FROM range({wanted - 3}, {wanted}, 1, 2)")
        writing = client.readStream.table("lake.arrived").writeStream.trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(running.folder / "passed_on")).toTable("lake.passed_on")
        assert query.awaitTermination(PATIENCE_S)
    assert running.rows("passed_on") == [(id,) for id in (0, 1, 2, 4, 5, 6)]
    assert running.lake["passed_on"].version == 3


def test_a_speculative_copy_of_a_verbs_task_writes_its_rows_once(running: Cluster):
    """The first attempt of one task of the program's `create_table` never ended."""
    assert running.rows("by_verb") == [(id,) for id in range(120_000)]
    assert running.lake["by_verb"].version == 1


def test_an_overwrite_that_a_client_interrupts_leaves_the_rows_as_they_were(
    running: Cluster, client: SparkSession, gate: Gate
):
    client.sql("CREATE TABLE lake.interrupted AS SELECT id FROM range(0, 3)")
    before = running.lake.version
    chosen = "SELECT id FROM range(0, 120000, 1, 2) WHERE gate(id, 60000, 55000, true) > ''"
    with statement(running, client, f"INSERT OVERWRITE lake.interrupted {chosen}", gate) as replaced:
        wait_until(lambda: len(gate.arrived()) == 2)
        workers = busy_workers(running)
        client.interruptAll()
        with pytest.raises(Exception, match=r"(?i)cancel"):
            replaced.result(PATIENCE_S)
        assert_ended([worker for each in workers.values() for worker in each])
    assert running.lake.version == before
    client.sql("INSERT INTO lake.interrupted VALUES (7)")
    assert running.rows("interrupted") == [(0,), (1,), (2,), (7,)]
