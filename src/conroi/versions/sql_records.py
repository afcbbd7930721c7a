"""External manifest stores in SQL: a SQLite file for one machine, PostgreSQL for writers on many hosts."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from conroi.storage.objects import Objects
from conroi.storage.postgres import DEFAULT_TIMEOUT_S, PostgresDatabase, Row
from conroi.storage.sql_schema import Schema
from conroi.storage.sqlite import SQLITE_TIMEOUT_S, SqliteDatabase
from conroi.versions.records import Record, RecordTaken, check_batch, full_key, mismatch

SQLITE_SCHEMA = Schema(
    "records",
    (
        (
            "CREATE TABLE conroi_records (table_key TEXT NOT NULL, version BIGINT NOT NULL, path TEXT NOT NULL, "
            "size BIGINT NOT NULL, PRIMARY KEY (table_key, version)) WITHOUT ROWID",
        ),
    ),
)
_SQLITE_COLUMNS = "SELECT table_key, version, path, size FROM conroi_records WHERE table_key = ?"


class SqliteRecords:
    """A batch is one transaction that has the database to itself (`BEGIN IMMEDIATE`)."""

    def __init__(self, path: str, *, timeout_s: float = SQLITE_TIMEOUT_S) -> None:
        self._database = SqliteDatabase(path, timeout_s=timeout_s)
        self._ensuring = threading.Lock()
        self._is_ready = False

    def __repr__(self) -> str:
        return f"SqliteRecords({self._database.path!r})"

    def __reduce__(self) -> tuple[Callable[[str], SqliteRecords], tuple[str]]:
        return partial(SqliteRecords, timeout_s=self._database.timeout_s), (self._database.path,)

    def key_of(self, objects: Objects) -> str:
        return full_key(objects)

    def put_if_absent(self, records: Sequence[Record], expected: Mapping[str, int] | None = None) -> None:
        expected = expected or {}
        check_batch(records, expected)
        with self._ready().transaction() as connection:
            newest = _newest(connection, {*expected, *(record.table for record in records)})
            are_there = records and all(record.version <= newest[record.table] for record in records)
            if are_there and all(_path(connection, record) == record.path for record in records):
                return  # an earlier request of ours succeeded
            for table in sorted(expected):
                if newest[table] != expected[table]:
                    raise mismatch(table, expected[table], newest[table])
            for record in records:
                if record.version <= newest[record.table]:
                    raise RecordTaken(record.table, record.version, _path(connection, record))
            connection.executemany(
                "INSERT INTO conroi_records VALUES (?, ?, ?, ?)",
                [(r.table, r.version, r.path, r.size) for r in records],
            )

    def newest(self, table: str) -> Record | None:
        found = self._ready().read(f"{_SQLITE_COLUMNS} ORDER BY version DESC LIMIT 1", (table,))
        return Record(*found[0]) if found else None

    def get(self, table: str, version: int) -> Record | None:
        found = self._ready().read(f"{_SQLITE_COLUMNS} AND version = ?", (table, version))
        return Record(*found[0]) if found else None

    def all(self, table: str) -> list[Record]:
        return [Record(*row) for row in self._ready().read(f"{_SQLITE_COLUMNS} ORDER BY version", (table,))]

    def point(self, table: str, version: int, path: str, size: int) -> bool:
        update = "UPDATE conroi_records SET path = ?, size = ? WHERE table_key = ? AND version = ?"
        # Not synced to disk: if a power cut undoes it, the next reader of the record repeats it.
        with self._ready().transaction(is_synced=False) as connection:
            return connection.execute(update, (path, size, table, version)).rowcount == 1

    def forget(self, table: str, versions: Sequence[int]) -> None:
        delete = "DELETE FROM conroi_records WHERE table_key = ? AND version = ?"
        with self._ready().transaction() as connection:
            connection.executemany(delete, [(table, version) for version in versions])

    def close(self) -> None:
        self._database.close()

    def _ready(self) -> SqliteDatabase:
        if not self._is_ready:
            with self._ensuring:
                self._database.ensure(SQLITE_SCHEMA)
                self._is_ready = True
        return self._database


def _path(connection: sqlite3.Connection, record: Record) -> str | None:
    found = connection.execute(f"{_SQLITE_COLUMNS} AND version = ?", (record.table, record.version)).fetchone()
    return None if found is None else Record(*found).path


def _newest(connection: sqlite3.Connection, tables: Iterable[str]) -> dict[str, int]:
    query = "SELECT max(version) FROM conroi_records WHERE table_key = ?"
    return {table: connection.execute(query, (table,)).fetchone()[0] or 0 for table in tables}


_PUT = """
CREATE FUNCTION conroi_put_records(
    tables TEXT[], versions BIGINT[], paths TEXT[], sizes BIGINT[], expected_tables TEXT[], expected_versions BIGINT[],
    OUT answer TEXT, OUT which TEXT, OUT version BIGINT, OUT path TEXT
) LANGUAGE plpgsql AS $$
DECLARE
    asked RECORD;
