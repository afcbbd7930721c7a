"""Runs of an export to ClickHouse: numbered rows in pieces, and the journal by which an interrupted run is removed."""

# ruff: noqa: S608 (every name goes through name(), every value through text(); the rest are numbers)

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from conroi.environment import Environment
from conroi.errors import ConroiError, InsertInterrupted, InvalidInputError, StoreError, StoreUnavailable
from conroi.export.clickhouse_engine import ClickHouseError, Engine, Target, name, text
from conroi.export.clickhouse_tables import ARROW, LINES, ROW, Numbered, as_arrow, as_lines
from conroi.insertion import Remains
from conroi.inserts.lock_back_ends import Held

_log = logging.getLogger(__name__)
PATIENCE_S = 60.0
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Export:
    """Result of an export: the rows of the target whose `conroi_row` is from `first` up to, excluding, `next`."""

    target: str
    first: int
    next: int
    query_id: str

    @property
    def rows(self) -> int:
        """How many."""
        return self.next - self.first


class Exporting:
    """An export on its way."""

    def __init__(self, engine: Engine, target: Target, lock: int, held: Held, environment: Environment) -> None:
        self._engine = engine
        self._target = target
        self._held = held
        self._environment = environment
        self._journal = Journal(engine, target, lock)
        self._source_error: BaseException | None = None

    def run(self, readers: Sequence[pa.RecordBatchReader], remains: Remains) -> Export:
        """All rows, or none."""
        for each in self._journal.unfinished():
            self._end(each)
            self._clear(each, remains)
        mine = Begun(self._new_id(), self._new_id(), self._next_row())
        rows = Numbered(readers, mine.first)
        self._journal.add("begin", mine, mine.first + SPAN)
        try:
            self._check_alone(mine)
            self._insert(rows, mine)
            self._journal.add("end", mine, rows.next)
            self._check_whole(mine)
        except BaseException:
            self._take_back(mine)
            raise
        self._sweep()
        return Export(str(self._target), mine.first, rows.next, mine.query_id)

    def _new_id(self) -> str:
        return str(self._environment.new_uuid())

    def _next_row(self) -> int:
        ((last,),) = self._engine.ask(f"SELECT max({ROW}) FROM {self._target.sql}")
        return max(int(last) + 1, self._journal.next_row())

    # ------------------------------------------------------------------------ our own rows

    def _insert(self, rows: Numbered, mine: Begun) -> None:
        form, chunks = (ARROW, as_arrow(rows)) if self._engine.has_arrow else (LINES, as_lines(rows))
        columns = ", ".join(map(name, rows.schema.names))
        self._held.confirm()
        try:
            self._engine.send(
                f"INSERT INTO {self._target.sql} ({columns})", form, self._watched(chunks, rows), mine.query_id
            )
        except StoreError:
            if self._source_error is None:
                raise
        if self._source_error is not None:
            raise self._source_error
        self._held.confirm()

    def _watched(self, chunks: Iterable[bytes], rows: Numbered) -> Iterator[bytes]:
        """A source that fails ends the stream as if it were over: so the INSERT ends, and we know that it did."""
        try:
            for chunk in chunks:
                if rows.next - rows.first > SPAN:
                    raise InvalidInputError(f"An export of more than {SPAN} rows.", hint="Export it in parts.")
                yield chunk
        except BaseException as error:  # noqa: BLE001 (it is raised when the stream has ended)
            self._source_error = error

    def _check_alone(self, mine: Begun) -> None:
        if self._journal.unfinished() != [mine] or self._journal.is_overlapped(mine):
            raise self._interrupted("Another worker started an export into the table at the same time.")

    def _check_whole(self, mine: Begun) -> None:
        if self._journal.is_said("removing", mine):
            raise self._interrupted("Another worker took this export for crashed and removed its rows.")

    def _interrupted(self, what: str) -> InsertInterrupted:
        return InsertInterrupted(
            f"{what} One of them had no lock, or lost it.",
            table=str(self._target),
            hint="None of the rows stay. Export again, and let all workers use a lake with locks.",
        )

    def _take_back(self, mine: Begun) -> None:
        """Roll back the rows of a failed export, best effort; else the next one removes them."""
        with contextlib.suppress(ConroiError):
            self._end(mine)
            self._journal.add("removing", mine, mine.first + SPAN)
            self._remove(mine)
            self._journal.add("removed", mine, mine.first + SPAN)

    # ------------------------------------------------------------------------ crashed exports

    def _end(self, other: Begun) -> None:
        """Wait for the INSERT of a crashed client: the server continues it, and it must end before another export
        begins.
        """
        running = f"SELECT count() FROM system.processes WHERE query_id = {text(other.query_id)}"
        if not self._engine.is_shared or not int(self._engine.ask(running)[0][0]):
            return
        _log.warning("%s: stopping the INSERT %s of a crashed client", self._target, other.query_id)
        with contextlib.suppress(ClickHouseError):  # some stages of an INSERT cannot be killed: they end by themselves
            self._engine.ask(f"KILL QUERY WHERE query_id = {text(other.query_id)}")
        self._wait(running, f"the INSERT {other.query_id} of a crashed client still runs")

    def _clear(self, other: Begun, remains: Remains) -> None:
        behind = other.first + SPAN
        if remains == "keep":
            self._journal.add("kept", other, behind)
            return
        if self._journal.is_said("removing", other) or not self._is_ending(other):
            self._remove(other)
            self._journal.add("removed", other, behind)

    def _is_ending(self, other: Begun) -> bool:
        """Announce the removal, and check whether the export ended all the same; then it sees our announcement, and
        removes itself.
        """
        self._journal.add("removing", other, other.first + SPAN)
        return self._journal.is_said("end", other)

    def _sweep(self) -> None:
        """Remove late rows, which a server had not begun to read at the last check; best effort, our own rows are
        committed.
        """
        with contextlib.suppress(ConroiError):
            for each in self._journal.lately_removed():
                self._remove(each)

    def _remove(self, other: Begun) -> None:
        if self._journal.is_beside_a_whole_one(other):
            return
        behind = other.first + SPAN
        where = f"{ROW} >= {other.first} AND {ROW} < {behind}"
        if int(self._engine.ask(f"SELECT count() FROM {self._target.sql} WHERE {where}")[0][0]) == 0:
            return
        _log.warning("%s: removing the rows of an export that was not finished", self._target)
        self._engine.ask(f"ALTER TABLE {self._target.sql} DELETE WHERE {where}")
        self._wait(
            f"SELECT count() FROM system.mutations WHERE database = {text(self._target.database)} "
            f"AND table = {text(self._target.table)} AND NOT is_done AND position(command, {text(str(behind))}) > 0",
            "the rows of an export that was not finished are still being removed",
        )

    def _wait(self, count: str, what: str) -> None:
        until = self._environment.monotonic() + PATIENCE_S
        while int(self._engine.ask(count)[0][0]):
            if self._environment.monotonic() > until:
                raise StoreUnavailable(
                    f"Waited {PATIENCE_S:g} s for ClickHouse: {what}.",
                    table=str(self._target),
                    hint="Nothing was exported; look into system.processes and system.mutations, and try again.",
                )
            self._environment.sleep(_PAUSE_S)


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
