"""PostgreSQL client: one connection that is opened again when it breaks, bounded waits, and typed errors."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from conroi.environment import SYSTEM, Environment
from conroi.errors import ConroiError, InvalidInputError, StoreError, StoreUnavailable
from conroi.storage.sql_schema import CREATE_SCHEMA_TABLE, SCHEMA_TABLE, Schema, missing_extra

if TYPE_CHECKING:
    import psycopg


_log = logging.getLogger(__name__)
T = TypeVar("T")
Row = tuple[Any, ...]
Parameters = Sequence[object] | Mapping[str, object]
DEFAULT_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 10
_GRACE_S = 1.0
"""Seconds after the server-side statement timeout at which the client stops waiting."""
_SCHEMA_LOCK = 0x636F6E726F69  # "conroi": held while tables are created or altered
_SETTINGS = (
    "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false), "
    "set_config('default_transaction_isolation', 'read committed', false)"
)
_NOT_PASSING = ("08P01", "22", "23", "28", "3D", "3F", "42", "0A", "P0")
"""Prefixes of SQLSTATEs of permanent errors."""


class PostgresDatabase:
    """A database by its address, `postgresql://…` or anything else that libpq understands.

    `timeout_s` bounds each statement, at the server and here. An interrupt (KeyboardInterrupt) in the middle of a
    statement closes its connection, because nothing else can be asked on it; the next call opens another one.
    """

    def __init__(
        self, address: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, environment: Environment = SYSTEM
    ) -> None:
        self._address = address
        self.timeout_s = timeout_s
        self._environment = environment
        self.place: str = _place(address)
        self._mutex = threading.RLock()
        self._mutex_owner = os.getpid()
        self._connection: psycopg.Connection[Row] | None = None
        self._owner = 0
        self._is_in_transaction = False
        self._unread: psycopg.Connection[Row] | None = None
        """The connection on which a statement was sent whose answer was not read yet."""

    def __repr__(self) -> str:
        return f"PostgresDatabase({self.place!r})"

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    @property
    def _lock(self) -> threading.RLock:
        """One thread at a time. A thread that held it when the process forked does not run here, so it starts free."""
        if self._mutex_owner != os.getpid():
            self._mutex, self._mutex_owner, self._is_in_transaction = threading.RLock(), os.getpid(), False
        return self._mutex

    def call(self, sql: str, parameters: Parameters = (), *, is_sent_again: bool = True) -> list[Row]:
        """One statement, a transaction of its own, in one round trip.

        When the connection breaks it is sent once more on a new one, if it is one that may be done twice.
        """
        with self._lock:
            connection, asked_at = self.connection(), self._environment.monotonic()
            try:
                return self.run(connection, sql, parameters)
            except StoreUnavailable:
                is_late = self._environment.monotonic() - asked_at > self.timeout_s
                if not is_sent_again or not connection.closed or is_late:
                    raise
            _log.info("the connection to %s broke: asking again on a new one", self.place)
            return self.run(self.connection(), sql, parameters)

    def send(self, sql: str, parameters: Sequence[str]) -> None:
        """One statement, with `$1` for its first parameter, whose answer is read before the next one is sent.

        It costs its caller no round trip. Whether it was executed stays unknown.
        """
        with self._lock:
            connection = self._unread = self.connection()
            try:
                self._guarded("ask", lambda: _send(connection, sql, parameters))
            except BaseException:
                connection.close()
                raise

    def _read_answer(self) -> None:
        """Read what was not read yet. A failure closes the connection, and is nobody's error."""
        connection, self._unread = self._unread, None
        if connection is None or connection.closed or self._owner != os.getpid():
            return
        try:
            with PATIENCE.at_most(self.timeout_s + _GRACE_S, lambda: _cut(connection)):
                self._guarded("ask", lambda: _read_results(connection))
        except ConroiError as error:
            _log.info("a statement to %s may not have been executed: %s", self.place, error.message)
            connection.close()
        except BaseException:
            connection.close()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Generator[Callable[[str, Parameters], list[Row]]]:
        """All statements inside are committed together or not at all; yields a function that runs one. No retries."""
        with self._lock:
            connection = self.connection()
            try:
                self._is_in_transaction = True
                self.run(connection, "BEGIN")
                yield lambda sql, parameters=(): self.run(connection, sql, parameters)
                self.run(connection, "COMMIT")
            except BaseException:
                connection.close()  # which also undoes what was done
                raise
            finally:
                self._is_in_transaction = False

    def ensure(self, schema: Schema) -> None:
        """Create the tables of this schema, or migrate them; a reader of a current database writes nothing."""
        if self._version_of(schema) == schema.version:
            return
        with self.transaction() as run:
            run("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            run(CREATE_SCHEMA_TABLE, ())
            for statement in schema.missing(self._version_of(schema), self.place):
                run(statement, ())
            run(
                "INSERT INTO conroi_schema VALUES (%s, %s) ON CONFLICT (component) DO UPDATE SET version = %s",
                (schema.component, schema.version, schema.version),
            )

    def close(self) -> None:
        """End the connection; the next call opens one again."""
        connection, self._connection = self._connection, None
        if connection is not None and self._owner == os.getpid():
            connection.close()

    def _version_of(self, schema: Schema) -> int:
        if self.call("SELECT to_regclass(%s) IS NULL", (SCHEMA_TABLE,))[0][0]:
            return 0
        found = self.call("SELECT version FROM conroi_schema WHERE component = %s", (schema.component,))
        return int(found[0][0]) if found else 0

    # ------------------------------------------------------------------------ one connection

    def connection(self) -> psycopg.Connection[Row]:
        """The shared connection, opened if need be; never one from before a fork, or that an interrupt left busy."""
        if self._unread is not None:
            self._read_answer()
        mine = self._connection if self._owner == os.getpid() else None
        if mine is not None and not mine.closed and not self._is_in_transaction and mine.info.transaction_status:
            mine.close()
        if mine is None or mine.closed:
            mine = self.connect()
            self._connection, self._owner = mine, os.getpid()
        return mine

    def connect(self, **options: object) -> psycopg.Connection[Row]:
        """A connection of the caller's own, which no other call uses; `options` are libpq's."""
        psycopg = _psycopg()
        waits = {} if "connect_timeout" in self._address else {"connect_timeout": _CONNECT_TIMEOUT_S}
        milliseconds = str(round(self.timeout_s * 1000))
        connection: psycopg.Connection[Row] = self._guarded(
            "connect to",
            # Nothing is prepared on the server, so that poolers in between are fine.
            lambda: psycopg.connect(self._address, autocommit=True, prepare_threshold=None, **{**waits, **options}),
        )
        try:
            self.run(connection, _SETTINGS, (milliseconds, milliseconds))
        except BaseException:
            connection.close()
            raise
        return connection

    def run(self, connection: psycopg.Connection[Row], sql: str, parameters: Parameters = ()) -> list[Row]:
        """One statement on this connection, and its rows."""
        try:
            with PATIENCE.at_most(self.timeout_s + _GRACE_S, lambda: _cut(connection)):
                return self._guarded("ask", lambda: _rows(connection.execute(cast("Any", sql), parameters)))
        except ConroiError:
            raise
        except BaseException:
            connection.close()
            raise

    # -------------------------------------------------------------------------------- errors

    def _guarded(self, verb: str, request: Callable[[], T]) -> T:
        psycopg = _psycopg()
        try:
            return request()
        except psycopg.Error as error:
            problem = self._problem(verb, error)
        # Raised out here, so that the original is not chained to it.
        raise problem

    def _problem(self, verb: str, error: psycopg.Error) -> ConroiError:
        asked = f"Could not {verb} the database {self.place}"
        state, name = error.sqlstate or "", type(error).__name__
        if state == "57014":
            message = f"{asked}: it did not answer within {self.timeout_s:g} s"
            return StoreUnavailable(message, hint="It may pass; look at what it is busy with.")
        if state == "42501":
            return StoreError(f"{asked}: permission denied", hint="Ask its owner what this user may do.")
        if not state and _is_refused(error):
            return StoreError(f"{asked}: it refused this user, password or name", hint="Check the store's address.")
        if state.startswith(_NOT_PASSING):
            return StoreError(f"{asked}: {name} ({state})", hint="Look into the log of the database.")
        return StoreUnavailable(f"{asked}: {name}", hint="It may pass; check that the server runs and can be reached.")


def is_ended(connection: psycopg.Connection[Row]) -> bool:
    """Whether the server ended an idle connection: nothing was asked, so all there is to read is the end. No request.

    By a selector: select() refuses file descriptors from 1024 on.
    """
    if connection.closed:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return bool(selector.select(0))


def _send(connection: psycopg.Connection[Row], sql: str, parameters: Sequence[str]) -> None:
    connection.pgconn.send_query_params(sql.encode(), [parameter.encode() for parameter in parameters])
    connection.pgconn.flush()


def _read_results(connection: psycopg.Connection[Row]) -> None:
    """All results of a statement that was sent. The wait ends with the answer, an interrupt or the connection."""
    line = connection.pgconn
    with selectors.DefaultSelector() as selector:
        selector.register(line.socket, selectors.EVENT_READ)
        while True:
            while line.is_busy():
                line.flush()
                selector.select(_LOOK_EVERY_S)
                line.consume_input()
            result = line.get_result()
            if result is None:
                return
            if result.error_message:
                _log.info("a statement was refused: %s", result.error_message.decode(errors="replace"))


def _rows(cursor: psycopg.Cursor[Row]) -> list[Row]:
    return cursor.fetchall() if cursor.description else []


def _is_refused(error: psycopg.Error) -> bool:
    """Whether the server said no; when connecting, only its words tell."""
    text = str(error)
    return "authentication" in text or "password" in text or "does not exist" in text or "no pg_hba" in text


def _cut(connection: psycopg.Connection[Row]) -> None:
    """Shut the connection down while another thread waits for its response."""
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise missing_extra("PostgreSQL", "postgres", "psycopg") from None
    return psycopg


def _place(address: str) -> str:
    """Host and database of an address: all of it that may be shown."""
    try:
        parts: Mapping[str, Any] = _psycopg().conninfo.conninfo_to_dict(address)
    except _psycopg().Error:
        parts = {}
    if not parts:
        raise InvalidInputError(
            "The address of the PostgreSQL store cannot be read.",
            hint="Write postgresql://user:password@host:port/database, with odd characters percent-encoded.",
        )
    host, port = parts.get("host") or "localhost", parts.get("port")
    return f"postgresql://{host}{f':{port}' if port else ''}/{parts.get('dbname') or ''}"


_LOOK_EVERY_S = 0.2


class Patience:
    """Watchdog for calls that take too long; one thread watches all of them, and sleeps while there are none.

    A timer for each request would cost a thread for each, which is more than a request to a near database.
    """

    def __init__(self) -> None:
        self._watched: dict[object, tuple[float, Callable[[], None]]] = {}
        self._has_work = threading.Event()
        self._starting = threading.Lock()
        self._locks_of = os.getpid()
        self._owner = 0

    @contextlib.contextmanager
    def at_most(self, seconds: float, give_up: Callable[[], None]) -> Generator[None]:
        """`give_up` is called, from another thread and slightly late, if the block is not left in time."""
        self._start()
        key = object()
        self._watched[key] = (time.monotonic() + seconds, give_up)
        if not self._has_work.is_set():
            self._has_work.set()
        try:
            yield
        finally:
            self._watched.pop(key, None)

    def _start(self) -> None:
        if self._owner == os.getpid():  # a thread does not survive a fork, and a lock may be held by one
            return
        if self._locks_of != os.getpid():
            self._starting, self._has_work, self._locks_of = threading.Lock(), threading.Event(), os.getpid()
        with self._starting:
            if self._owner != os.getpid():
                self._watched.clear()
                threading.Thread(target=self._watch, name="conroi-patience", daemon=True).start()
                self._owner = os.getpid()

    def _watch(self) -> None:
        while True:
            self._has_work.wait()
            time.sleep(_LOOK_EVERY_S)
            now = time.monotonic()
            for key, (deadline, give_up) in list(self._watched.items()):
                if now > deadline and self._watched.pop(key, None) is not None:
                    give_up()
            if not self._watched:
                self._has_work.clear()
                if self._watched:  # another call was added in between
                    self._has_work.set()


PATIENCE = Patience()
