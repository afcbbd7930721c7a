"""Incoming rows: an Arrow stream, a frame, a list of dicts or a Spark DataFrame, as batches or as files of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import pyarrow as pa

from conroi.arguments import printable
from conroi.data.arrow_types import metadata_of
from conroi.data.casts import cast_batch, checked_columns, refuse_nulls
from conroi.data.dict_rows import rows_to_table
from conroi.data.keys import key_columns_of
from conroi.data.writer import DataWriter, Progress, WrittenFiles
from conroi.errors import InvalidInputError, RetryableConflict


class ArrowStream(Protocol):
    """Anything that can hand over an Arrow stream: pyarrow, polars, pandas, duckdb, …"""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class StoredRows(Protocol):
    """A table of ours: its rows in the form in which they can be written again, blobs with their bytes."""

    def stored_rows(self) -> pa.RecordBatchReader: ...


Data: TypeAlias = ArrowStream | Sequence[Mapping[str, Any]]
"""What the verbs take: an Arrow stream, a pandas, polars or Spark frame, or a list of dicts."""

_IS_NULLABLE = attrgetter("nullable")


# ---------------------------------------------------------------------------- rows of a distributed engine


@dataclass(frozen=True)
class WrittenRemoteRows:
    """Files that a distributed engine wrote for us, and the keys of their rows."""

    files: WrittenFiles
    keys: Sequence[pa.Table] = field(default_factory=list[pa.Table])
    """Empty for a table without a key."""


class RemoteRows(ABC):
    """Rows that can be written without passing through this process.

    Not a protocol: a DataFrame has an attribute of any name, since it might be a column's.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Their columns."""

    @abstractmethod
    def write(
        self, writer: DataWriter, schema: pa.Schema, key: Sequence[str], progress: Progress | None = None
    ) -> WrittenRemoteRows:
        """Write them as files of the writer's table; idempotent for the same request."""

    def in_pieces(self, writer: DataWriter, schema: pa.Schema, key: Sequence[str], rows: int) -> Sequence[RemoteRows]:
        """Write them at once, and yield them in pieces of at most this many rows, in their order."""
        del writer, schema, key, rows
        return [self]  # what is written already stays as it is

    @abstractmethod
    def to_reader(self) -> pa.RecordBatchReader:
        """The rows in this process; InvalidInputError if they are too many for that."""


def from_elsewhere(data: object) -> RemoteRows | None:
    """The data as remote rows, if it is a DataFrame."""
    if isinstance(data, RemoteRows):
        return data
    if type(data).__module__.partition(".")[0] != "pyspark":
        return None
    return cast("RemoteRows | None", in_spark("write_task").from_spark(data))


def in_spark(module: str) -> Any:
    """A module of conroi.spark, a higher layer; imported only when it is used, since Spark is optional."""
    return import_module(f"conroi.spark.{module}")


# ---------------------------------------------------------------------------- writing them


