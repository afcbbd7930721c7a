"""Insert locks as advisory locks in PostgreSQL, and the connections that hold them."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import re
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from conroi.errors import ConroiError, InsertInterrupted, LockTimeout, StoreUnavailable
from conroi.inserts.lock_back_ends import Cancellation, LockInfo
from conroi.storage.parallel import ProcessLock
from conroi.storage.postgres import PostgresDatabase, Row, is_ended

if TYPE_CHECKING:
    import psycopg

STATEMENT_S = 60.0
MOST_IDLE = 1
"""Free connections that a process keeps. A server has few, and a worker mostly inserts into one table at a time."""
TURN_S = 30.0
"""Seconds that the server is asked to wait at a time; a longer wait asks again."""
KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
_LONGEST_NAME = 63
_SECONDS_DIGITS = 12
_SIGNED = re.compile(r"conroi (\S+):(\d+)(?: .*?)?(?:@(\d+))?", re.DOTALL)
_TAKE = (
    "WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', %s, false) AS set, "
    "set_config('application_name', %s::text || floor(extract(epoch FROM now()) - %s)::bigint, false) AS name) "
    "SELECT pg_advisory_lock(%s) FROM patience WHERE set IS NOT NULL AND name IS NOT NULL"
)
# So that the server ends the wait of a client that died; older servers do not know the setting.
_NOTICE_THE_DEAD = (
    "SELECT set_config(name, '1000', false) FROM pg_settings WHERE name = 'client_connection_check_interval'"
)
# A holder's connection does nothing after it got the lock, so that is when its state changed last. A waiter says in its
# name since when it waits, because it asks several times.
_LIST = """
SELECT (l.classid::bigint << 32) | l.objid::bigint, a.application_name, l.granted,
       CASE WHEN l.granted THEN a.state_change ELSE a.query_start END
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND a.application_name LIKE 'conroi %%'
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((l.classid::bigint << 32) | l.objid::bigint) = ANY (%s::bigint[])
ORDER BY 1, l.granted DESC, 4
"""
_FREE = "SELECT pg_advisory_unlock_all(), set_config('application_name', 'conroi idle', false)"


class HeldInPostgres:
    """Held for as long as the server has our connection."""

    def __init__(self, pool: LockConnections, connection: psycopg.Connection[Row], table: str) -> None:
        self._pool = pool
        self._connection = connection
        self._table = table
        self._owner = os.getpid()
        self._guard = threading.Lock()
        self._is_released = False

    def confirm(self) -> None:
        if self._is_released or is_ended(self._connection):
            raise InsertInterrupted(
                "The connection to PostgreSQL was lost, and the insert lock with it.",
                table=self._table,
                hint="Insert again. What was inserted so far is removed, by us or by the next worker.",
            )

    def release(self) -> None:
        if self._owner != os.getpid():
            return
        with self._guard:
            was_released, self._is_released = self._is_released, True
        if not was_released:
            self._pool.give_back(self._connection)


class LockConnections:
    """Connections that hold locks, one lock at a time; one that is free is kept for the next lock.

    A connection is given to one holder, belongs to one process, and is closed unless the server has said that it holds
    no lock any more. The end of a connection releases its lock, so a killed holder blocks no other worker.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._idle: list[psycopg.Connection[Row]] = []
        self._owner = os.getpid()
        self._lock = ProcessLock()

    def taken(self) -> tuple[psycopg.Connection[Row], bool]:
        """A connection, and whether it was used before: then the server may have ended it unnoticed."""
        with self._lock:
            self._forget_those_of_a_parent()
            while self._idle:
                connection = self._idle.pop()
                if not is_ended(connection):
                    return connection, True
                connection.close()
        return self.new(), False

    def new(self) -> psycopg.Connection[Row]:
        connection = self._database.connect(**KEEPALIVE)
        try:
            self._database.run(connection, _NOTICE_THE_DEAD)
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: psycopg.Connection[Row]) -> None:
        """Release what it holds. It is free when this returns, also if the connection must be closed."""
        if connection.closed:
            return
        try:
            self._database.run(connection, _FREE)
        except BaseException as error:
            connection.close()
            if not isinstance(error, ConroiError):
                raise
            return
        with self._lock:
            self._forget_those_of_a_parent()
            is_kept = len(self._idle) < MOST_IDLE
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()

    def _forget_those_of_a_parent(self) -> None:
        if self._owner != os.getpid():  # psycopg closes a connection in the process that opened it only
            self._idle, self._owner = [], os.getpid()

    def close_idle(self) -> None:
        """Close the free connections: a forked child that has one open would keep its lock held when we are killed."""
        if self._owner == os.getpid():
            while self._idle:
                self._idle.pop().close()


