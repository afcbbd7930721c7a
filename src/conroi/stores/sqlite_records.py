"""External manifest store in a SQLite file, for processes of one machine."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from conroi.stores.objects import Objects
from conroi.stores.records import Record, RecordTaken, check_batch, mismatch
from conroi.stores.sql_schema import Schema
from conroi.stores.sqlite_db import DEFAULT_TIMEOUT_S, SqliteDatabase
from conroi.stores.table_keys import full_key

SCHEMA = Schema(
    "records",
    (
        (
            "CREATE TABLE conroi_records (table_key TEXT NOT NULL, version BIGINT NOT NULL, path TEXT NOT NULL, "
            "size BIGINT NOT NULL, PRIMARY KEY (table_key, version)) WITHOUT ROWID",
        ),
    ),
)
_COLUMNS = "SELECT table_key, version, path, size FROM conroi_records WHERE table_key = ?"


class SqliteRecords:
    """A batch is one transaction that has the database to itself (`BEGIN IMMEDIATE`)."""

    def __init__(self, path: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
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
            if records and all(_path(connection, record) == record.path for record in records):
                return  # an earlier request of ours succeeded
            newest = _newest(connection, {*expected, *(record.table for record in records)})
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
        found = self._ready().read(f"{_COLUMNS} ORDER BY version DESC LIMIT 1", (table,))
        return Record(*found[0]) if found else None

    def get(self, table: str, version: int) -> Record | None:
        found = self._ready().read(f"{_COLUMNS} AND version = ?", (table, version))
        return Record(*found[0]) if found else None

    def all(self, table: str) -> list[Record]:
        return [Record(*row) for row in self._ready().read(f"{_COLUMNS} ORDER BY version", (table,))]

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
                self._database.ensure(SCHEMA)
                self._is_ready = True
        return self._database


def _path(connection: sqlite3.Connection, record: Record) -> str | None:
    found = connection.execute(f"{_COLUMNS} AND version = ?", (record.table, record.version)).fetchone()
    return None if found is None else Record(*found).path


def _newest(connection: sqlite3.Connection, tables: Iterable[str]) -> dict[str, int]:
    query = "SELECT max(version) FROM conroi_records WHERE table_key = ?"
    return {table: connection.execute(query, (table,)).fetchone()[0] or 0 for table in tables}
