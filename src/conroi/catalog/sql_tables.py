"""SQL schema of a lake's history: versions, rows and commits of each lake.

A commit advances the lake's head by one only if the head is still at the version that the writer read. The check and
all writes are one SQL transaction that locks the head's row. A read is one statement, so one snapshot of the database:
version, rows and commits of a read are consistent under concurrent commits and expiry.

The database assigns the commit times. Retention compares them with the database's own clock; the clocks of writers are
not recorded.
"""

# ruff: noqa: S608  # what is put into these statements are constants of this module; values are parameters

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from conroi.environment import SYSTEM, Environment
from conroi.storage.postgres import PostgresDatabase
from conroi.storage.sql_schema import Schema
from conroi.storage.sqlite import DatabaseBusy, SqliteDatabase
from conroi.versions import sqlite_path

_SQLITE_NOW_NS = (
    "(CAST(strftime('%s', 'now') AS INTEGER) * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)) * 1000000"
)
_POSTGRES_NOW_NS = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"
TICK_NS = 1000
"""Minimum distance of two versions of a lake, in nanoseconds: the resolution of a datetime."""

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


SQLITE_SCHEMA = Schema("lakes", (_STEP_1, _step_2(_SQLITE_NOW_NS)))
POSTGRES_SCHEMA = Schema(
    "lakes",
    (
        _STEP_1,
        # An older conroi that goes on writing does not fill the column, and is refused.
        (*_step_2(_POSTGRES_NOW_NS), "ALTER TABLE conroi_lake_commits ALTER COLUMN dated_ns SET NOT NULL"),
    ),
)


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """One commit as it is stored; `notes` and `changes` are JSON text."""

    version: int
    uuid: str
    idempotency_key: str | None
    notes: str
    changes: str
    timestamp_ns: int = 0
    """By the clock of the database, and later than that of the previous version; 0 before it is published."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version of a lake, and the folder that the database has it for."""

    version: int
    root: str


