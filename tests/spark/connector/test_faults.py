"""Processes that die, tasks that are cancelled: nothing half-done is visible, and the next statement works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import conroi
from conroi.spark.connector.errors import typed
from tests.spark.connector.processes import HELPER, WORKER, kill, processes, wait_until
from tests.spark.connector.support import rows
from tests.spark.connector.test_snapshots import running

pytestmark = pytest.mark.contract("S21")

MANY = 60_000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> conroi.Lake:
    """A lake for these tests alone."""
    return conroi.connect(tmp_path_factory.mktemp("connector") / "lake")


@pytest.fixture(scope="module")
def many(lake: conroi.Lake) -> str:
    """A table with more rows than fit between a worker and its task."""
    lake.create_table("many", pa.table({"id": range(MANY), "text": ["x" * 50] * MANY}))
    return "lake.many"


def test_a_dead_helper_is_started_again(sql: SparkSession, many: str):
    assert rows(sql, f"SELECT count(*) FROM {many}") == [(MANY,)]
    before = set(processes(sql, HELPER))
    kill(*before)
    assert rows(sql, f"SELECT count(*) FROM {many}") == [(MANY,)]
    assert not before & set(processes(sql, HELPER))


def test_a_scan_that_fails_after_some_rows_is_a_typed_error(sql: SparkSession, lake: conroi.Lake):
    """The task waited for ever for what the worker would send after the end of its rows."""
    lake.create_table("torn", pa.table({"id": range(MANY), "text": ["x" * 50] * MANY})).append(
        pa.table({"id": [-1], "text": ["y"]})
    )
    whole = lake.version
    with lake.begin() as tx:
        tx["torn"].append(pa.table({"id": [-2], "text": ["z"]}))
    last = lake["torn"].to_lance().get_fragments()[-1].data_files()[0].path
    os.remove(f"{lake['torn'].uri}/data/{last}")
    workers = set(processes(sql, WORKER))
    for query in ("SELECT id, text FROM lake.torn", "SELECT max(text) FROM lake.torn", "SELECT id FROM lake.torn"):
        with pytest.raises(Exception, match=r"\[conroi\.\w+\]") as refused:
            rows(sql, query)
        assert isinstance(typed(refused.value), conroi.NotFoundError | conroi.CorruptionError), refused.value
    assert rows(sql, f"SELECT count(text) FROM lake.torn VERSION AS OF {lake.at(whole)['torn'].version}") == [
        (MANY + 1,)
    ]
    assert workers <= set(processes(sql, WORKER)), "an error in the rows costs no process"


def test_a_value_that_spark_cannot_hold_is_a_typed_error(sql: SparkSession, lake: conroi.Lake):
    moments = pa.array([0, 2**60], pa.timestamp("s"))
    lake.create_table("late", pa.table({"id": [1, 2], "at": moments}))
    with pytest.raises(Exception, match="Spark cannot hold"):
        rows(sql, "SELECT id, at FROM lake.late")
    assert rows(sql, "SELECT id FROM lake.late WHERE id = 2") == [(2,)]


def test_the_transaction_of_a_dead_helper_fails_with_its_type(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("lost", pa.table({"id": [1], "v": [0]}))
    before = lake.version
    with running(sql, "UPDATE lake.lost SET v = 1 WHERE slow(id, 1)") as statement:
        kill(*processes(sql, HELPER))
        with pytest.raises(IllegalArgumentException) as refused:
            statement.result()
    assert isinstance(typed(refused.value), conroi.ClosedError)
    assert lake.version == before
    sql.sql("UPDATE lake.lost SET v = 2 WHERE length(v) = 1")
    assert rows(sql, "SELECT v FROM lake.lost") == [(2,)]


def test_a_definition_whose_answer_is_lost_is_not_sent_again(sql: SparkSession, lake: conroi.Lake):
    """It may have happened; sent again, it would fail because of itself."""
    rows(sql, "SHOW TABLES IN lake")
    catalog = cast("Any", sql)._jsparkSession.sessionState().catalogManager().catalog("lake")
    names = cast("Any", sql)._sc._gateway.new_array(cast("Any", sql)._jvm.java.lang.String, 1)
    names[0] = "lost"
    helpers = processes(sql, HELPER)
    for number in helpers:
        os.kill(number, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        request = thread.submit(catalog.createNamespace, names, cast("Any", sql)._jvm.java.util.HashMap())
        time.sleep(1)  # until the request is on its way
        kill(*helpers)
        with pytest.raises(Exception, match="CommitStateUnknown"):
            request.result()
    assert lake.namespaces() == []


def test_a_worker_that_dies_in_a_scan_costs_one_attempt(sql: SparkSession, many: str):
    rows(sql, f"SELECT sum(length(text)) FROM {many}")
    query = f"CACHE TABLE cached AS SELECT sum(length(text)) AS n FROM {many} WHERE slow(id, 50000)"
    with running(sql, query) as statement:
        kill(*processes(sql, WORKER))
        statement.result()
    assert rows(sql, "SELECT n FROM cached") == [(MANY * 50,)]


def test_a_worker_that_dies_in_a_write_costs_one_attempt(sql: SparkSession, lake: conroi.Lake):
    lake.create_table("written", pa.schema({"id": pa.int64()}))
    slow = "INSERT INTO lake.written SELECT id FROM range(0, 20000, 1, 1) WHERE slow(id, 15000)"
    with running(sql, slow) as statement:
        wait_until(lambda: processes(sql, WORKER))
        kill(*processes(sql, WORKER))
        statement.result()
    assert rows(sql, "SELECT count(*), count(DISTINCT id) FROM lake.written") == [(20_000, 20_000)]
    assert lake["written"].version == 2


def test_a_cancelled_statement_leaves_nothing_and_the_next_works(sql: SparkSession, lake: conroi.Lake, many: str):
    lake.create_table("cancelled", pa.schema({"id": pa.int64()}))
    before = lake.version
    with running(sql, f"INSERT INTO lake.cancelled SELECT id FROM {many} WHERE slow(id, 40000)") as statement:
        sql.sparkContext.cancelAllJobs()
        with pytest.raises(Exception, match="cancel"):
            statement.result()
    assert lake.version == before
    assert rows(sql, f"SELECT count(*) FROM {many} WHERE id % 2 = 0") == [(MANY // 2,)]
    sql.sql("INSERT INTO lake.cancelled VALUES (1)")
    assert lake["cancelled"].count_rows() == 1


def test_a_worker_has_a_limit_of_memory():
    program = (
        "from conroi.spark.connector.worker import limit_memory\n"
        "limit_memory('4000')\n"
        "try:\n    bytearray(8 << 30)\nexcept MemoryError:\n    print('limited')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "limited\n"


def test_what_a_library_prints_does_not_spoil_the_channel():
    program = (
        "import os\nfrom conroi.spark.connector.wire import private_stdio\nframes = private_stdio()\n"
        "print('noise')\nos.write(1, b'noise')\nframes.send({'ok': True})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=True)
    assert done.stdout == b'\0\0\0\x0c\0\0\0\0{"ok": true}'
    assert done.stderr.count(b"noise") == 2
