"""Column computation: a value for every physical row of a fragment, in order, deleted rows included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from conroi.data.casts import cast_batch
from conroi.data.pylance import pylance_errors
from conroi.data.sql import expression
from conroi.data.table_version import TableVersion
from conroi.data.writer import DataWriter
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb

BatchFunction: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Given some rows, returns the new columns for just those rows."""
Columns: TypeAlias = Mapping[str, str] | BatchFunction


# pylance includes deleted rows only where the row id is asked for too
_EVERY_ROW: Any = {"include_deleted_rows": True, "with_row_id": True, "blob_handling": "all_binary"}


def column_batches(
    pinned: TableVersion,
    fragment_id: int,
    columns: Columns,
    read_columns: Sequence[str] | None = None,
    *,
    keeps_deleted: bool = True,
) -> pa.RecordBatchReader:
    """The new columns of one fragment, in the types they are computed with.

    Without `keeps_deleted`, deleted rows get the values of a row that is there: what they had may not fit a new type.
    """
    with pylance_errors(pinned.root):
        fragment = pinned.dataset.get_fragment(fragment_id)
        assert fragment is not None, "the manifest has this fragment"
        if callable(columns):
            names = list(read_columns) if read_columns is not None else pinned.schema.names
            scanned = fragment.scanner(columns=names, **_EVERY_ROW).to_reader()
            return _mapped(scanned, columns, pinned.root)
        wanted = {name: expression(value, pinned.root) for name, value in columns.items()}
        scanned = fragment.scanner(columns=wanted, **_EVERY_ROW).to_reader()
        return _without_row_id(scanned if keeps_deleted else _without_deleted_values(scanned))


def _without_deleted_values(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Deleted rows have no row id."""

    def replaced() -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []  # batches without any row that is there
        known: pa.RecordBatch | None = None
        for batch in reader:
            is_there = batch.column("_rowid").is_valid().to_numpy(zero_copy_only=False)
            if not is_there.any():
                waiting.append(batch)
                continue
            first = int(np.argmax(is_there))
            known = batch.slice(first, 1)
            yield from (_repeated(known, each.num_rows) for each in waiting)
            waiting = []
            places = np.where(is_there, np.arange(batch.num_rows), first)
            yield batch if is_there.all() else batch.take(pa.array(places, pa.int64()))
        yield from (each if known is None else _repeated(known, each.num_rows) for each in waiting)

    return pa.RecordBatchReader.from_batches(reader.schema, replaced())


def _repeated(row: pa.RecordBatch, times: int) -> pa.RecordBatch:
    return row.take(np.zeros(times, np.int64))


def column_types(pinned: TableVersion, columns: Mapping[str, str]) -> pa.Schema:
    """The types of the new columns by their expressions; no row is read."""
    with pylance_errors(pinned.root):
        wanted = {name: expression(value, pinned.root) for name, value in columns.items()}
        return _without_row_id(pinned.dataset.scanner(columns=wanted, with_row_id=True).to_reader()).schema


def _without_row_id(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    schema = pa.schema([f for f in reader.schema if f.name != "_rowid"])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(schema.names) for batch in reader))


def _mapped(reader: pa.RecordBatchReader, function: BatchFunction, table: str) -> pa.RecordBatchReader:
    batches = (_checked(function, batch, table) for batch in _without_row_id(reader))
    first = next(batches, None)
    if first is None:
        return pa.RecordBatchReader.from_batches(pa.schema([]), [])

    def all_batches() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    return pa.RecordBatchReader.from_batches(first.schema, all_batches())


def _checked(function: BatchFunction, batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    try:
        result = cast("object", function(batch))  # who knows what it returns
    except Exception as error:
        raise InvalidInputError(
            f"The function that computes the new columns failed: {error!r}", table=table, hint="See the cause above."
        ) from error
    if not isinstance(result, pa.RecordBatch) or result.num_rows != batch.num_rows:
        raise InvalidInputError(
            f"The function must return a RecordBatch of {batch.num_rows} rows, as many as it was given.",
            table=table,
            hint="Return pa.record_batch({name: values}) with one value per row.",
        )
    return result


def write_column_file(
    pinned: TableVersion, writer: DataWriter, batches: pa.RecordBatchReader, schema: pa.Schema, rows: int
) -> pb.DataFile:
    """A data file with these columns, cast to `schema`; it must have exactly as many rows as the fragment."""
    seen = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal seen
        for batch in batches:
            seen += batch.num_rows
            yield cast_batch(batch, schema, pinned.root)

    with pylance_errors(pinned.root):
        file = writer.write_columns(counted(), schema)
    if seen != rows:
        raise InvalidInputError(
            f"The new columns have {seen} rows, but the fragment has {rows}.",
            table=pinned.root,
            hint="Return one value for each row that was given.",
        )
    return file
