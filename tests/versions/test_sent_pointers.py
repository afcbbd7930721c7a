"""Statements to PostgreSQL whose answer nobody waits for: the pointer of a version that got its final name."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import conroi
from conroi.storage.postgres import PostgresDatabase
from conroi.versions import open_records
from conroi.versions.sql_records import PostgresRecords
from tests.support.databases import PostgresServer
from tests.support.external_tables import rows, rows_by_pylance

pytestmark = pytest.mark.contract("X2", "X10")


@pytest.fixture
def database(postgres: PostgresServer) -> PostgresDatabase:
    database = PostgresDatabase(postgres.new_address())
    database.call("CREATE TABLE t (n INTEGER)")
    return database


def test_a_statement_that_was_sent_is_executed_before_the_next_one(database: PostgresDatabase) -> None:
    for number in range(3):
        database.send("INSERT INTO t VALUES ($1::integer)", [str(number)])
        assert database.call("SELECT count(*) FROM t") == [(number + 1,)]
    database.send("INSERT INTO t VALUES ($1::integer)", ["3"])
    with database.transaction() as run:
        assert run("SELECT count(*) FROM t", ()) == [(4,)]


def test_a_statement_that_was_refused_is_nobodys_error(database: PostgresDatabase) -> None:
    database.send("INSERT INTO nowhere VALUES ($1::integer)", ["1"])
    assert database.call("SELECT 7") == [(7,)]


def test_a_connection_that_ended_after_a_statement_was_sent_is_opened_again(
    database: PostgresDatabase, postgres: PostgresServer
) -> None:
    ((pid,),) = database.call("SELECT pg_backend_pid()")
    database.send("INSERT INTO t SELECT 1 FROM pg_sleep($1::integer)", ["30"])
    with postgres.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))
    assert database.call("SELECT count(*) FROM t") == [(0,)]


def test_an_answer_that_does_not_come_is_not_waited_for_longer_than_a_statement(postgres: PostgresServer) -> None:
    database = PostgresDatabase(postgres.new_address(), timeout_s=0.5)
    database.call("SELECT 1")
    started = time.monotonic()
    database.send("SELECT pg_sleep($1::integer)", ["60"])
    assert time.monotonic() - started < 5
    assert database.call("SELECT 7") == [(7,)]
    assert time.monotonic() - started < 20


def test_a_fork_after_a_statement_was_sent(database: PostgresDatabase) -> None:
    database.send("INSERT INTO t VALUES ($1::integer)", ["1"])
    child = os.fork()
    if not child:
        os._exit(0 if database.call("SELECT 7") == [(7,)] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert database.call("SELECT count(*) FROM t") == [(1,)]


def test_the_pointer_of_a_commit_is_sent_and_the_commit_does_not_depend_on_it(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri = postgres.new_address(), str(tmp_path / "t.lance")
    table = conroi.create_table(uri, [{"row": 1}], store=store)
    key = open_records(store).key_of(table._files.objects)
    table = table.append([{"row": 2}])
    assert rows(table.latest()) == [1, 2]  # its look comes after the pointer
    record = open_records(store).newest(key)
    assert record is not None
    assert ".manifest-" not in record.path
    monkeypatch.setattr(PostgresRecords, "send_pointer", lambda *_: None)
    table.append([{"row": 3}])
    record = open_records(store).newest(key)
    assert record is not None
    assert ".manifest-" in record.path, "a connection that broke"
    assert rows(conroi.open_table(uri, store=store)) == [1, 2, 3]
    assert rows_by_pylance(uri) == (3, [1, 2, 3])
