"""Exports: rows of a lake, or of a query, to ClickHouse: a server, or chdb inside this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from conroi.arguments import checked_call
from conroi.catalog.rows import new_lock_id
from conroi.catalog.tables import LakeTableStorage
from conroi.data.incoming import Data, from_elsewhere, to_reader
from conroi.environment import SYSTEM, Environment
from conroi.errors import InvalidInputError, LockTimeout
from conroi.export import clickhouse_tables as tables
from conroi.export.clickhouse_engine import Engine, Target, parse
from conroi.export.clickhouse_runs import Export, Exporting
from conroi.insertion import Remains, check_remains
from conroi.inserts.insert_locks import Locks, check_wait, locks_of
from conroi.inserts.lock_back_ends import Held, NoLock
from conroi.reader import Reader

if TYPE_CHECKING:
    from conroi.lake import Lake

__all__ = ["Export", "clickhouse"]

Source = Reader | Data
_HERE: dict[int, threading.Lock] = {}
"""Process-local locks: threads of one process are serialized, whatever locks there are."""


@checked_call
def clickhouse(
    source: Source | Sequence[Source],
    target: str,
    *,
    create: bool = True,
    order_by: str | Sequence[str] = (),
    lake: Lake | None = None,
    wait_s: float | None = None,
    remains: Remains = "remove",
) -> Export:
    """Export the rows of a table or query to a ClickHouse table, with consecutive numbers in its column `conroi_row`.

    `source` is a Table at its version, anything with an Arrow stream, or a list of these, which becomes one run.
    `target` is `http://user:password@host:8123/database/table` or, inside this process, `chdb:///folder/database/table`.
    The table is created if it does not exist, unless `create=False`; if the export then fails, it stays, empty. Columns
    are matched by name. The locks are those of the source's lake, or of `lake`. With `lake`, executors write the rows
    of a Spark DataFrame to a temporary table of it, from which they are exported; without it at most two million of
    them are exported.
    """
    check_wait(wait_s)
    check_remains(remains)
    sources, at = _sources(source), parse(target)
    locks = _locks(sources, lake, at)
    environment = SYSTEM if lake is None else lake.catalog.environment
    with contextlib.ExitStack() as stack:
        readers = [_reader(stack, each, lake) for each in sources]
        tables.alike(readers)
        order = tables.checked_order(readers[0].schema, [order_by] if isinstance(order_by, str) else order_by)
        engine = stack.enter_context(contextlib.closing(at.engine()))
        if create and tables.describe(engine, at) is None:
            tables.create(engine, at, readers[0].schema, order, new_lock_id(environment))
        with _held_target(engine, at, locks, wait_s, environment) as (found, held):
            tables.check_columns(found, readers[0].schema, at)
            assert found.lock is not None, "it was registered"
            return Exporting(engine, at, found.lock, held, environment).run(readers, remains)


@contextlib.contextmanager
def _held_target(
    engine: Engine, target: Target, locks: Locks | None, wait_s: float | None, environment: Environment
) -> Generator[tuple[tables.Described, Held]]:
    """Hold the lock of the table that has this name when we get it."""
    while True:
        found = tables.registered(engine, target, new_lock_id(environment))
        assert found.lock is not None, "it was registered"
        with contextlib.ExitStack() as stack:
            _enter(stack, _HERE.setdefault(found.lock, threading.Lock()), target, wait_s)
            held = NoLock() if locks is None else locks.hold(found.lock, str(target), wait_s)
            stack.callback(held.release)
            now = tables.describe(engine, target)
            if now is not None and now.lock == found.lock:
                yield now, held
                return


def _enter(stack: contextlib.ExitStack, turn: threading.Lock, target: Target, wait_s: float | None) -> None:
    if not turn.acquire(timeout=-1 if wait_s is None else wait_s):
        raise LockTimeout(
            f"Waited {wait_s:g} s for another thread that exports to {target}.",
            table=str(target),
            hint="Nothing was exported; try again, or wait longer with wait_s.",
        )
    stack.callback(turn.release)


def _sources(source: object) -> list[Any]:
    is_many = isinstance(source, Sequence) and not (len(source) and isinstance(source[0], Mapping))
    many: list[Any] = list(cast("Sequence[Any]", source)) if is_many else [source]
    if not many:
        raise InvalidInputError("There is nothing to export.", hint="Give at least one table or query.")
    return many


def _reader(stack: contextlib.ExitStack, source: Any, lake: Lake | None) -> pa.RecordBatchReader:
    """The rows as a stream; a DataFrame is written to a temporary table of the lake by executors, and read from it."""
    if isinstance(source, Reader):
        return pa.RecordBatchReader.from_batches(source.schema, source.to_batches(complete=True))
    elsewhere = from_elsewhere(source)
    if elsewhere is None or lake is None:
        return to_reader(source)
    written = lake[stack.enter_context(lake.temp_table(cast("Any", elsewhere)))]
    return pa.RecordBatchReader.from_batches(written.schema, written.to_batches())


def _locks(sources: Sequence[Any], lake: Lake | None, target: Target) -> Locks | None:
    """Those of the lake that was given, or of the first table that is of a lake."""
    catalogs = [lake.catalog] if lake is not None else []
    for each in sources:
        files = each.pinned.files if isinstance(each, Reader) else None
        catalogs += [files.catalog] if isinstance(files, LakeTableStorage) and files.catalog is not None else []
    if catalogs:
        return locks_of(catalogs[0])
    if target.scheme != "chdb":
        raise InvalidInputError(
            "An export to a server needs a lake, whose locks it takes.",
            hint="Give lake=…, or export a table of a lake.",
        )
    return None
