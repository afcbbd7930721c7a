"""SQLite client shared by many threads and processes of one machine: bounded waits and typed errors."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from conroi.environment import SYSTEM, Environment
from conroi.errors import ConroiError, CorruptionError, InvalidInputError, StoreError, StoreUnavailable
from conroi.storage.sql_schema import CREATE_SCHEMA_TABLE, SCHEMA_TABLE, Schema

T = TypeVar("T")
Row = tuple[Any, ...]
SQLITE_TIMEOUT_S = 30.0
_WAL_PAUSE_S = 0.01
_of_parents: list[sqlite3.Connection] = []
"""Connections that came over a fork: SQLite forbids to use or close them here."""


class DatabaseBusy(StoreUnavailable):
    """Internal: other writers held the database for longer than the timeout; nothing was written."""


class SqliteDatabase:
    """One connection, opened at first use, in write-ahead mode: readers and writers do not block each other.

    Writers wait for each other, `timeout_s` at most. An interrupt (KeyboardInterrupt) in the middle of anything closes
    the connection, which rolls back and releases all locks; the next call opens another one.
    """

    def __init__(self, path: str, *, timeout_s: float = SQLITE_TIMEOUT_S, environment: Environment = SYSTEM) -> None:
        self.path: str = os.path.abspath(path)
        self.timeout_s = timeout_s
        self._environment = environment
        self._mutex = threading.RLock()
        self._mutex_owner = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._owner = 0
        self._is_writing = False
        self._is_synced: bool | None = None
        """The mode of the connection's last transaction."""

    def __repr__(self) -> str:
        return f"SqliteDatabase({self.path!r})"

    @property
    def _lock(self) -> threading.RLock:
        """One thread at a time. A thread that held it when the process forked does not run here, so it starts free."""
        if self._mutex_owner != os.getpid():
            self._mutex, self._mutex_owner, self._is_writing = threading.RLock(), os.getpid(), False
        return self._mutex

    def read(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """The rows of one query."""
        return self._guarded("read", lambda connection: connection.execute(sql, parameters).fetchall())

    @contextlib.contextmanager
    def transaction(self, *, is_synced: bool = True) -> Generator[sqlite3.Connection]:
        """Exclusive write transaction: all statements inside are committed, or none.

        What is not synced survives a crash of the process but may be undone by a power cut, whole.
        """
        with self._lock:
            try:
                connection = self._guarded("write", lambda connection: self._begin(connection, is_synced=is_synced))
                self._is_writing = True
                yield connection
                self._guarded("write", lambda connection: connection.execute("COMMIT"))
            except sqlite3.Error as error:
                raise self._typed("write", error) from error
            finally:
                self._is_writing = False
                self._end_transaction()

    def _begin(self, connection: sqlite3.Connection, *, is_synced: bool) -> sqlite3.Connection:
        if self._is_synced is not is_synced:
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
            self._is_synced = is_synced
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def _end_transaction(self) -> None:
        """Roll back what was not committed; a connection that cannot do that is closed, which does it too."""
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except BaseException:
            self.close()
            raise

    def ensure(self, schema: Schema) -> None:
        """Create the tables of this schema, or migrate them; a reader of a current database writes nothing."""
        if self._version_of(schema) == schema.version:
            return
        with self.transaction() as connection:
            connection.execute(CREATE_SCHEMA_TABLE)
            for statement in schema.missing(self._version_of(schema), self.path):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO conroi_schema VALUES (?, ?) ON CONFLICT (component) DO UPDATE SET version = ?",
                (schema.component, schema.version, schema.version),
            )

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    def _version_of(self, schema: Schema) -> int:
        if not self.read("SELECT 1 FROM sqlite_master WHERE name = ?", (SCHEMA_TABLE,)):
            return 0
        found = self.read("SELECT version FROM conroi_schema WHERE component = ?", (schema.component,))
        return int(found[0][0]) if found else 0

    def _guarded(self, verb: str, request: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                return request(self._opened())
            except sqlite3.Error as error:
                raise self._typed(verb, error) from error
            except ConroiError:
                raise
            except BaseException:
                self.close()
                raise

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and self._owner != os.getpid():
            _of_parents.append(self._connection)
            self._connection = None
        if not self._is_writing:
            self._end_transaction()  # which an interrupt left open
        if self._connection is None:
            self._connection, self._owner, self._is_synced = self._open(), os.getpid(), None
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if not os.path.isdir(os.path.dirname(self.path)):
            raise InvalidInputError(f"The folder of the database {self.path} does not exist.", hint="Create it first.")
        connection = sqlite3.connect(self.path, timeout=self.timeout_s, isolation_level=None, check_same_thread=False)
        try:
            self._use_write_ahead_log(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        """The switch is made once in the life of a file, and SQLite does not wait for others that are at it."""
        deadline = self._environment.monotonic() + self.timeout_s
        while True:
            try:
                if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                    connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or self._environment.monotonic() > deadline:
                    raise
                self._environment.sleep(_WAL_PAUSE_S)
            else:
                return

    def _typed(self, verb: str, error: sqlite3.Error) -> ConroiError:
        code, asked = _code(error), f"Could not {verb} the database {self.path}"
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            message = f"{asked}: others were writing to it for {self.timeout_s:g} s"
            return DatabaseBusy(message, hint="Try again; nothing of this was written.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return CorruptionError(f"{asked}: it is damaged, or no SQLite database.", hint="Restore it from a backup.")
        if code == sqlite3.SQLITE_IOERR:
            return StoreUnavailable(f"{asked}: {error}", hint="It may pass; check the disk.")
        return StoreError(f"{asked}: {error}", hint="Check the path, its permissions and the space on the disk.")


def _code(error: sqlite3.Error) -> int:
    """The primary result code; the rest of the bits say more than we ask."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
