"""The states of lakes in a SQL database: which version of which lake has which rows, and what each commit said.

A commit moves the lake's head by one only if it is where the writer saw it; the check and all that is written are one
SQL transaction that holds the head's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from conroi.stores.postgres_db import PostgresDatabase
from conroi.stores.sql_schema import Schema
from conroi.stores.sqlite_db import SqliteDatabase

SCHEMA = Schema(
    "lakes",
    (
        (
            "CREATE TABLE conroi_lakes (lake TEXT PRIMARY KEY, version BIGINT NOT NULL)",
            "CREATE TABLE conroi_lake_commits (lake TEXT NOT NULL, version BIGINT NOT NULL, "
            "timestamp_ns BIGINT NOT NULL, uuid TEXT NOT NULL, idempotency_key TEXT, notes TEXT NOT NULL, "
            "changes TEXT NOT NULL, PRIMARY KEY (lake, version), UNIQUE (lake, idempotency_key))",
            "CREATE TABLE conroi_lake_rows (lake TEXT NOT NULL, object_id TEXT NOT NULL, since BIGINT NOT NULL, "
            "until BIGINT, content TEXT NOT NULL, PRIMARY KEY (lake, object_id, since))",
            "CREATE INDEX conroi_lake_rows_newest ON conroi_lake_rows (lake) WHERE until IS NULL",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """One commit as it is stored; `notes` and `changes` are JSON text."""

    version: int
    timestamp_ns: int
    uuid: str
    idempotency_key: str | None
    notes: str
    changes: str


class LakeTables(Protocol):
    """The tables of one database. Every method may be called from any thread."""

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        """The rows of one query, with `?` for each parameter."""
        ...

    def create(self, lake: str) -> None:
        """Make a lake at version 0, unless it is there."""
        ...

    def publish(self, lake: str, base: int, commit: LakeCommit, rows: Mapping[str, str | None]) -> bool:
        """Make the commit the version after `base`; False, and nothing done, if the head is elsewhere.

        `rows` are the new contents by object id, None for those that go. To send the same again is safe: it answers
        False, and the commit is found by its version.
        """
        ...

    def forget(self, lake: str, versions: Sequence[int]) -> None:
        """Remove old commits, and the rows that only they had; the newest may not be among them."""
        ...


_COMMIT = "SELECT version, timestamp_ns, uuid, idempotency_key, notes, changes FROM conroi_lake_commits WHERE lake = ?"


class LakeQueries:
    """What a lake asks, in the same words of all databases."""

    def __init__(self, tables: LakeTables, lake: str) -> None:
        self._tables = tables
        self._lake = lake

    def head(self) -> int | None:
        """The newest version; None if the lake is not there."""
        found = self._tables.ask("SELECT version FROM conroi_lakes WHERE lake = ?", [self._lake])
        return int(found[0][0]) if found else None

    def rows_at(self, version: int) -> dict[str, str]:
        """The contents of all rows at a version, by object id."""
        sql = (
            "SELECT object_id, content FROM conroi_lake_rows WHERE lake = ? AND since <= ? "
            "AND (until IS NULL OR until > ?)"
        )
        return dict(self._tables.ask(sql, [self._lake, version, version]))  # type: ignore[arg-type]

    def after(self, version: int, limit: int) -> list[LakeCommit]:
        """The commits after a version, oldest first."""
        sql = f"{_COMMIT} AND version > ? ORDER BY version LIMIT ?"
        return [LakeCommit(*row) for row in self._tables.ask(sql, [self._lake, version, limit])]

    def before(self, version: int, limit: int) -> list[LakeCommit]:
        """The commits up to a version, newest first."""
        sql = f"{_COMMIT} AND version <= ? ORDER BY version DESC LIMIT ?"
        return [LakeCommit(*row) for row in self._tables.ask(sql, [self._lake, version, limit])]

    def by_key(self, key: str) -> LakeCommit | None:
        """The commit with this idempotency key."""
        found = self._tables.ask(f"{_COMMIT} AND idempotency_key = ?", [self._lake, key])
        return LakeCommit(*found[0]) if found else None

    def as_of(self, moment_ns: int) -> LakeCommit | None:
        """The newest commit that is not newer than this."""
        sql = f"{_COMMIT} AND timestamp_ns <= ? ORDER BY version DESC LIMIT 1"
        found = self._tables.ask(sql, [self._lake, moment_ns])
        return LakeCommit(*found[0]) if found else None

    def versions(self) -> list[tuple[int, int]]:
        """All versions that are there, ascending, and when they were made."""
        sql = "SELECT version, timestamp_ns FROM conroi_lake_commits WHERE lake = ? ORDER BY version"
        return [(int(version), int(moment)) for version, moment in self._tables.ask(sql, [self._lake])]

    def spans(self) -> list[tuple[str, int, int | None, str]]:
        """Every row that any version has: its object id, since when and until before which version, its content."""
        sql = "SELECT object_id, since, until, content FROM conroi_lake_rows WHERE lake = ?"
        return self._tables.ask(sql, [self._lake])  # type: ignore[return-value]


_FORGET_ROWS = """
DELETE FROM conroi_lake_rows WHERE lake = ? AND until IS NOT NULL
AND until <= (SELECT min(version) FROM conroi_lake_commits WHERE lake = ?)
"""


class SqliteLakeTables:
    """In a SQLite file: for processes of one machine."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"SqliteLakeTables({self._path!r})"

    @cached_property
    def _database(self) -> SqliteDatabase:
        database = SqliteDatabase(self._path)
        database.ensure(SCHEMA)
        return database

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._database.read(sql, parameters)

    def create(self, lake: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("INSERT INTO conroi_lakes VALUES (?, 0) ON CONFLICT DO NOTHING", (lake,))

    def publish(self, lake: str, base: int, commit: LakeCommit, rows: Mapping[str, str | None]) -> bool:
        with self._database.transaction() as connection:
            moved = connection.execute(
                "UPDATE conroi_lakes SET version = ? WHERE lake = ? AND version = ?", (commit.version, lake, base)
            )
            if moved.rowcount != 1:
                return False
            connection.executemany(
                "UPDATE conroi_lake_rows SET until = ? WHERE lake = ? AND object_id = ? AND until IS NULL",
                [(commit.version, lake, object_id) for object_id in rows],
            )
            connection.executemany(
                "INSERT INTO conroi_lake_rows VALUES (?, ?, ?, NULL, ?)",
                [(lake, key, commit.version, content) for key, content in rows.items() if content is not None],
            )
            connection.execute("INSERT INTO conroi_lake_commits VALUES (?, ?, ?, ?, ?, ?, ?)", (lake, *_values(commit)))
        return True

    def forget(self, lake: str, versions: Sequence[int]) -> None:
        with self._database.transaction() as connection:
            delete = "DELETE FROM conroi_lake_commits WHERE lake = ? AND version = ?"
            connection.executemany(delete, [(lake, version) for version in versions])
            connection.execute(_FORGET_ROWS, (lake, lake))


class PostgresLakeTables:
    """In PostgreSQL: for writers on many hosts. A publication is one statement, so one round trip."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __repr__(self) -> str:
        return f"PostgresLakeTables({self._database.place!r})"

    @cached_property
    def _database(self) -> PostgresDatabase:
        database = PostgresDatabase(self._address)
        database.ensure(SCHEMA)
        return database

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._database.call(sql.replace("?", "%s"), parameters)

    def create(self, lake: str) -> None:
        self._database.call("INSERT INTO conroi_lakes VALUES (%s, 0) ON CONFLICT DO NOTHING", [lake])

    def publish(self, lake: str, base: int, commit: LakeCommit, rows: Mapping[str, str | None]) -> bool:
        arriving = {key: content for key, content in rows.items() if content is not None}
        parameters = {
            "lake": lake,
            "base": base,
            "version": commit.version,
            "keys": list(rows),
            "new": list(arriving),
            "contents": list(arriving.values()),
            "timestamp": commit.timestamp_ns,
            "uuid": commit.uuid,
            "key": commit.idempotency_key,
            "notes": commit.notes,
            "changes": commit.changes,
        }
        return bool(self._database.call(_PUBLISH, parameters))

    def forget(self, lake: str, versions: Sequence[int]) -> None:
        self._database.call(
            "DELETE FROM conroi_lake_commits WHERE lake = %s AND version = ANY (%s)", [lake, list(versions)]
        )
        self._database.call(_FORGET_ROWS.replace("?", "%s"), [lake, lake])


# Whoever waits for the head's row sees, when it gets it, where the head is then: its condition is looked at again.
_PUBLISH = """
WITH head AS (
    UPDATE conroi_lakes SET version = %(version)s WHERE lake = %(lake)s AND version = %(base)s RETURNING version
), closed AS (
    UPDATE conroi_lake_rows SET until = %(version)s
    WHERE lake = %(lake)s AND until IS NULL AND object_id = ANY (%(keys)s::text[]) AND EXISTS (SELECT 1 FROM head)
), added AS (
    INSERT INTO conroi_lake_rows
    SELECT %(lake)s, new.key, %(version)s, NULL, new.content
    FROM unnest(%(new)s::text[], %(contents)s::text[]) AS new(key, content), head
), noted AS (
    INSERT INTO conroi_lake_commits
    SELECT %(lake)s, %(version)s, %(timestamp)s, %(uuid)s, %(key)s, %(notes)s, %(changes)s FROM head
)
SELECT version FROM head
"""


def _values(commit: LakeCommit) -> tuple[object, ...]:
    return commit.version, commit.timestamp_ns, commit.uuid, commit.idempotency_key, commit.notes, commit.changes


def open_lake_tables(address: str) -> LakeTables:
    """The tables at the address of a store."""
    from conroi.stores.addresses import sqlite_path

    path = sqlite_path(address)
    return PostgresLakeTables(address) if path is None else SqliteLakeTables(path)
