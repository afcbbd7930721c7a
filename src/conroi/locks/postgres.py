"""Commit lock in PostgreSQL, for storage without conditional writes and writers on many hosts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

from conroi.errors import ConroiError, StoreUnavailable, TooMuchContention
from conroi.storage.postgres import DEFAULT_TIMEOUT_S, PostgresDatabase, Row, is_ended

if TYPE_CHECKING:
    import psycopg


class HeldByConnection:
    """The lock is ours for as long as the server has our connection."""

    def __init__(self, connection: psycopg.Connection[Row], place: str) -> None:
        self._connection = connection
        self._place = place

    def confirm(self) -> None:
        """Raise StoreUnavailable if the connection, and with it the lock, is gone; sends no request."""
        if is_ended(self._connection):
            raise StoreUnavailable(
                f"The connection to {self._place} was lost, and the commit lock with it.",
                hint="Nothing was written under the lock; try again.",
            )


class PostgresLock:
    """One holder at a time, over all hosts that name the same lock in the same database.

    The server releases the lock when its holder's connection ends, so a crashed writer blocks no other.
    """

    def __init__(self, address: str, name: str, *, timeout_s: float = 30.0) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self._address = address
        # The server ends a wait that is too long, so the statement itself may take that long.
        self._database = PostgresDatabase(address, timeout_s=max(timeout_s, DEFAULT_TIMEOUT_S))
        self._number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        self._idle: list[psycopg.Connection[Row]] = []
        self._guard = threading.Lock()
        self._owner = os.getpid()

    def __repr__(self) -> str:
        return f"PostgresLock({self._database.place!r}, {self.name!r}, timeout_s={self.timeout_s})"

    def __reduce__(self) -> tuple[Callable[[str, str], PostgresLock], tuple[str, str]]:
        return partial(PostgresLock, timeout_s=self.timeout_s), (self._address, self.name)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    @contextlib.contextmanager
    def __call__(self, version: int = 0) -> Generator[HeldByConnection]:
        """Hold the lock while inside; every version of the table shares the one lock."""
        connection = self._connected()
        try:
            self._take(connection, version)
            yield HeldByConnection(connection, self._database.place)
            self._release(connection)
        except BaseException:
            connection.close()  # which also gives the lock back
            raise

    def close(self) -> None:
        """Close the idle connections."""
        with self._guard:
            idle, self._idle = self._idle, []
        if self._owner == os.getpid():
            for connection in idle:
                connection.close()

    def _connected(self) -> psycopg.Connection[Row]:
        """A connection used by no other thread, since the lock belongs to the connection."""
        with self._guard:
            if self._owner != os.getpid():
                self._idle, self._owner = [], os.getpid()
            while self._idle:
                connection = self._idle.pop()
                if not is_ended(connection):
                    return connection
                connection.close()
        return self._database.connect()

    def _take(self, connection: psycopg.Connection[Row], version: int) -> None:
        timeout = f"{max(1, round(self.timeout_s * 1000))}ms"
        take = (
            "WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', %s, false) AS set) "
            "SELECT pg_advisory_lock(%s) FROM patience WHERE set IS NOT NULL"
        )
        try:
            self._database.run(connection, take, (timeout, self._number))
        except StoreUnavailable:
            if connection.closed:
                raise
        else:
            return
        raise TooMuchContention(
            f"Waited {self.timeout_s:g} s for the commit lock {self.name!r} in {self._database.place}.",
            version=version or None,
            hint="Nothing was committed; try again, or raise timeout_s.",
        )

    def _release(self, connection: psycopg.Connection[Row]) -> None:
        """What was done under the lock is done: a release that fails ends the connection, which releases as well."""
        try:
            ((was_ours,),) = self._database.run(connection, "SELECT pg_advisory_unlock(%s)", (self._number,))
        except ConroiError:
            was_ours = False
        if not was_ours:
            connection.close()
            raise StoreUnavailable(
                f"The commit lock {self.name!r} in {self._database.place} was lost while it was held.",
                hint="Whether the write under it counts is found by looking; the commit does that by itself.",
            )
        with self._guard:
            self._idle.append(connection)


def postgres_lock(address: str, name: str, *, timeout_s: float = 30.0) -> PostgresLock:
    """A lock for `commit_lock=`, in the database at `address`; all writers of a table must give the same name."""
    return PostgresLock(address, name, timeout_s=timeout_s)
