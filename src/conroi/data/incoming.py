"""Incoming rows: anything with an Arrow stream, frames and lists of dicts, as one stream of record batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import pyarrow as pa

from conroi.arguments import printable, shortened
from conroi.data.arrow_types import metadata_of
from conroi.data.remote_rows import RemoteRows, from_elsewhere, kept
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


def opened(data: object, schema: pa.Schema | None = None) -> pa.RecordBatchReader | RemoteRows:
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


Loss = Callable[[Any], str | None]
"""What would be lost of a value; None if nothing."""

_LARGEST = {"halffloat": 65_519.99, "float": 3.4028235677973362e38}
"""What becomes infinite beyond this, by type."""
MOST_LEVELS = 64
"""How deep lists and dicts may be inside each other."""
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}


def rows_to_table(given: Sequence[object], schema: pa.Schema | None) -> pa.Table:
    """The rows, with the types of the schema for the columns that it has; other types are inferred."""
    rows = _checked_rows(given)
    if not rows:
        if schema is None:
            raise InvalidInputError("An empty list has no schema.", hint="Give a pyarrow schema instead.")
        return pa.Table.from_batches([], schema)
    named = dict.fromkeys(name for row in rows for name in row)
    wanted = {} if schema is None else {field.name: field for field in schema}
    fields = [field for name, field in wanted.items() if name in named]
    unknown = [name for name in named if name not in wanted]
    fields += [pa.field(name, _inferred(name, rows)) for name in (sorted(unknown) if wanted else unknown)]
    if not fields:
        raise InvalidInputError("The rows have no columns.", hint="Give each row at least one value.")
    return pa.Table.from_arrays([_column(field, rows) for field in fields], schema=pa.schema(fields))


def _checked_rows(given: Sequence[object]) -> Sequence[Mapping[str, Any]]:
    for row in given:
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"A list of dicts was expected, but it holds a {type(row).__name__}.",
                hint='Write rows as [{"id": 1, "name": "a"}, …].',
            )
        for name, value in cast("Mapping[object, object]", row).items():
            if not isinstance(name, str):
                raise InvalidInputError(
                    f"{shortened(name)} is the name of a column, but not text.", hint='Write {"id": 1}.'
                )
            if not _is_shallow(value, MOST_LEVELS):
                raise InvalidInputError(
                    f"Column {shortened(name)} has more than {MOST_LEVELS} lists and dicts inside each other.",
                    hint="Give the value fewer levels; one that contains itself cannot be stored.",
                )
    return cast("Sequence[Mapping[str, Any]]", given)


def _is_shallow(value: object, levels: int) -> bool:
    """Whether not more than so many lists and dicts are inside each other: pyarrow has no limit, and crashes."""
    if isinstance(value, Mapping):
        inside: Iterable[object] = cast("Mapping[object, object]", value).values()
    elif isinstance(value, list | tuple | set | frozenset):
        inside = cast("Iterable[object]", value)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        inside = cast("Iterable[object]", value.flat)
    else:
        return True
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inside)


def _inferred(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.DataType:
    try:
        return pa.array([row.get(name) for row in rows]).type
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"Column {name!r} has values of different types: {error}",
            hint="Make them all of one type, or create the table from a pyarrow schema first.",
        ) from error


def _column(field: pa.Field[Any], rows: Sequence[Mapping[str, Any]]) -> pa.Array[Any]:
    _refuse_loss(field, rows)
    try:
        return pa.array([row.get(field.name) for row in rows], field.type)
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
        if pa.types.is_null(field.type):
            raise InvalidInputError(
                f"Column {field.name!r} of the table can hold only nulls: it had no other value when it was created.",
                hint=f'Give it a type first: alter_columns({{{field.name!r}: {{"type": pa.string()}}}}).',
            ) from error
        raise InvalidInputError(
            f"Column {field.name!r} has a value that does not fit {field.type}: {printable(error)}",
            hint="Check that every value has its column's type.",
        ) from error


def _refuse_loss(field: pa.Field[Any], rows: Iterable[Mapping[str, Any]]) -> None:
    loss = _loss_of(field.type)
    if loss is None:
        return
    for row in rows:
        value = row.get(field.name)
        lost = None if value is None else loss(value)
        if lost is not None:
            raise InvalidInputError(
                f"Column {field.name!r} has the value {shortened(value)}, which does not fit {field.type}: {lost}.",
                hint="Nothing is cut or rounded silently: convert the value first, or change the column with "
                "alter_columns().",
            )


def _loss_of(type_: pa.DataType) -> Loss | None:
    """What tells whether a value would lose something in this type; None where pyarrow itself refuses."""
    if isinstance(type_, pa.BaseExtensionType):
        return _loss_of(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return _loss_of(type_.value_type)
    if pa.types.is_integer(type_):
        return _fraction
    if str(type_) in _LARGEST:
        return _beyond(_LARGEST[str(type_)])
    if pa.types.is_temporal(type_):
        return _loss_of_time(type_)
    if pa.types.is_struct(type_):
        return _in_struct({type_.field(number).name: type_.field(number).type for number in range(type_.num_fields)})
    if pa.types.is_map(type_):
        return _in_map(_loss_of(type_.key_type), _loss_of(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        inside = _loss_of(type_.value_type)
        return None if inside is None else _in_list(inside)
    return None


def _fraction(value: Any) -> str | None:
    is_number = isinstance(value, Decimal | Real) and not isinstance(value, int)
    return f"the fraction of {shortened(value)} would be lost" if is_number and value % 1 else None


def _beyond(largest: float) -> Loss:
    def loss(value: Any) -> str | None:
        is_finite = isinstance(value, Real) and abs(float(value)) != float("inf")
        return f"{shortened(value)} would become infinite" if is_finite and abs(float(value)) > largest else None

    return loss


def _loss_of_time(type_: pa.DataType) -> Loss:
    unit = "day" if pa.types.is_date(type_) else str(getattr(type_, "unit", ""))
    has_zone = pa.types.is_timestamp(type_) and type_.tz is not None

    def loss(value: Any) -> str | None:
        if isinstance(value, dt.datetime) and unit == "day":
            return "the time of day would be lost" if value.time() != dt.time() or value.tzinfo else None
        if isinstance(value, dt.datetime | dt.time) and value.tzinfo is not None and not has_zone:
            return "the time zone would be lost"
        if isinstance(value, dt.datetime | dt.time):
            return _finer(value.microsecond, unit)
        if isinstance(value, dt.timedelta):
            return _finer(value.microseconds, unit)
        return _fraction(value)

    return loss


def _finer(microseconds: int, unit: str) -> str | None:
    return f"it is finer than the column's unit, {unit}" if microseconds % _MICROSECONDS.get(unit, 1) else None


def _in_struct(types: Mapping[str, pa.DataType]) -> Loss:
    inside = {name: _loss_of(type_) for name, type_ in types.items()}

    def loss(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return None
        for name, each in cast("Mapping[object, Any]", value).items():
            if name not in inside:
                return f"the struct has no field {shortened(name)}"
            check = inside[cast("str", name)]
            lost = None if check is None or each is None else check(each)
            if lost is not None:
                return lost
        return None

    return loss


def _in_list(inside: Loss) -> Loss:
    def loss(value: Any) -> str | None:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            return None
        return next((lost for each in cast("Any", value) if each is not None and (lost := inside(each))), None)

    return loss


def _in_map(key: Loss | None, item: Loss | None) -> Loss:
    def loss(value: Any) -> str | None:
        pairs = value.items() if isinstance(value, Mapping) else value
        if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
            return None
        for pair in cast("Any", pairs):
            for check, each in zip((key, item), pair, strict=False):
                lost = None if check is None or each is None else check(each)
                if lost is not None:
                    return lost
        return None

    return loss
