"""The tables that we make in a database: made once, brought up to date, left alone if newer than we are."""

from __future__ import annotations

from pathlib import Path

import pytest

from conroi.errors import CorruptionError, InvalidInputError, StoreError, StoreUnavailable, UnsupportedError
from conroi.storage.postgres import PostgresDatabase
from conroi.storage.sql_schema import Schema
from conroi.storage.sqlite import SqliteDatabase
from conroi.versions import open_records, sql_records
from conroi.versions.records import Record
from conroi.versions.sql_records import SqliteRecords
from tests.support.databases import PASSWORD_IN_URI, PostgresServer
from tests.support.together import Meet, together

Database = SqliteDatabase | PostgresDatabase

FIRST = Schema("things", (("CREATE TABLE things (a BIGINT)", "INSERT INTO things VALUES (1)"),))
SECOND = Schema("things", (*FIRST.steps, ("ALTER TABLE things ADD COLUMN b BIGINT", "UPDATE things SET b = a + 1")))
BROKEN = Schema("things", (*FIRST.steps, ("INSERT INTO things VALUES (7)", "this is not SQL")))


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return SqliteDatabase(str(tmp_path / "d.db"))
    return PostgresDatabase(request.getfixturevalue("postgres").new_address())


def rows(database: Database, query: str) -> list[tuple[object, ...]]:
    return database.read(query) if isinstance(database, SqliteDatabase) else database.call(query)


def test_a_schema_is_made_once(database: Database) -> None:
    database.ensure(FIRST)
    database.ensure(FIRST)
    assert rows(database, "SELECT * FROM things") == [(1,)]
    assert rows(database, "SELECT component, version FROM conroi_schema") == [("things", 1)]


def test_an_older_schema_is_brought_up_to_date_with_its_rows(database: Database) -> None:
    database.ensure(FIRST)
    database.ensure(SECOND)
    assert rows(database, "SELECT * FROM things") == [(1, 2)]
    assert rows(database, "SELECT version FROM conroi_schema") == [(2,)]


def test_a_newer_schema_is_refused_and_left_alone(database: Database) -> None:
    database.ensure(SECOND)
    with pytest.raises(UnsupportedError, match="schema 2") as caught:
        database.ensure(FIRST)
    assert "newer" in (caught.value.hint or "")
    assert rows(database, "SELECT * FROM things") == [(1, 2)]


def test_a_step_that_fails_leaves_the_schema_as_it_was(database: Database) -> None:
    database.ensure(FIRST)
    with pytest.raises(StoreError):
        database.ensure(BROKEN)
    assert rows(database, "SELECT * FROM things") == [(1,)]
    assert rows(database, "SELECT version FROM conroi_schema") == [(1,)]
    database.ensure(SECOND)


def test_components_are_counted_apart(database: Database) -> None:
    database.ensure(SECOND)
    database.ensure(Schema("others", (("CREATE TABLE others (a BIGINT)",),)))
    assert rows(database, "SELECT * FROM conroi_schema ORDER BY component") == [("others", 1), ("things", 2)]


def first_use(address: str, meet: Meet) -> int:
    meet()
    records = open_records(address)
    return len(records.all("t"))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_eight_processes_may_be_the_first_to_use_a_store(kind: str, request: pytest.FixtureRequest) -> None:
    from tests.support.record_stores import new_address

    address = new_address(kind, request)
    assert together(first_use, [address] * 8) == [0] * 8


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_store_of_a_newer_conroi_is_refused(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.record_stores import new_address

    address, module = new_address(kind, request), {"sqlite": sql_records, "postgres": sql_records}[kind]
    records = open_records(address)
    assert records.newest("t") is None
    newer = Schema("records", (*module.SCHEMA.steps, ("CREATE TABLE conroi_more (a BIGINT)",)))
    records._database.ensure(newer)  # type: ignore[attr-defined]
    records.close()
    with pytest.raises(UnsupportedError, match="schema 2"):
        type(records)(address.removeprefix("sqlite:///")).newest("t")  # type: ignore[call-arg]


# -------------------------------------------------------------------------------- SQLite


def test_sqlite_that_is_locked_is_waited_for_and_then_said_to_be_busy(tmp_path: Path) -> None:
    SqliteRecords(str(tmp_path / "d.db")).put_if_absent([Record("t", 1, "p", 1)])
    holder, other = SqliteDatabase(str(tmp_path / "d.db")), SqliteRecords(str(tmp_path / "d.db"), timeout_s=0.05)
    with holder.transaction():
        with pytest.raises(StoreUnavailable, match=r"0\.05 s"):
            other.put_if_absent([Record("t", 2, "p", 1)])
        assert other.newest("t") == Record("t", 1, "p", 1), "readers do not wait for writers"
    other.put_if_absent([Record("t", 2, "p", 1)])


def test_what_is_no_sqlite_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.db").write_bytes(b"not a database at all, but long enough to be taken for one" * 100)
    with pytest.raises(CorruptionError, match="no SQLite database"):
        SqliteRecords(str(tmp_path / "d.db")).newest("t")


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        SqliteRecords(str(tmp_path / "no" / "d.db")).newest("t")


def test_work_that_fails_inside_a_sqlite_transaction_leaves_nothing(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "d.db"))
    database.ensure(FIRST)

    def insert_and_fail() -> None:
        with database.transaction() as connection:
            connection.execute("INSERT INTO things VALUES (2)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    assert database.read("SELECT * FROM things") == [(1,)]


# ---------------------------------------------------------------------------- PostgreSQL


def test_a_connection_that_the_server_ended_is_opened_again(postgres: PostgresServer) -> None:
    records = open_records(postgres.new_address())
    records.put_if_absent([Record("t", 1, "p", 1)])
    for version in (2, 3):
        end_connections(postgres, records)
        records.put_if_absent([Record("t", version, "p", 1)])
        end_connections(postgres, records)
        assert records.newest("t") == Record("t", version, "p", 1)


def end_connections(postgres: PostgresServer, records: object) -> None:
    pid = records._database.connection().info.backend_pid  # type: ignore[attr-defined]
    with postgres.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def test_a_wrong_password_is_a_refusal_and_is_not_repeated(postgres: PostgresServer) -> None:
    wrong = postgres.address().replace(PASSWORD_IN_URI, "another-secret")
    with pytest.raises(StoreError, match="refused") as caught:
        PostgresDatabase(wrong).call("SELECT 1")
    assert type(caught.value) is StoreError
    assert "another-secret" not in str(caught.value)


def test_transactions_that_see_too_little_are_refused(postgres: PostgresServer) -> None:
    """Under another isolation the check would not see what was committed while it waited."""
    records = open_records(postgres.new_address())
    assert records.newest("t") is None
    with records._database.transaction() as run:  # type: ignore[attr-defined]
        run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(StoreError):
            run(sql_records._CALL, (["t"], [1], ["p"], [1], [], []))


def test_a_statement_that_takes_too_long_is_ended(postgres: PostgresServer) -> None:
    with pytest.raises(StoreUnavailable, match=r"within 0\.1 s"):
        PostgresDatabase(postgres.address(), timeout_s=0.1).call("SELECT pg_sleep(20)")
