"""The worker process of an executor: reads fragments into Arrow streams, and writes data files from them."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import BufferedReader, FileIO
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conroi.data.pylance import pylance_errors
from conroi.data.table_version import TableVersion
from conroi.format.json import parse_json
from conroi.spark.connector.errors import facts_of
from conroi.spark.connector.grouped import Build, GroupedAggregates
from conroi.spark.connector.search import found_rows
from conroi.spark.connector.tables import DISTANCE, ROW_ADDRESS, ROW_ID, SCORE, TABLE_VERSION
from conroi.spark.connector.tasks import part_to_text, schema_from_text, write_task_from_text
from conroi.spark.connector.wire import PROTOCOL, Frames, private_stdio, write_all
from conroi.spark.packets import Part
from conroi.spark.pins import PinnedVersion
from conroi.spark.types import cast_for_spark
from conroi.storage.cloud_options import StorageOptions

Request = dict[str, Any]
MEMORY = "CONROI_WORKER_MEMORY_MB"
_SOCKET_BUFFER = 1 << 20
_ROWS_TO_SORT = 65_536
"""Rows that are sorted at once to find the first ones."""


class Sink:
    """A file of pyarrow's over a descriptor. pyarrow's own asks where it stands, which a pipe cannot answer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        write_all(self._descriptor, view)
        self._written += len(view)
        return len(view)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """The descriptor is used again."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class Worker:
    """Serves one task at a time: a request, rows in one direction, and what became of them."""

    def __init__(self, frames: Frames, source: int, sink: int) -> None:
        self._frames = frames
        self._source = source
        self._sink = sink

    def run(self) -> None:
        """Serve until the executor ends."""
        self._frames.send({"protocol": PROTOCOL})
        while (message := self._frames.receive()) is not None:
            request = message[0]
            if request["op"] == "stop":
                continue  # it came after the end of the scan that it was meant for
            try:
                answer = self._done(request)
            except (BrokenPipeError, ConnectionError):
                return  # the task has ended
            except Exception as error:  # noqa: BLE001 (it is raised in the task)
                self._frames.send({"error": facts_of(error)})
                if request["op"] == "write":
                    return  # the task still sends rows: closing our end tells it
                continue
            self._frames.send(answer)

    def _done(self, request: Request) -> dict[str, Any]:
        if request["op"] == "scan":
            return self._scan(request)
        if request["op"] == "search":
            return self._search(request)
        if request["op"] == "aggregate":
            return self._aggregate(request)
        return self._write(request) if request["op"] == "write" else {"rows": _count(request)}

    # ------------------------------------------------------------------------ reading

    def _scan(self, request: Request) -> dict[str, Any]:
        target = schema_from_text(request["schema"])
        found = scanned(request, target)
        self._frames.send({"ok": True})
        return self._sent(target, found)

    def _search(self, request: Request) -> dict[str, Any]:
        target, pinned = schema_from_text(request["schema"]), _pinned(request)
        found = [
            cast_for_spark(batch, target, pinned.root) for batch in found_rows(pinned, request["search"], target.names)
        ]
        self._frames.send({"ok": True})
        return self._sent(target, iter(found))

    def _sent(self, target: pa.Schema, batches: Iterator[pa.RecordBatch]) -> dict[str, Any]:
        """Send the rows, until the task has enough. An error ends the stream first, and is told after it."""
        rows = 0
        problem: Exception | None = None
        with pa.ipc.new_stream(pa.PythonFile(cast("Any", Sink(self._sink)), "w"), target) as stream:
            try:
                for batch in batches:
                    if batch.num_rows:
                        stream.write_batch(batch)
                        rows += batch.num_rows
                    if self._frames.is_readable():
                        self._frames.receive()
                        break
            except (BrokenPipeError, ConnectionError):
                raise
            except Exception as error:  # noqa: BLE001
                problem = error
        return {"rows": rows} if problem is None else {"error": facts_of(problem)}

    def _aggregate(self, request: Request) -> dict[str, Any]:
        target = schema_from_text(request["schema"])
        rows = _joined(request, target) if request.get("join") is not None else _aggregated(request, target)
        self._frames.send({"ok": True})
        return self._sent(target, iter([rows]))

    # ------------------------------------------------------------------------ writing

    def _write(self, request: Request) -> dict[str, Any]:
        task = write_task_from_text(request["task"])
        self._frames.send({"ok": True})
        with FileIO(self._source, closefd=False) as raw:
            buffered = BufferedReader(raw, _SOCKET_BUFFER)
            reader = pa.ipc.open_stream(pa.PythonFile(cast("Any", buffered), "r"))
            part = task.write(aligned(reader))
            for _ in reader:  # after an error in the rows
                pass
            buffered.detach()
        return {"part": part_to_text(Part() if part is None else part)}


def aligned(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The rows, with decimals at multiples of 16 bytes: the Arrow of Java aligns to 8, and Lance refuses that."""
    decimals = [number for number, field in enumerate(reader.schema) if _has_decimals(field.type)]
    for batch in reader:
        columns = batch.columns
        for number in decimals:
            columns[number] = pa.concat_arrays([columns[number], columns[number].slice(0, 0)])  # copies
        yield pa.RecordBatch.from_arrays(columns, schema=batch.schema) if decimals else batch


