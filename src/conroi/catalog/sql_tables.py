"""SQL schema of a lake's history: versions, rows and commits of each lake.

A publication compares and writes rows in one SQL transaction that locks the head's row: see
conroi.catalog.sql_publication. A read is one statement, so one snapshot of the database: version, rows and commits of a
read are consistent under concurrent commits and expiry.

The database assigns the commit times. Retention compares them with the database's own clock; the clocks of writers are
not recorded.
"""

# ruff: noqa: S608  # what is put into these statements are constants of this module; values are parameters

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

from conroi.catalog.sql_publication import (
    POSTGRES_FUNCTIONS,
    POSTGRES_NOW_NS,
    POSTGRES_PUBLISH,
    SQLITE_NOW_NS,
    Answer,
    Outcome,
    RowPublication,
    SqlitePublication,
    postgres_outcome,
    postgres_parameters,
)
from conroi.environment import SYSTEM, Environment
from conroi.storage.postgres import PostgresDatabase
from conroi.storage.sql_schema import Schema
from conroi.storage.sqlite import DatabaseBusy, SqliteDatabase
from conroi.versions import sqlite_path

_STEP_1 = (
    "CREATE TABLE conroi_lakes (lake TEXT PRIMARY KEY, version BIGINT NOT NULL)",
    "CREATE TABLE conroi_lake_commits (lake TEXT NOT NULL, version BIGINT NOT NULL, "
    "timestamp_ns BIGINT NOT NULL, uuid TEXT NOT NULL, idempotency_key TEXT, notes TEXT NOT NULL, "
    "changes TEXT NOT NULL, PRIMARY KEY (lake, version), UNIQUE (lake, idempotency_key))",
    "CREATE TABLE conroi_lake_rows (lake TEXT NOT NULL, object_id TEXT NOT NULL, since BIGINT NOT NULL, "
    "until BIGINT, content TEXT NOT NULL, PRIMARY KEY (lake, object_id, since))",
    "CREATE INDEX conroi_lake_rows_newest ON conroi_lake_rows (lake) WHERE until IS NULL",
)


def _step_2(now_ns: str) -> tuple[str, ...]:
    """Lakes get an id apart from their folder; the database dates commits. Older ones count as made just now."""
    return (
        "ALTER TABLE conroi_lakes ADD COLUMN root TEXT",
        "UPDATE conroi_lakes SET root = lake",
        "CREATE UNIQUE INDEX conroi_lakes_root ON conroi_lakes (root)",
        "ALTER TABLE conroi_lake_commits ADD COLUMN dated_ns BIGINT",
        f"UPDATE conroi_lake_commits SET dated_ns = {now_ns}",
    )


SQLITE_SCHEMA = Schema("lakes", (_STEP_1, _step_2(SQLITE_NOW_NS)))
POSTGRES_SCHEMA = Schema(
    "lakes",
    (
        _STEP_1,
        # An older conroi that goes on writing does not fill the column, and is refused.
        (*_step_2(POSTGRES_NOW_NS), "ALTER TABLE conroi_lake_commits ALTER COLUMN dated_ns SET NOT NULL"),
    ),
)


class LakeTables(Protocol):
    """The tables of one database. Every method may be called from any thread."""

    @property
    def now_ns(self) -> str:
        """The database's clock, as an SQL expression."""
        ...

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        """The rows of one query, with `?` for each parameter."""
        ...

    def add_lake(self, lake: str, root: str) -> None:
        """Create a lake at version 0 for this folder, unless there is one."""
        ...

    def move_lake(self, lake: str, old_root: str, new_root: str) -> bool:
        """Assign a lake to another folder; False if it is not in the old one."""
        ...

    def remove_lake(self, lake: str, root: str) -> None:
        """Delete a lake, if it is in this folder."""
        ...

    def publish(self, lake: str, root: str, wanted: RowPublication) -> Outcome:
        """Compare and publish, with the database's time: see conroi.catalog.sql_publication.

        It is sent once: StoreUnavailable means that the database may still execute it. Sending it again waits for that,
        and returns what became of it.
        """
        ...

    def forget(self, lake: str, versions: Sequence[int]) -> None:
        """Delete old commits, never the newest, and the rows that only they had."""
        ...


WrapStore = Callable[[LakeTables], LakeTables]
"""Wraps an instrument around the tables of a database."""


def unwrapped_store(tables: LakeTables) -> LakeTables:
    """The tables as they are."""
    return tables


