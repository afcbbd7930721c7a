"""Cast of table batches to exactly the types that Spark accepts.

The stubs of pyarrow know less of nested arrays than pyarrow does; hence `Any` for those.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from conroi.errors import InvalidInputError


def cast_for_spark(batch: pa.RecordBatch, target: pa.Schema, table: str) -> pa.RecordBatch:
    """The columns of `target`, by name, in its types; parts of microseconds are cut, since Spark has none."""
    columns = [_column(batch.column(field.name), field, table) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _column(column: pa.Array[Any], field: pa.Field[Any], table: str) -> pa.Array[Any]:
    if column.type.equals(field.type, check_metadata=False) and column.type == field.type:
        return column
    try:
        return _cast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"Column {field.name!r} ({column.type}) has a value that Spark cannot hold as {field.type}: {error}",
            table=table,
            hint="Leave the column out, or convert it with columns={'name': 'expression'}.",
        ) from error


def _cast(column: Any, target: pa.DataType) -> Any:
    """pyarrow's own cast does not look into lists of fixed size, dictionaries and extensions inside others."""
    if isinstance(column, pa.ExtensionArray):
        return _cast(column.storage, target)
    if isinstance(column, pa.DictionaryArray):
        return _cast(column.dictionary_decode(), target)
    if pa.types.is_struct(target):
        parts = [_cast(column.field(i), target.field(i).type) for i in range(target.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=column.is_null())
    if pa.types.is_map(target):
        return _cast_map(column, target)
    if pa.types.is_list(target):
        return _cast_list(column, target)
    cast: Any = pc.cast
    return cast(column, options=pc.CastOptions(target, allow_time_truncate=True))


def _cast_list(column: Any, target: pa.ListType[Any]) -> Any:
    if isinstance(column, pa.FixedSizeListArray):
        column = column.cast(pa.list_(column.type.value_field))
    values, offsets = _inside(column)
    return pa.ListArray.from_arrays(offsets, _cast(values, target.value_type), type=target, mask=_nulls(column))


def _cast_map(column: Any, target: Any) -> Any:
    entries, offsets = _inside(column)
    keys, items = _cast(entries.field(0), target.key_type), _cast(entries.field(1), target.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=_nulls(column))


def _inside(column: Any) -> tuple[Any, Any]:
    """What is inside the lists, and where each begins; lists of 64-bit length as the others."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    offsets = pc.subtract(column.offsets, column.offsets[0]).cast(pa.int32())
    return column.values.slice(first, last - first), offsets


def _nulls(column: Any) -> Any:
    return column.is_null() if column.null_count else None
