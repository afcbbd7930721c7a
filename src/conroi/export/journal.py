"""Export journal and fence: an append-only table `conroi_exports` beside the targets records begin and end of exports.

The next export finds there what a crashed worker left: the id of the INSERT that may still run on the server, and where
its rows begin. It also fences: an export records its begin and then checks whether another one has begun; it records
its end and then checks whether another worker has started to remove its rows. Of two concurrent exports at least one
sees the other.
"""

# ruff: noqa: S608 (every name goes through name(), every value through text(); the rest are numbers)
from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Literal

from conroi.export.engine import Engine, name, text
from conroi.export.target import Target

TABLE = "conroi_exports"
SPAN = 1 << 40
"""Number of row numbers that an export reserves at its begin; it returns the unused ones when it succeeds.

So the numbers of a crashed export are never reused: its late rows are in no other export's range, and removing them
removes no others.
"""
Event = Literal["begin", "end", "removing", "removed", "kept"]
_IS_WHOLE = "countIf(event = 'end') > 0 AND countIf(event = 'removing') = 0"
_BEHIND = f"if({_IS_WHOLE}, maxIf(next, event = 'end'), max(next)) AS behind"
_IS_OVER = f"(({_IS_WHOLE}) OR countIf(event IN ('removed', 'kept')) > 0)"


@dataclass(frozen=True)
class Begun:
    """An export that began: the range of its rows, and its query on the server."""

    export: str
    query_id: str
    first: int


class Journal:
    """What happened to the exports into one table."""

    def __init__(self, engine: Engine, target: Target, lock: int) -> None:
        self._engine = engine
        self._sql = f"{name(target.database)}.{TABLE}"
        self._lock = lock
        self._ours = f"{self._sql} WHERE lock = {lock}"
        engine.ask(
            f"CREATE TABLE IF NOT EXISTS {self._sql} (lock UInt64, table String, export String, event String, "
            "query_id String, first UInt64, next UInt64, worker String, at DateTime) "
            "ENGINE = MergeTree ORDER BY (lock, first)"
        )
        self._table = target.table

    def unfinished(self) -> list[Begun]:
        """Exports that began and neither ended nor were removed."""
        rows = self._engine.ask(
            f"SELECT export, any(query_id), min(first) FROM {self._ours} GROUP BY export HAVING NOT {_IS_OVER}"
        )
        return [Begun(str(export), str(query_id), int(first)) for export, query_id, first in rows]

    def lately_removed(self) -> list[Begun]:
        """Exports that were removed within the last hour: the server may read data of a crashed client later."""
        rows = self._engine.ask(
            f"SELECT DISTINCT export, query_id, first FROM {self._ours} AND event = 'removed' AND at > now() - 3600"
        )
        return [Begun(str(export), str(query_id), int(first)) for export, query_id, first in rows]

    def is_overlapped(self, mine: Begun) -> bool:
        """Whether another export used numbers from our first one on, so that ours was determined too early."""
        ((found,),) = self._engine.ask(
            f"SELECT count() FROM (SELECT export, {_BEHIND} FROM {self._ours} GROUP BY export) "
            f"WHERE export != {text(mine.export)} AND behind > {mine.first}"
        )
        return bool(int(found))

    def is_beside_a_whole_one(self, other: Begun) -> bool:
        """Whether its numbers are those of an export that ended well.

        Of two that begin at the same number at most one goes on after its look, so this one brought no rows.
        """
        ((found,),) = self._engine.ask(
            f"SELECT count() FROM (SELECT export, min(first) AS begins FROM {self._ours} GROUP BY export "
            f"HAVING {_IS_WHOLE}) WHERE export != {text(other.export)} "
            f"AND begins >= {other.first} AND begins < {other.first + SPAN}"
        )
        return bool(int(found))

    def is_said(self, event: Event, of: Begun) -> bool:
        """Whether this event was recorded for an export, by any worker."""
        said = f"export = {text(of.export)} AND event = {text(event)}"
        return bool(self._engine.ask(f"SELECT event FROM {self._ours} AND {said} LIMIT 1"))

    def next_row(self) -> int:
        """After all numbers that exports used or lost."""
        ((found,),) = self._engine.ask(f"SELECT max(behind) FROM (SELECT {_BEHIND} FROM {self._ours} GROUP BY export)")
        return max(1, int(found))

    def add(self, event: Event, what: Begun, next_row: int) -> None:
        """Record an event of an export."""
        worker = f"{socket.gethostname()}:{os.getpid()}"
        texts = map(text, (self._table, what.export, event, what.query_id))
        self._engine.ask(
            f"INSERT INTO {self._sql} VALUES ({self._lock}, {', '.join(texts)}, {what.first}, {next_row}, "
            f"{text(worker)}, now())"
        )
