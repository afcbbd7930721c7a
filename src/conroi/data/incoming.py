"""Input data of any supported kind as a stream of Arrow batches in the table's schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import pyarrow as pa

from conroi.arguments import printable
from conroi.data.arrow_types import metadata_of
from conroi.data.elsewhere import Elsewhere, from_elsewhere, kept
from conroi.data.python_rows import rows_to_table
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


def is_one_shot(data: object) -> bool:
    """Whether reading the data uses it up, so that work on it cannot be done again."""
    is_kept = isinstance(data, pa.Table | pa.RecordBatch | Sequence | Elsewhere) or hasattr(data, "__len__")
    return not is_kept


def carries_metadata(data: object) -> bool:
    """Whether the data has a place for metadata of its schema: Arrow data has one, rows and frames have none."""
    if isinstance(data, Once):
        return data.carries_metadata
    is_frame = type(data).__module__.partition(".")[0] in ("pandas", "pyspark")
    return not is_frame and not isinstance(data, Elsewhere) and hasattr(data, "__arrow_c_stream__")


class Once:
    """Data for work that may be repeated: a consumed stream is refused, instead of being empty."""

    def __init__(self, data: object) -> None:
        self._data = kept(data)
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


def opened(data: object, schema: pa.Schema | None = None) -> pa.RecordBatchReader | Elsewhere:
    """The data as a stream, or as rows that are written where they are."""
    if isinstance(data, Once):
        data = data.take()
    return from_elsewhere(data) or to_reader(data, schema)


def to_reader(data: object, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """The data as a stream of record batches, in its own schema. `schema` helps to read lists of dicts."""
    try:
        return _without_views(_checked(_to_reader(data, schema)))
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


def _checked(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The stream with each batch checked: other software made it, and what a table holds can be read by all."""
    return pa.RecordBatchReader.from_batches(reader.schema, _checked_batches(reader))


def _checked_batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
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
        yield batch


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
