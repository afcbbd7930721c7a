"""Simulated database: a SQL store of the simulation, whose statements meet the faults of requests.

The statements are executed by SQLite in memory, on the tables and with the SQL of the real SQLite store. Each statement
or transaction is one request: it takes virtual time, may be lost before or after it was executed, or land late, as a
statement that is on its way when its connection breaks. The clock of the database is the one of the storage.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from conroi.catalog.sql_publication import Outcome, RowPublication
from conroi.catalog.sql_tables import SQLITE_SCHEMA, SqliteLakeTables
from conroi.storage.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from conroi.testing.simulation.world import World

T = TypeVar("T")

ADDRESS = "sqlite:////simulated/lake.db"
"""What the clients are given as the address of the store; no file has this name."""
_PLACE = "database"
"""In the story and in errors, where a file would be named."""


class _InMemory(SqliteDatabase):
    """A database without a file, whose clock is virtual."""

    def __init__(self, world: World) -> None:
        super().__init__(_PLACE)
        self._world = world

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        world = weakref.proxy(
            self._world
        )  # the connection must not keep it: the garbage collector does not see that cycle
        connection.create_function("strftime", 2, partial(_strftime, world))
        return connection


def _strftime(world: World, what: str, moment: str) -> str:
    """In place of the function of this name: the two formats that the store's clock is made of."""
    assert moment == "now"
    seconds, nanoseconds = divmod(world.now_ns(), 10**9)
    return {"%s": str(seconds), "%f": f"{seconds % 60:02d}.{nanoseconds // 10**6:03d}"}[what]


class _Tables(SqliteLakeTables):
    """The real tables, in that database."""

    def __init__(self, world: World) -> None:
        super().__init__(_PLACE)
        self._world = world

    @cached_property
    def _database(self) -> SqliteDatabase:
        database = _InMemory(self._world)
        database.ensure(SQLITE_SCHEMA)
        return database


class SimulatedDatabase:
    """The tables of all lakes of a run: see conroi.catalog.sql_tables.LakeTables."""

    now_ns = SqliteLakeTables.now_ns

    def __init__(self, world: World) -> None:
        self._world = world
        self._tables = _Tables(world)

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._world.request("query", _PLACE, _PLACE, lambda: self._tables.ask(sql, parameters))

    def add_lake(self, lake: str, root: str) -> None:
        self._write("add lake", lambda: self._tables.add_lake(lake, root))

    def move_lake(self, lake: str, old_root: str, new_root: str) -> bool:
        return self._write("move lake", lambda: self._tables.move_lake(lake, old_root, new_root))

    def remove_lake(self, lake: str, root: str) -> None:
        self._write("remove lake", lambda: self._tables.remove_lake(lake, root))

    def publish(self, lake: str, root: str, wanted: RowPublication) -> Outcome:
        def publish() -> Outcome:
            return self._tables.publish(lake, root, wanted)

        verb = f"publish after {wanted.base}"
        return self._world.request(verb, _PLACE, _PLACE, publish, is_write=True, decides=True)

    def forget(self, lake: str, versions: Sequence[int]) -> None:
        self._write("forget", lambda: self._tables.forget(lake, versions))

    def _write(self, verb: str, effect: Callable[[], T]) -> T:
        return self._world.request(verb, _PLACE, _PLACE, effect, is_write=True)