_pools: dict[str, LockConnections] = {}
"""By address, for all lakes of this process."""


def _close_all_idle() -> None:
    for pool in list(_pools.values()):
        pool.close_idle()


os.register_at_fork(before=_close_all_idle)
atexit.register(_close_all_idle)


@dataclass(frozen=True, slots=True)
class _LockRequest:
    """A lock that is asked for."""

    lock: int
    table: str
    wait_s: float | None
    begun: float
    until: float | None
    """When to give up, by the monotonic clock; None waits forever."""
    cancellation: Cancellation

    def left_s(self) -> float:
        """Seconds until then."""
        return math.inf if self.until is None else self.until - time.monotonic()


class PostgresLocks:
    """The locks in the database at an address."""

    def __init__(self, address: str) -> None:
        self._database = PostgresDatabase(address, timeout_s=STATEMENT_S)
        self._pool = _pools.setdefault(address, LockConnections(self._database))

    def __repr__(self) -> str:
        return f"PostgresLocks({self._database.place!r})"

    def hold(self, lock: int, table: str, wait_s: float | None, cancellation: Cancellation) -> HeldInPostgres:
        now = time.monotonic()
        request = _LockRequest(lock, table, wait_s, now, None if wait_s is None else now + wait_s, cancellation)
        connection, was_used = self._pool.taken()
        try:
            return self._held(connection, request)
        except StoreUnavailable:
            if not was_used or not connection.closed or cancellation.is_cancelled:
                raise
        # The server ended the idle connection meanwhile; the lock cannot have been acquired on it.
        return self._held(self._pool.new(), request)

    def _held(self, connection: psycopg.Connection[Row], request: _LockRequest) -> HeldInPostgres:
        try:
            request.cancellation.when_cancelled(connection.cancel)
            self._wait(connection, request)
            request.cancellation.when_cancelled(None)
        except BaseException:
            connection.close()  # which also releases the lock
            raise
        return HeldInPostgres(self._pool, connection, request.table)

    def _wait(self, connection: psycopg.Connection[Row], request: _LockRequest) -> None:
        while not self._got(connection, request):
            if request.left_s() <= 0:
                raise self._too_long(request.lock, request.table, request.wait_s or 0.0)

    def _got(self, connection: psycopg.Connection[Row], request: _LockRequest) -> bool:
        """Ask the server once, for as long as a turn lasts; False if the lock was not free in that time."""
        # A lock_timeout of 0 would be none at all.
        patience = f"{max(1, round(min(TURN_S, request.left_s()) * 1000))}ms"
        # Each turn sends the name, since a timeout undoes the settings of its statement.
        signed = (signature(request.table), time.monotonic() - request.begun)
        try:
            self._database.run(connection, _TAKE, (patience, *signed, request.lock))
        except StoreUnavailable:
            if connection.closed or request.cancellation.is_cancelled:
                raise
            return False
        return True

    def _too_long(self, lock: int, table: str, wait_s: float) -> LockTimeout:
        found: list[LockInfo] = []
        with contextlib.suppress(StoreUnavailable):
            found = [each for each in self.listing({lock: table}) if not each.is_waiting]
        holder = found[0] if found else None
        who = f"{holder.holder} holds it since {holder.since.isoformat()}" if holder else "its holder left just now"
        return LockTimeout(
            f"Waited {wait_s:g} s for the insert lock of {table!r}; {who}.",
            table=table,
            holder=None if holder is None else holder.holder,
            held_since=None if holder is None else holder.since,
            hint="Nothing was inserted; try again, or wait longer with wait_s. lake.locks() lists who waits.",
        )

    def listing(self, tables: Mapping[int, str]) -> list[LockInfo]:
        rows = self._database.call(_LIST, (list(tables),))
        return [_info(tables[int(lock)], str(name), is_granted, since) for lock, name, is_granted, since in rows]


def signature(table: str) -> str:
    """How the server shows this client: `conroi host:pid table@`, to which the server adds since when it waits."""
    host = re.sub(r"[^\w.\-]", "_", socket.gethostname())[:24]
    signed = f"conroi {host}:{os.getpid()} {table}".encode("ascii", "replace")
    return signed[: _LONGEST_NAME - _SECONDS_DIGITS].decode() + "@"


def _info(table: str, name: str, is_granted: bool, since: datetime) -> LockInfo:
    signed = _SIGNED.fullmatch(name)
    host, pid = (signed[1], int(signed[2])) if signed else ("unknown", 0)
    if signed and signed[3] and not is_granted:
        since = datetime.fromtimestamp(int(signed[3]), UTC)
    return LockInfo(table, host, pid, since.astimezone(UTC), is_waiting=not is_granted)