@dataclass(frozen=True)
class KeysSeen:
    """Collects the keys of rows while they are written to data files."""

    columns: Sequence[str]
    _parts: list[pa.Table] = field(default_factory=list[pa.Table])

    def watch(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The same stream, watched; unchanged without key columns."""
        if not self.columns:
            return reader
        return pa.RecordBatchReader.from_batches(reader.schema, self._watched(reader))

    def _watched(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            self._parts.append(key_columns_of(pa.Table.from_batches([batch]), self.columns))
            yield batch

    def add(self, parts: Iterable[pa.Table]) -> None:
        """Add keys of rows that were written by a distributed engine."""
        self._parts.extend(parts)

    def keys(self) -> pa.Table | None:
        """All collected keys; None if the table has no key or there were no rows."""
        return pa.concat_tables(self._parts) if self._parts else None


def fit(reader: pa.RecordBatchReader, target: pa.Schema, *, table: str) -> pa.RecordBatchReader:
    """The stream with the target's types: columns by name, missing nullable ones left out, none unknown.

    The result has the target's columns, in its order, as far as the data has them.
    """
    if reader.schema.equals(target, check_metadata=True) and all(map(_IS_NULLABLE, target)):
        return reader
    present = checked_columns(reader.schema, target, table=table)
    if reader.schema.equals(present, check_metadata=False):
        return pa.RecordBatchReader.from_batches(present, _retyped(reader, present))
    return pa.RecordBatchReader.from_batches(present, _cast(reader, present, table))


def _retyped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        refuse_nulls(batch.columns, schema)
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema, table: str) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield cast_batch(batch, schema, table)


def write_rows(
    rows: pa.RecordBatchReader | RemoteRows,
    schema: pa.Schema,
    writer: DataWriter,
    seen: KeysSeen,
    progress: Progress | None = None,
) -> WrittenFiles:
    """Align the rows with the schema and write them; `seen` collects their keys."""
    table = writer.objects.root
    if isinstance(rows, pa.RecordBatchReader):
        fitting = fit(rows, schema, table=table)
        return writer.write(seen.watch(fitting) if seen.columns else fitting, progress)
    checked_columns(rows.schema, schema, table=table)  # before any work starts
    written = rows.write(writer, schema, seen.columns, progress)
    seen.add(written.keys)
    return written.files


# ---------------------------------------------------------------------------- reading them


def is_one_shot(data: object) -> bool:
    """Whether reading the data uses it up, so that work on it cannot be done again."""
    is_kept = isinstance(data, pa.Table | pa.RecordBatch | Sequence | RemoteRows) or hasattr(data, "__len__")
    return not is_kept


def carries_metadata(data: object) -> bool:
    """Whether the data has a place for metadata of its schema: Arrow data has one, rows and frames have none."""
    if isinstance(data, Once):
        return data.carries_metadata
    is_frame = type(data).__module__.partition(".")[0] in ("pandas", "pyspark")
    return not is_frame and not isinstance(data, RemoteRows) and hasattr(data, "__arrow_c_stream__")


class Once:
    """Data for work that may be repeated: a consumed stream is refused, instead of being empty."""

    def __init__(self, data: object) -> None:
        self._data = from_elsewhere(data) or data  # remote rows are cached, so that they are written only once
        self._is_taken = False

    def take(self) -> object:
        """The data itself."""
        if self._is_taken and is_one_shot(self._data):
            raise RetryableConflict(
                "A concurrent commit was first and the work must be done again, but a stream can be read only once.",
                hint="Do it again with a new stream, or give a table.",
            )
        self._is_taken = True
        return self._data

    @property
    def carries_metadata(self) -> bool:
        """As the function says it of the data."""
        return carries_metadata(self._data)


def opened(data: object, schema: pa.Schema | None = None) -> pa.RecordBatchReader | RemoteRows:
    """The data as a stream, or as rows that are written where they are."""
    if isinstance(data, Once):
        data = data.take()
    return from_elsewhere(data) or to_reader(data, schema)


def to_reader(data: object, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """The data as a stream of record batches, in its own schema. `schema` helps to read lists of dicts."""
    try:
        reader = _to_reader(data, schema)
        checked = pa.RecordBatchReader.from_batches(reader.schema, _checked_batches(reader))
        return _without_views(checked) if "_view" in str(reader.schema.types) else checked
    except (ValueError, TypeError, ArithmeticError, RecursionError, pa.ArrowException) as error:
        raise _unreadable(error) from error


def _to_reader(data: object, schema: pa.Schema | None) -> pa.RecordBatchReader:
    if isinstance(data, Once):
        return _to_reader(data.take(), schema)
    elsewhere = from_elsewhere(data)
    if elsewhere is not None:
        return elsewhere.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, StoredRows):
        return data.stored_rows()
    if type(data).__module__.partition(".")[0] == "pandas":
        data = _with_named_index(cast("Any", data))
        return pa.Table.from_pandas(cast("Any", data), preserve_index=False).replace_schema_metadata(None).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(cast("Any", data))
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return rows_to_table(cast("Sequence[object]", data), schema).to_reader()
    raise InvalidInputError(
        f"Data of type {type(data).__name__} cannot be written.",
        hint="Give an Arrow table or reader, a pandas, polars or Spark frame, or a list of dicts.",
    )


def _with_named_index(frame: Any) -> Any:
    """The frame with an index that has a name as columns, as after groupby(); an index without one only counts rows."""
    index = getattr(frame, "index", None)
    return frame if index is None or all(name is None for name in index.names) else frame.reset_index()


def _checked_batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Each batch, checked: other software made it, and what a table holds can be read by all."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except pa.ArrowException as error:
            raise _unreadable(error) from error
        if not batch.schema.equals(reader.schema):
            raise InvalidInputError(
                f"The stream says that its columns are {_columns(reader.schema)}, but a batch has "
                f"{_columns(batch.schema)}.",
                hint="All batches of a stream must have the stream's schema.",
            )
        try:
            batch.validate(full=True)
        except pa.ArrowException as error:
            raise _unreadable(error) from error
        is_same = batch.schema.equals(reader.schema, check_metadata=True)
        yield batch if is_same else pa.RecordBatch.from_arrays(batch.columns, schema=reader.schema)


def _unreadable(error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"The data could not be read as Arrow: {printable(error)}",
        hint="Check that every value has its column's type, and that text is UTF-8.",
    )


def _columns(schema: pa.Schema) -> str:
    return printable(", ".join(f"{field.name}: {field.type}" for field in schema))


def _without_views(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Views, which polars hands over, as plain text and bytes: tables hold those, and pyarrow can compute with them."""
    plain = pa.schema([_plain_field(field) for field in reader.schema], metadata=metadata_of(reader.schema))
    if plain.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(plain, (_plain_batch(batch, plain) for batch in reader))


def _plain_batch(batch: pa.RecordBatch, plain: pa.Schema) -> pa.RecordBatch:
    columns = [_plain_array(column, field.type) for column, field in zip(batch.columns, plain, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=plain)


def _plain_array(column: pa.Array[Any], type_: pa.DataType) -> pa.Array[Any]:
    if isinstance(column, pa.DictionaryArray) and pa.types.is_dictionary(type_):  # pyarrow cannot cast its values
        return pa.DictionaryArray.from_arrays(
            column.indices, column.dictionary.cast(type_.value_type), ordered=type_.ordered
        )
    return column if column.type == type_ else column.cast(type_)


def _plain_field(field: pa.Field[Any]) -> pa.Field[Any]:
    return field.with_type(_plain_type(field.type))


def _plain_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_dictionary(type_):
        return pa.dictionary(type_.index_type, cast("Any", _plain_type(type_.value_type)), ordered=type_.ordered)
    if pa.types.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(_plain_field(type_.value_field))
    return pa.list_(_plain_field(type_.value_field)) if pa.types.is_list(type_) else type_
