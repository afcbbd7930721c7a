"""Physical columns of fragments, deleted rows included: computed for new columns, and cached between verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from conroi.data.arrow_types import row_width
from conroi.data.casts import cast_batch
from conroi.data.pylance import file_session, pylance_errors
from conroi.data.sql import expression
from conroi.data.table_version import TableVersion
from conroi.data.writer import DataWriter
from conroi.errors import ConroiError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.naming import check_relative_path
from conroi.storage.cache import BoundedCache

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
        result = cast("object", function(batch))  # it may return anything
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


# ------------------------------------------------------------------------------ cache

Column: TypeAlias = "pa.Array[Any]"
Place: TypeAlias = tuple[str, ...]
"""The files of a fragment that hold the requested columns: one name for each column."""

COLUMNS: BoundedCache[Column] = BoundedCache(64 * 1024 * 1024)
"""Cache: by table, file and field, the column."""
FEW_FILES = 6
"""Number of files up to which they are read one by one; for more, one scan is faster."""


@dataclass(frozen=True)
class Wanted:
    """Columns of a table, by field id."""

    names: tuple[str, ...]
    ids: tuple[int, ...]
    types: tuple[pa.DataType, ...]

    @cached_property
    def kinds(self) -> tuple[tuple[int, str], ...]:
        """Cache key of a request for columns, independent of their names."""
        return tuple((number, str(type_)) for number, type_ in zip(self.ids, self.types, strict=True))

    def fits(self, fragments: Sequence[pb.DataFragment]) -> bool:
        """Whether the columns of these fragments are small enough to be cached."""
        width = row_width(pa.schema(zip(self.names, self.types, strict=True)))
        return width * sum(fragment.physical_rows for fragment in fragments) <= COLUMNS.most_bytes // 2

    def place_in(self, fragment: pb.DataFragment) -> Place | None:
        """The files that hold the columns; None if they are not simply in files of this table."""
        if fragment.overlays:
            return None
        files = list(fragment.files)
        place = tuple([_file_with(files, number) for number in self.ids])
        return None if "" in place else place


def wanted(pinned: TableVersion, columns: Sequence[str]) -> Wanted | None:
    """The columns, if they are plain ones: not inside others, and comparable as they are stored."""
    numbers = {field.name: field.id for field in pinned.manifest.fields if field.parent_id == -1}
    if not all(column in numbers for column in columns):
        return None
    types = tuple(pinned.schema.field(column).type for column in columns)
    if not all(_is_plain(type_) for type_ in types):
        return None
    return Wanted(tuple(columns), tuple(numbers[column] for column in columns), types)


def stored_columns(
    pinned: TableVersion, fragments: Sequence[pb.DataFragment], what: Wanted
) -> list[tuple[Column, ...]] | None:
    """The columns of each fragment, deleted rows included; None if only a scan can tell."""
    places = [what.place_in(fragment) for fragment in fragments]
    found: list[tuple[Column, ...] | None] = []
    for place in places:
        if place is None:
            return None
        found.append(_kept(pinned.root, place, what))
    missing = [number for number, columns in enumerate(found) if columns is None]
    if missing:
        read = _read(pinned, [fragments[number] for number in missing], what)
        if read is None:
            return None
        for number, columns in zip(missing, read, strict=True):
            found[number] = columns
            keep(pinned.root, places[number] or (), what, columns)
    return [columns for columns in found if columns is not None]


def keep(root: str, place: Place, what: Wanted, columns: Sequence[Column]) -> None:
    """Cache columns of one fragment."""
    for path, number, column in zip(place, what.ids, columns, strict=True):
        COLUMNS.put((root, path, number), column, column.nbytes)


def remember(pinned: TableVersion, fragments: Sequence[pb.DataFragment], rows: pa.Table, names: Sequence[str]) -> None:
    """Cache columns of rows that were just written to these fragments, so that they are never read."""
    what = wanted(pinned, names)
    if what is None or not what.fits(fragments) or not _has_types(rows, what):
        return
    start = 0
    for fragment in fragments:
        place = what.place_in(fragment)
        if place is not None:
            part = rows.slice(start, fragment.physical_rows)
            keep(pinned.root, place, what, [whole(part[name]) for name in names])
        start += fragment.physical_rows


def _has_types(rows: pa.Table, what: Wanted) -> bool:
    return all(rows.schema.field(name).type == type_ for name, type_ in zip(what.names, what.types, strict=True))


# ------------------------------------------------------------------------------ what is kept


def _kept(root: str, place: Place, what: Wanted) -> tuple[Column, ...] | None:
    columns = tuple(COLUMNS.get((root, path, number)) for path, number in zip(place, what.ids, strict=True))
    complete = tuple(c for c, type_ in zip(columns, what.types, strict=True) if c is not None and c.type == type_)
    return complete if len(complete) == len(columns) else None


def _file_with(files: list[pb.DataFile], number: int) -> str:
    """The one file that holds the field; nothing if it is elsewhere, in an old format, or not in one file."""
    if len(files) != 1:
        files = [file for file in files if number in file.fields]
    elif number not in files[0].fields:
        return ""
    if len(files) != 1 or files[0].HasField("base_id") or files[0].file_major_version != 2:
        return ""
    return files[0].path


def _is_plain(type_: pa.DataType) -> bool:
    """Whether values come out of a file as they went in, and are the same only if their bytes are."""
    return any(is_kind(type_) for is_kind in _PLAIN_KINDS)


_PLAIN_KINDS = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_decimal,
)


# ------------------------------------------------------------------------------------ reading


def _read(pinned: TableVersion, fragments: Sequence[pb.DataFragment], what: Wanted) -> list[tuple[Column, ...]] | None:
    if len(fragments) <= FEW_FILES:
        found = [_read_files(pinned, fragment, what) for fragment in fragments]
        if all(columns is not None for columns in found):
            return [columns for columns in found if columns is not None]
    return _scan(pinned, fragments, what)


def _read_files(pinned: TableVersion, fragment: pb.DataFragment, what: Wanted) -> tuple[Column, ...] | None:
    """By file, without opening the table in pylance; None if the files are not quite as expected."""
    columns: dict[str, Column] = {}
    for file in fragment.files:
        here = {name: number for name, number in zip(what.names, what.ids, strict=True) if number in file.fields}
        if here:
            columns |= _read_file(pinned, file, here, fragment.physical_rows) or {}
    read = tuple(columns[name] for name in what.names if name in columns)
    is_right = len(read) == len(what.names) and all(c.type == t for c, t in zip(read, what.types, strict=True))
    return read if is_right else None


def _read_file(pinned: TableVersion, file: pb.DataFile, columns: dict[str, int], rows: int) -> dict[str, Column] | None:
    try:
        with pylance_errors(pinned.root):
            check_relative_path(file.path)
            reader = file_session(pinned.files.objects, file.path).open_reader(file.path, columns=list(columns))
            stored = reader.metadata().schema.names
            # A column may have been renamed since; as many fields as columns means that they are in the same order.
            numbers = dict(zip(stored, file.fields, strict=False)) if len(stored) == len(file.fields) else {}
            if any(numbers.get(name) != number for name, number in columns.items()):
                return None
            table = reader.read_all(batch_size=max(rows, 1)).to_table()
    except ConroiError:
        return None  # a scan says what is wrong, if anything is
    return {name: whole(table[name]) for name in columns} if table.num_rows == rows else None


def _scan(pinned: TableVersion, fragments: Sequence[pb.DataFragment], what: Wanted) -> list[tuple[Column, ...]] | None:
    with pylance_errors(pinned.root):
        scanned = pinned.dataset.scanner(
            columns=list(what.names),
            fragments=[pinned.dataset.get_fragment(fragment.id) for fragment in fragments],
            include_deleted_rows=True,
            with_row_id=True,  # without which pylance leaves deleted rows out
            scan_in_order=True,
        ).to_table()
    if scanned.num_rows != sum(fragment.physical_rows for fragment in fragments):
        return None
    found: list[tuple[Column, ...]] = []
    start = 0
    for fragment in fragments:
        part = scanned.slice(start, fragment.physical_rows)
        found.append(tuple(whole(part[name]) for name in what.names))
        start += fragment.physical_rows
    return found


def whole(column: pa.ChunkedArray[Any]) -> Column:
    """The column in one piece, which holds on to nothing else: a part of a column keeps all of it in memory."""
    if column.num_chunks == 0:
        return pa.array([], column.type)
    chunks = column.chunks
    return pa.concat_arrays([*chunks, chunks[0].slice(0, 0)])  # of two, since of one it would be the same again