@dataclass(frozen=True, slots=True)
class LoadedState:
    """The contents of all rows of a lake at one version, by object id."""

    version: int
    timestamp_ns: int
    rows: Mapping[str, str]


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

    def publish(
        self, lake: str, root: str, base: int, commit: LakeCommit, rows: Mapping[str, str | None]
    ) -> LakeCommit | None:
        """Commit as the version after `base`, with the database's time; None, without effect, if the head has moved.

        `rows` are the new contents by object id, None for deleted ones. It is sent once: StoreUnavailable means that
        the database may still execute it. Sending it again waits for that, and has no effect if it succeeded.
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


_COMMIT = "c.version, c.uuid, c.idempotency_key, c.notes, c.changes, c.timestamp_ns"
_ROWS_AT_COMMIT = "r.since <= c.version AND (r.until IS NULL OR r.until > c.version)"


class LakeQueries:
    """The queries of a lake, in SQL common to all databases. Every method is one statement."""

    def __init__(self, tables: LakeTables, lake: str) -> None:
        self._tables = tables
        self._lake = lake

    def head(self) -> Head | None:
        """The newest version; None if the database does not have the lake."""
        found = self._tables.ask("SELECT version, root FROM conroi_lakes WHERE lake = ?", [self._lake])
        return Head(int(found[0][0]), str(found[0][1])) if found else None

    def after(self, version: int, limit: int) -> tuple[Head | None, list[LakeCommit]]:
        """The head, and the commits after a version that are there, oldest first; some may have been collected."""
        sql = (
            f"SELECT h.version, h.root, {_COMMIT} FROM conroi_lakes h "
            "LEFT JOIN conroi_lake_commits c ON c.lake = h.lake AND c.version > ? "
            "WHERE h.lake = ? ORDER BY c.version LIMIT ?"
        )
        found = self._tables.ask(sql, [version, self._lake, limit])
        if not found:
            return None, []
        commits = [LakeCommit(*row[2:]) for row in found if row[2] is not None]
        return Head(int(found[0][0]), str(found[0][1])), commits

    def newest(self) -> tuple[Head | None, LoadedState | None]:
        """The head and all its rows; no state if its commit is missing, or if nothing was committed yet."""
        return self._loaded("h.version", [], "r.until IS NULL AND c.version IS NOT NULL")

    def at(self, version: int) -> tuple[Head | None, LoadedState | None]:
        """The head, and all rows at a version; no state if that does not exist."""
        return self._loaded("?", [version], _ROWS_AT_COMMIT)

    def as_of(self, moment_ns: int) -> tuple[Head | None, LoadedState | None]:
        """The head, and all rows at the newest version that is not newer than this."""
        wanted = "(SELECT max(o.version) FROM conroi_lake_commits o WHERE o.lake = h.lake AND o.timestamp_ns <= ?)"
        return self._loaded(wanted, [moment_ns], _ROWS_AT_COMMIT)

    def _loaded(self, version: str, parameters: Sequence[object], rows: str) -> tuple[Head | None, LoadedState | None]:
        sql = (
            "SELECT h.version, h.root, c.version, c.timestamp_ns, r.object_id, r.content FROM conroi_lakes h "
            f"LEFT JOIN conroi_lake_commits c ON c.lake = h.lake AND c.version = {version} "
            f"LEFT JOIN conroi_lake_rows r ON r.lake = h.lake AND {rows} WHERE h.lake = ?"
        )
        found = self._tables.ask(sql, [*parameters, self._lake])
        if not found:
            return None, None
        head = Head(int(found[0][0]), str(found[0][1]))
        if found[0][2] is None:
            return head, None
        contents = {row[4]: row[5] for row in found if row[4] is not None}
        return head, LoadedState(int(found[0][2]), int(found[0][3]), contents)

    def before(self, version: int, limit: int) -> list[LakeCommit]:
        """The commits up to a version, newest first."""
        sql = (
            f"SELECT {_COMMIT} FROM conroi_lake_commits c WHERE c.lake = ? AND c.version <= ? "
            "ORDER BY c.version DESC LIMIT ?"
        )
        return [LakeCommit(*row) for row in self._tables.ask(sql, [self._lake, version, limit])]

    def commit(self, version: int) -> LakeCommit | None:
        """The commit of this version; None if it does not exist."""
        sql = f"SELECT {_COMMIT} FROM conroi_lake_commits c WHERE c.lake = ? AND c.version = ?"
        found = self._tables.ask(sql, [self._lake, version])
        return LakeCommit(*found[0]) if found else None

    def by_key(self, key: str) -> LakeCommit | None:
        """The commit with this idempotency key."""
        sql = f"SELECT {_COMMIT} FROM conroi_lake_commits c WHERE c.lake = ? AND c.idempotency_key = ?"
        found = self._tables.ask(sql, [self._lake, key])
        return LakeCommit(*found[0]) if found else None

    def lake_at(self, root: str) -> str | None:
        """The id of the lake that the database has for a folder."""
        found = self._tables.ask("SELECT lake FROM conroi_lakes WHERE root = ?", [root])
        return str(found[0][0]) if found else None

    def versions(self) -> list[tuple[int, int]]:
        """All versions that are there, ascending, and when the database made them, by its clock."""
        sql = "SELECT version, dated_ns FROM conroi_lake_commits WHERE lake = ? ORDER BY version"
        return [(int(version), int(moment)) for version, moment in self._tables.ask(sql, [self._lake])]

    def now_ns(self) -> int:
        """The time by the clock of the database."""
        return int(self._tables.ask(f"SELECT {self._tables.now_ns}", [])[0][0])

    def spans(self) -> list[tuple[str, int, int | None, str]]:
        """Every row that any version has: its object id, since when and until before which version, its content."""
        sql = "SELECT object_id, since, until, content FROM conroi_lake_rows WHERE lake = ?"
        return self._tables.ask(sql, [self._lake])  # type: ignore[return-value]


_FORGET_ROWS = """
DELETE FROM conroi_lake_rows WHERE lake = ? AND until IS NOT NULL
AND until <= (SELECT min(version) FROM conroi_lake_commits WHERE lake = ?)
"""
_REMOVE = "DELETE FROM conroi_lakes WHERE lake = ? AND root = ?"
_REMOVE_HISTORY = ("DELETE FROM conroi_lake_commits WHERE lake = ?", "DELETE FROM conroi_lake_rows WHERE lake = ?")
_MOVE = "UPDATE conroi_lakes SET root = ? WHERE lake = ? AND root = ?"
_TIMESTAMP = (
    "{greatest}({now}, {tick} + coalesce((SELECT b.timestamp_ns FROM conroi_lake_commits b "
    "WHERE b.lake = {lake} AND b.version = {base}), 0))"
)


class SqliteLakeTables:
    """In a SQLite file: for processes of one machine."""

    now_ns = _SQLITE_NOW_NS

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

    def publish(
        self, lake: str, root: str, base: int, commit: LakeCommit, rows: Mapping[str, str | None]
    ) -> LakeCommit | None:
        try:
            return self._publish(lake, root, base, commit, rows)
        except DatabaseBusy:  # nothing was sent, so the caller may look and come again
            return None

    def _publish(
        self, lake: str, root: str, base: int, commit: LakeCommit, rows: Mapping[str, str | None]
    ) -> LakeCommit | None:
        with self._database.transaction() as connection:
            moved = connection.execute(
                "UPDATE conroi_lakes SET version = ? WHERE lake = ? AND root = ? AND version = ?",
                (commit.version, lake, root, base),
            )
            if moved.rowcount != 1:
                return None
            connection.executemany(
                "UPDATE conroi_lake_rows SET until = ? WHERE lake = ? AND object_id = ? AND until IS NULL",
                [(commit.version, lake, object_id) for object_id in rows],
            )
            connection.executemany(
                "INSERT INTO conroi_lake_rows VALUES (?, ?, ?, NULL, ?)",
                [(lake, key, commit.version, content) for key, content in rows.items() if content is not None],
            )
            moment = _TIMESTAMP.format(greatest="max", now=_SQLITE_NOW_NS, tick=TICK_NS, lake="?", base="?")
            connection.execute(
                f"INSERT INTO conroi_lake_commits VALUES (?, ?, {moment}, ?, ?, ?, ?, {_SQLITE_NOW_NS})",
                (lake, commit.version, lake, base, commit.uuid, commit.idempotency_key, commit.notes, commit.changes),
            )
            ((timestamp_ns,),) = connection.execute(
                "SELECT timestamp_ns FROM conroi_lake_commits WHERE lake = ? AND version = ?", (lake, commit.version)
            )
        return replace(commit, timestamp_ns=int(timestamp_ns))

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

    now_ns = _POSTGRES_NOW_NS

    def __init__(self, address: str, environment: Environment = SYSTEM) -> None:
        self._address = address
        self._environment = environment

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

    def publish(
        self, lake: str, root: str, base: int, commit: LakeCommit, rows: Mapping[str, str | None]
    ) -> LakeCommit | None:
        arriving = {key: content for key, content in rows.items() if content is not None}
        parameters = {
            "lake": lake,
            "root": root,
            "base": base,
            "version": commit.version,
            "keys": list(rows),
            "new": list(arriving),
            "contents": list(arriving.values()),
            "uuid": commit.uuid,
            "key": commit.idempotency_key,
            "notes": commit.notes,
            "changes": commit.changes,
        }
        found = self._database.call(_PUBLISH, parameters, is_sent_again=False)
        return replace(commit, timestamp_ns=int(found[0][0])) if found else None

    def forget(self, lake: str, versions: Sequence[int]) -> None:
        with self._database.transaction() as run:
            run(
                "DELETE FROM conroi_lake_commits WHERE lake = %s AND version = ANY (%s) "
                "AND version < (SELECT version FROM conroi_lakes WHERE lake = %s)",
                [lake, list(versions), lake],
            )
            run(_FORGET_ROWS.replace("?", "%s"), [lake, lake])


# A writer that waited for the lock of the head's row sees where the head is then: its condition is looked at again.
_PUBLISH = f"""
WITH head AS (
    UPDATE conroi_lakes SET version = %(version)s
    WHERE lake = %(lake)s AND root = %(root)s AND version = %(base)s RETURNING version
), clock AS MATERIALIZED (
    SELECT {_POSTGRES_NOW_NS} AS now_ns FROM head
), closed AS (
    UPDATE conroi_lake_rows SET until = %(version)s
    WHERE lake = %(lake)s AND until IS NULL AND object_id = ANY (%(keys)s::text[]) AND EXISTS (SELECT 1 FROM head)
), added AS (
    INSERT INTO conroi_lake_rows
    SELECT %(lake)s, new.key, %(version)s, NULL, new.content
    FROM unnest(%(new)s::text[], %(contents)s::text[]) AS new(key, content), head
), noted AS (
    INSERT INTO conroi_lake_commits (lake, version, timestamp_ns, uuid, idempotency_key, notes, changes, dated_ns)
    SELECT %(lake)s, %(version)s, {
    _TIMESTAMP.format(greatest="greatest", now="now_ns", tick=TICK_NS, lake="%(lake)s", base="%(base)s")
}, %(uuid)s, %(key)s, %(notes)s, %(changes)s, now_ns FROM clock
    RETURNING timestamp_ns
)
SELECT timestamp_ns FROM noted
"""


def open_lake_tables(address: str, environment: Environment = SYSTEM) -> LakeTables:
    """The tables at the address of a store."""
    path = sqlite_path(address)
    return PostgresLakeTables(address, environment) if path is None else SqliteLakeTables(path, environment)