_FORGET_ROWS = """
DELETE FROM conroi_lake_rows WHERE lake = ? AND until IS NOT NULL
AND until <= (SELECT min(version) FROM conroi_lake_commits WHERE lake = ?)
"""
_REMOVE = "DELETE FROM conroi_lakes WHERE lake = ? AND root = ?"
_REMOVE_HISTORY = ("DELETE FROM conroi_lake_commits WHERE lake = ?", "DELETE FROM conroi_lake_rows WHERE lake = ?")
_MOVE = "UPDATE conroi_lakes SET root = ? WHERE lake = ? AND root = ?"


class SqliteLakeTables:
    """In a SQLite file: for processes of one machine."""

    now_ns = SQLITE_NOW_NS

    def __init__(self, path: str, environment: Environment = SYSTEM) -> None:
        self._path = path
        self._environment = environment

    def __repr__(self) -> str:
        return f"SqliteLakeTables({self._path!r})"

    @cached_property
    def _database(self) -> SqliteDatabase:
        database = SqliteDatabase(self._path, environment=self._environment)
        database.ensure(SQLITE_SCHEMA)
        return database

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._database.read(sql, parameters)

    def add_lake(self, lake: str, root: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("INSERT INTO conroi_lakes VALUES (?, 0, ?) ON CONFLICT DO NOTHING", (lake, root))

    def move_lake(self, lake: str, old_root: str, new_root: str) -> bool:
        with self._database.transaction() as connection:
            return connection.execute(_MOVE, (new_root, lake, old_root)).rowcount == 1

    def remove_lake(self, lake: str, root: str) -> None:
        with self._database.transaction() as connection:
            if connection.execute(_REMOVE, (lake, root)).rowcount:
                for statement in _REMOVE_HISTORY:
                    connection.execute(statement, (lake,))

    def publish(self, lake: str, root: str, wanted: RowPublication) -> Outcome:
        try:
            with self._database.transaction() as connection:
                return SqlitePublication(connection, lake, root, wanted).run()
        except DatabaseBusy:
            return Outcome(Answer.BUSY)

    def forget(self, lake: str, versions: Sequence[int]) -> None:
        with self._database.transaction() as connection:
            delete = (
                "DELETE FROM conroi_lake_commits WHERE lake = ? AND version = ? "
                "AND version < (SELECT version FROM conroi_lakes WHERE lake = ?)"
            )
            connection.executemany(delete, [(lake, version, lake) for version in versions])
            connection.execute(_FORGET_ROWS, (lake, lake))


class PostgresLakeTables:
    """In PostgreSQL: for writers on many hosts. A publication is one statement, so one round trip."""

    now_ns = POSTGRES_NOW_NS

    def __init__(self, address: str, environment: Environment = SYSTEM) -> None:
        self._address = address
        self._environment = environment
        self._has_functions = False

    def __repr__(self) -> str:
        return f"PostgresLakeTables({self._database.place!r})"

    @cached_property
    def _database(self) -> PostgresDatabase:
        database = PostgresDatabase(self._address, environment=self._environment)
        database.ensure(POSTGRES_SCHEMA)
        return database

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._database.call(sql.replace("?", "%s"), parameters)

    def add_lake(self, lake: str, root: str) -> None:
        self._database.call("INSERT INTO conroi_lakes VALUES (%s, 0, %s) ON CONFLICT DO NOTHING", [lake, root])

    def move_lake(self, lake: str, old_root: str, new_root: str) -> bool:
        sql = f"{_MOVE.replace('?', '%s')} RETURNING 1"
        return bool(self._database.call(sql, [new_root, lake, old_root], is_sent_again=False))

    def remove_lake(self, lake: str, root: str) -> None:
        with self._database.transaction() as run:
            if run(f"{_REMOVE.replace('?', '%s')} RETURNING 1", [lake, root]):
                for statement in _REMOVE_HISTORY:
                    run(statement.replace("?", "%s"), [lake])

    def publish(self, lake: str, root: str, wanted: RowPublication) -> Outcome:
        if not self._has_functions:
            self._database.ensure(POSTGRES_FUNCTIONS)
            self._has_functions = True
        parameters = postgres_parameters(lake, root, wanted)
        return postgres_outcome(wanted, self._database.call(POSTGRES_PUBLISH, parameters, is_sent_again=False))

    def forget(self, lake: str, versions: Sequence[int]) -> None:
        with self._database.transaction() as run:
            run(
                "DELETE FROM conroi_lake_commits WHERE lake = %s AND version = ANY (%s) "
                "AND version < (SELECT version FROM conroi_lakes WHERE lake = %s)",
                [lake, list(versions), lake],
            )
            run(_FORGET_ROWS.replace("?", "%s"), [lake, lake])


def open_lake_tables(address: str, environment: Environment = SYSTEM) -> LakeTables:
    """The tables at the address of a store."""
    path = sqlite_path(address)
    return PostgresLakeTables(address, environment) if path is None else SqliteLakeTables(path, environment)