def _has_decimals(type_: pa.DataType) -> bool:
    inside = [type_.field(number).type for number in range(type_.num_fields)]
    return pa.types.is_decimal(type_) or any(map(_has_decimals, inside))


# ---------------------------------------------------------------------------- rows of fragments


def _pinned(request: Request) -> TableVersion:
    version = PinnedVersion.from_text(request["pin"])
    options = request.get("storageOptions")
    return (version if options is None else version.with_storage_options(StorageOptions(options))).opened()


def scanned(request: Request, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows that a task reads, in Spark's types. A task of a stream reads of several versions."""
    for part in request.get("parts", [{}]):
        yield from _scanned({**request, **part}, target)


def _scanned(request: Request, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    pinned = _pinned(request)
    batches = _batches(pinned, request, target.names)
    if request.get("top") is not None:
        batches = _top(batches, parse_json(request["top"], "The order"))
    elif request.get("filter") is not None:
        batches = _gathered(batches, request["batchRows"])
    for batch in batches:
        yield cast_for_spark(batch, target, pinned.root)


def _scanner(pinned: TableVersion, request: Request, **more: Any) -> Any:
    with pylance_errors(pinned.root):
        chosen = [pinned.dataset.get_fragment(number) for number in request["fragments"]]
        return pinned.dataset.scanner(filter=request.get("filter"), fragments=cast("Any", chosen), **more)


def _count(request: Request) -> int:
    pinned = _pinned(request)
    scanner = _scanner(pinned, request, columns=[], with_row_id=True)
    with pylance_errors(pinned.root):
        rows = int(scanner.count_rows())
    limit = request.get("limit")
    return rows if limit is None else min(rows, limit)


def _batches(pinned: TableVersion, request: Request, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    metadata = {ROW_ADDRESS, ROW_ID, TABLE_VERSION, DISTANCE, SCORE} - set(pinned.schema.names)
    not_null = request.get("notNull", ())
    names = list(dict.fromkeys([*names, *not_null]))
    scanner = _scanner(
        pinned,
        request,
        columns=[name for name in names if name not in metadata],
        with_row_address=ROW_ADDRESS in names or set(names) <= metadata,
        with_row_id=ROW_ID in names,
        batch_size=request["batchRows"],
        limit=request.get("limit"),
        blob_handling="all_binary",
    )
    with pylance_errors(pinned.root):
        for batch in scanner.to_reader():
            yield _with_computed(_without_nulls(batch, not_null), pinned, metadata.intersection(names))


def _aggregated(request: Request, target: pa.Schema) -> pa.RecordBatch:
    steps: Any = parse_json(request["aggregates"], "The aggregates")
    result = _Aggregates(steps)
    if request["fragments"]:
        for batch in _batches(_pinned(request), request, result.columns):
            result.add(batch)
    return result.rows(target)


def _joined(request: Request, target: pa.Schema) -> pa.RecordBatch:
    """The aggregates of a join with tables that are held in memory."""
    plan: Any = parse_json(request["join"], "The join")
    pinned = _pinned(request)
    result = GroupedAggregates(plan, [_build(json.dumps(build)) for build in plan["builds"]])
    if request["fragments"]:
        for batch in _batches(pinned, request, result.columns):
            result.add(batch)
    return cast_for_spark(result.rows(target.names), target, pinned.root)


@lru_cache(maxsize=4)
def _build(text: str) -> Build:
    """A small table of a join, kept for the other tasks of a query and for later queries."""
    plan: Any = parse_json(text, "A table of the join")
    pinned = _pinned(plan)
    names = list(dict.fromkeys([plan["on"], *plan["groups"], *plan["values"]]))
    batches = list(_batches(pinned, plan, names)) if plan["fragments"] else []
    table = pa.Table.from_batches(
        [batch.select(names) for batch in batches], pa.schema([pinned.schema.field(name) for name in names])
    )
    return Build(plan, table)


def _without_nulls(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The rows in which none of these columns is null; the batch itself, if that is all."""
    for name in columns:
        if batch.column(name).null_count:
            batch = batch.filter(cast("Any", pc).is_valid(batch.column(name)))
    return batch


def _gathered(batches: Iterator[pa.RecordBatch], enough: int) -> Iterator[pa.RecordBatch]:
    """Small batches together: what a selective filter leaves of each is not worth a message of its own."""
    for table in _tables(batches, enough // 2):
        yield from table.combine_chunks().to_batches()


def _top(batches: Iterator[pa.RecordBatch], plan: Any) -> Iterator[pa.RecordBatch]:
    """The first rows in an order."""
    keys = [(name, direction) for name, direction in plan["order"]]
    kept: pa.Table | None = None
    for table in _tables(batches, max(_ROWS_TO_SORT, plan["rows"])):
        both = table if kept is None else pa.concat_tables([kept, table])
        indices = cast("Any", pc).sort_indices(both, sort_keys=keys, null_placement=plan["nulls"])
        kept = both.take(indices[: plan["rows"]])
    if kept is not None:
        yield from kept.combine_chunks().to_batches()


def _tables(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The batches, so many rows together."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
        if count >= rows and waiting:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _with_computed(batch: pa.RecordBatch, pinned: TableVersion, metadata: set[str]) -> pa.RecordBatch:
    """With the metadata columns that pylance does not have."""
    if TABLE_VERSION in metadata:
        batch = batch.append_column(TABLE_VERSION, pa.array(np.full(batch.num_rows, pinned.version, np.int64)))
    for rank in metadata & {DISTANCE, SCORE}:  # this is no search
        batch = batch.append_column(rank, pa.nulls(batch.num_rows, pa.float32()))
    return batch


_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""The range of Spark's integers."""


class _Aggregates:
    """count, sum, min and max over the batches of a task."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self._steps: list[tuple[str, str | None]] = [
            (step, None) if isinstance(step, str) else (step[0], step[1]) for step in steps
        ]
        self._values: list[Any] = [0 if name == "count" else None for name, _ in self._steps]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for _, column in self._steps if column is not None))

    def add(self, batch: pa.RecordBatch) -> None:
        """Include the rows of a batch."""
        for number, (name, column) in enumerate(self._steps):
            self._values[number] = _next(name, self._values[number], None if column is None else batch.column(column))
            if name == "count" and column is None:
                self._values[number] += batch.num_rows

    def rows(self, target: pa.Schema) -> pa.RecordBatch:
        """The result as one row; as several, if a sum needs more than 64 bits: Spark then adds them as it adds rows."""
        columns = [self._column(number) for number in range(len(self._steps))]
        height = max(map(len, columns))
        arrays = [
            pa.array(column + self._nothing(number) * (height - len(column)), field.type)
            for number, (column, field) in enumerate(zip(columns, target, strict=True))
        ]
        return pa.RecordBatch.from_arrays(cast("Any", arrays), schema=target)

    def _column(self, number: int) -> list[Any]:
        value = self._values[number]
        if value is None or self._steps[number][0] != "sum" or isinstance(value, float):
            return [value]
        parts: list[int] = []
        while not _LEAST <= value <= _MOST:
            parts.append(_MOST if value > 0 else _LEAST)
            value -= parts[-1]
        return [*parts, value]

    def _nothing(self, number: int) -> list[Any]:
        return [0 if self._steps[number][0] == "count" else None]


def _next(name: str, before: Any, column: Any) -> Any:
    if column is None:
        return before
    if name == "count":
        return before + len(column) - column.null_count
    if name == "sum" and pa.types.is_floating(column.type):
        return _added(before, column)
    found = _total(column) if name == "sum" else cast("Any", pc).min_max(column)[name].as_py()
    if before is None or found is None:
        return found if before is None else before
    if name == "sum":
        return before + found
    if isinstance(found, str):  # Spark compares the bytes of texts
        return (min if name == "min" else max)(before, found, key=str.encode)
    return min(before, found) if name == "min" else max(before, found)


def _added(before: float | None, column: Any) -> float | None:
    """Floating-point numbers, added one after the other as Spark adds the rows of a task: the sum has the same bits."""
    values = column.drop_null().to_numpy(zero_copy_only=False)
    if not len(values):
        return before
    with np.errstate(all="ignore"):  # infinities and NaN are sums, too
        return float(
            np.add.accumulate(np.concatenate([[0.0 if before is None else before], values], dtype=np.float64))[-1]
        )


def _total(column: Any) -> int | None:
    """The exact sum of integers; None if all are null."""
    compute = cast("Any", pc)
    if column.type.bit_width == 64:  # pyarrow adds in 64 bits, and says nothing if these are not enough
        ends = compute.min_max(column)
        largest = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
        if largest * len(column) > _MOST:
            return sum(value for value in column.to_pylist() if value is not None)
    return compute.sum(column).as_py()


# ---------------------------------------------------------------------------- the process


def limit_memory(megabytes: str | None) -> None:
    """Limit the address space of this process, as Spark limits its own Python workers."""
    if megabytes is None:
        return
    wanted = int(megabytes) * 1024 * 1024
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def main(arguments: Sequence[str]) -> None:
    """Connect to the socket of the task, if there is one, and serve."""
    limit_memory(os.environ.get(MEMORY))
    frames = private_stdio()
    if not arguments:
        Worker(frames, frames.source, frames.sink).run()
        return
    with socket.socket(socket.AF_UNIX) as data:
        data.connect(arguments[0])
        data.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        Worker(frames, data.fileno(), data.fileno()).run()


if __name__ == "__main__":
    main(sys.argv[1:])