BEGIN
    -- Each statement below must see what was committed while we waited for the lock.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'conroi needs transactions that are read committed';
    END IF;
    INSERT INTO conroi_tables SELECT DISTINCT key FROM unnest(tables || expected_tables) AS key ORDER BY key
        ON CONFLICT DO NOTHING;
    PERFORM 1 FROM conroi_tables AS t WHERE t.table_key = ANY (tables || expected_tables)
        ORDER BY t.table_key FOR UPDATE;
    IF cardinality(tables) > 0 AND cardinality(tables) = (
        SELECT count(*) FROM unnest(tables, versions, paths) AS mine(key, number, file)
        JOIN conroi_records AS r ON (r.table_key, r.version, r.path) = (mine.key, mine.number, mine.file)
    ) THEN
        answer := 'done';
        RETURN;
    END IF;
    FOR asked IN SELECT * FROM unnest(expected_tables, expected_versions) AS e(key, number) ORDER BY key LOOP
        SELECT coalesce(max(r.version), 0) INTO version FROM conroi_records AS r WHERE r.table_key = asked.key;
        IF version <> asked.number THEN
            answer := 'moved';
            which := asked.key;
            RETURN;
        END IF;
    END LOOP;
    FOR asked IN SELECT * FROM unnest(tables, versions) AS m(key, number) ORDER BY key, number LOOP
        SELECT coalesce(max(r.version), 0) INTO version FROM conroi_records AS r WHERE r.table_key = asked.key;
        IF asked.number <= version THEN
            answer := 'taken';
            which := asked.key;
            version := asked.number;
            SELECT r.path INTO path FROM conroi_records AS r
                WHERE r.table_key = asked.key AND r.version = asked.number;
            RETURN;
        END IF;
    END LOOP;
    INSERT INTO conroi_records SELECT * FROM unnest(tables, versions, paths, sizes);
    answer := 'done';
END $$
"""
SCHEMA = Schema(
    "records",
    (
        (
            "CREATE TABLE conroi_tables (table_key TEXT PRIMARY KEY)",
            "CREATE TABLE conroi_records (table_key TEXT NOT NULL, version BIGINT NOT NULL, path TEXT NOT NULL, "
            "size BIGINT NOT NULL, PRIMARY KEY (table_key, version))",
            _PUT,
        ),
    ),
)
_CALL_FOR_ONE = (
    "SELECT * FROM conroi_put_records(ARRAY[%s::text], ARRAY[%s::bigint], ARRAY[%s::text], ARRAY[%s::bigint], "
    "ARRAY[%s::text], ARRAY[%s::bigint])"
)
"""The same for one record of one table, as in every commit: lists cost the client more than the rest of the call."""
_CALL = "SELECT * FROM conroi_put_records(%s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::bigint[])"
# Not synced to disk: if a power cut undoes it, the next reader of the record repeats it.
_POINT = (
    "WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS set) "
    "UPDATE conroi_records SET path = %s, size = %s FROM quick "
    "WHERE table_key = %s AND version = %s AND quick.set IS NOT NULL RETURNING 1"
)
_POINT_BY_NUMBER = _POINT % ("$1::text", "$2::bigint", "$3::text", "$4::bigint")
_COLUMNS = "SELECT table_key, version, path, size FROM conroi_records WHERE table_key = %s"


class PostgresRecords:
    """Every method is one statement, a transaction of its own."""

    def __init__(self, address: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._address = address
        self._database = PostgresDatabase(address, timeout_s=timeout_s)
        self._ensuring = threading.Lock()
        self._is_ready = False

    def __repr__(self) -> str:
        return f"PostgresRecords({self._database.place!r})"

    def __reduce__(self) -> tuple[Callable[[str], PostgresRecords], tuple[str]]:
        return partial(PostgresRecords, timeout_s=self._database.timeout_s), (self._address,)

    def key_of(self, objects: Objects) -> str:
        return full_key(objects)

    def put_if_absent(self, records: Sequence[Record], expected: Mapping[str, int] | None = None) -> None:
        expected = expected or {}
        check_batch(records, expected)
        if len(records) == len(expected) == 1:
            ((only, at),), record = expected.items(), records[0]
            found = self._call(_CALL_FOR_ONE, (record.table, record.version, record.path, record.size, only, at))
        else:
            columns = [[r.table for r in records], [r.version for r in records], [r.path for r in records]]
            sizes = [r.size for r in records]
            found = self._call(_CALL, (*columns, sizes, [*expected], [*expected.values()]))
        ((answer, table, version, path),) = found
        if answer == "moved":
            raise mismatch(table, expected[table], version)
        if answer == "taken":
            raise RecordTaken(table, version, path)

    def newest(self, table: str) -> Record | None:
        return self._one(f"{_COLUMNS} ORDER BY version DESC LIMIT 1", table)

    def get(self, table: str, version: int) -> Record | None:
        return self._one(f"{_COLUMNS} AND version = %s", table, version)

    def all(self, table: str) -> list[Record]:
        return [Record(*row) for row in self._call(f"{_COLUMNS} ORDER BY version", (table,))]

    def point(self, table: str, version: int, path: str, size: int) -> bool:
        return bool(self._call(_POINT, (path, size, table, version)))

    def send_pointer(self, table: str, version: int, path: str, size: int) -> None:
        """The same, without waiting for the answer."""
        self._ready().send(_POINT_BY_NUMBER, (path, str(size), table, str(version)))

    def forget(self, table: str, versions: Sequence[int]) -> None:
        delete = "DELETE FROM conroi_records WHERE table_key = %s AND version = ANY (%s)"
        self._call(delete, (table, list(versions)))

    def close(self) -> None:
        self._database.close()

    def _one(self, query: str, *parameters: object) -> Record | None:
        found = self._call(query, parameters)
        return Record(*found[0]) if found else None

    def _call(self, sql: str, parameters: Sequence[object]) -> list[Row]:
        return self._ready().call(sql, parameters)

    def _ready(self) -> PostgresDatabase:
        if not self._is_ready:
            with self._ensuring:
                self._database.ensure(SCHEMA)
                self._is_ready = True
        return self._database
