"""Casts of incoming rows into the table's types without loss, and widening of the table's types."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import pyarrow as pa

from conroi.data.arrow_types import cast_array, metadata_of
from conroi.errors import InvalidInputError
from conroi.format.fields import BLOB_EXTENSION

_FITTING: deque[tuple[pa.Schema, pa.Schema, pa.Schema]] = deque(maxlen=16)
"""Schemas of data and tables that fit, and the columns to be written: a writer appends the same columns every time."""


def checked_columns(source: pa.Schema, target: pa.Schema, *, table: str) -> pa.Schema:
    """The fields of the target that the source has; InvalidInputError if the two do not fit."""
    for known, there, present in tuple(_FITTING):
        if there.equals(target, check_metadata=True) and known.equals(source, check_metadata=True):
            return present
    present = _checked_columns(source, target, table)
    _FITTING.append((source, target, present))
    return present


def _checked_columns(source: pa.Schema, target: pa.Schema, table: str) -> pa.Schema:
    unknown = [name for name in source.names if name not in target.names]
    if unknown:
        raise InvalidInputError(
            f"The data has columns the table does not have: {', '.join(unknown)}.",
            table=table,
            hint=f"The table's columns are {', '.join(target.names)}. "
            "evolve_schema=True in append() and merge() adds new ones.",
        )
    if len(set(source.names)) != len(source.names):
        raise InvalidInputError("The data has a column name twice.", table=table, hint="Rename one of the two.")
    missing = [f.name for f in target if not f.nullable and f.name not in source.names]
    if missing:
        raise InvalidInputError(
            f"The data lacks columns that may not be null: {', '.join(missing)}.",
            table=table,
            hint=f'Add them to the data, or let them be null: alter_columns({{"{missing[0]}": {{"nullable": True}}}}).',
        )
    present = [field for field in target if field.name in source.names]
    if not present:
        raise InvalidInputError(
            "The data has none of the table's columns.", table=table, hint=f"They are {', '.join(target.names)}."
        )
    for field in present:
        if not can_become(source.field(field.name).type, field.type):
            raise InvalidInputError(
                f"Column {field.name!r} holds {source.field(field.name).type}, but the table's is {field.type}.",
                table=table,
                hint="Convert the column first, or change the table with alter_columns().",
            )
        _check_blob_thresholds(source.field(field.name), field, table)
    return pa.schema(present, metadata=metadata_of(target))


_BLOB_THRESHOLDS = {
    b"lance-encoding:blob-inline-size-threshold": 64 << 10,
    b"lance-encoding:blob-dedicated-size-threshold": 4 << 20,
    b"lance-encoding:blob-pack-file-size-threshold": 1 << 30,
}
"""What decides where the bytes of a blob are stored, and the values that Lance uses where the table says nothing."""


def _check_blob_thresholds(source: pa.Field[Any], target: pa.Field[Any], table: str) -> None:
    """The table's thresholds hold for all its blobs: data that asks for others is refused, as pylance does."""
    asked, kept = metadata_of(source) or {}, metadata_of(target) or {}
    for name, default in _BLOB_THRESHOLDS.items():
        wanted, there = asked.get(name), kept.get(name, str(default).encode())
        if wanted is not None and wanted != there:
            raise InvalidInputError(
                f"Column {source.name!r} asks for {name.decode()} {wanted!r}, but the table's is {there!r}.",
                table=table,
                hint="Leave the threshold out. It is chosen when the table is created.",
            )


def can_become(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of one type are taken for another (each value is still checked: none is cut or rounded)."""
    if source.equals(target) or pa.types.is_null(source):
        return True
    if isinstance(target, pa.BaseExtensionType):
        is_content = _is_bytes(source) or _is_blob(source)
        return (_is_blob(target) and is_content) or can_become(source, target.storage_type)
    if isinstance(source, pa.BaseExtensionType):
        return can_become(source.storage_type, target)
    if pa.types.is_dictionary(source) or pa.types.is_dictionary(target):
        plain = [t.value_type if pa.types.is_dictionary(t) else t for t in (source, target)]
        return can_become(plain[0], plain[1])
    if pa.types.is_nested(source) and pa.types.is_nested(target):
        return _nested_can_become(source, target)
    if pa.types.is_integer(target) and pa.types.is_decimal(source):
        return source.scale <= 0  # so Spark has the integers that go up to 2⁶⁴
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target) and target.tz is None:
        return source.tz in (None, "UTC")  # without another zone a time says another moment
    return any(family(source) and family(target) for family in _FAMILIES) or (
        pa.types.is_integer(source) and (pa.types.is_floating(target) or pa.types.is_decimal(target))
    )


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def _is_bytes(type_: pa.DataType) -> bool:
    return (
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
        or pa.types.is_binary_view(type_)
    )


_FAMILIES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    _is_text,
    _is_bytes,
)


def _is_list(type_: pa.DataType) -> TypeGuard[pa.ListType[Any]]:
    return pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)


def _nested_can_become(source: pa.DataType, target: pa.DataType) -> bool:
    if _is_list(source) and _is_list(target):
        return can_become(source.value_type, target.value_type)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        known = {field.name: field.type for field in target}
        return all(field.name in known and can_become(field.type, known[field.name]) for field in source)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return can_become(source.key_type, target.key_type) and can_become(source.item_type, target.item_type)
    return False


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema, table: str) -> pa.RecordBatch:
    """The columns that `schema` names, in its types; InvalidInputError where a value does not fit."""
    columns = [_cast_column(batch.column(field.name), field, table) for field in schema]
    refuse_nulls(columns, schema)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast_column(column: pa.Array[Any], field: pa.Field[Any], table: str) -> pa.Array[Any]:
    if column.type.equals(field.type):
        return column
    try:
        storage = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        plain = column.storage if isinstance(column, pa.ExtensionArray) else column
        if _holds_blobs(field.type):
            return _with_blobs(plain, field.type)
        converted = _to_dictionary(plain, storage) if pa.types.is_dictionary(storage) else cast_array(plain, storage)
        if isinstance(field.type, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(field.type, converted)
        return converted
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInputError(
            f"Column {field.name!r} ({column.type}) has a value that does not fit {field.type}: {error}",
            table=table,
            hint="Nothing is cut or rounded silently; convert the column first.",
        ) from error


def _holds_blobs(type_: pa.DataType) -> bool:
    return _is_blob(type_) or any(_holds_blobs(type_.field(number).type) for number in range(type_.num_fields))


def _with_blobs(column: pa.Array[Any], type_: pa.DataType) -> pa.Array[Any]:
    """The column with bytes as blobs wherever the type has blobs, inside structs and lists too."""
    if column.type.equals(type_):
        return column
    if _is_blob(type_) and isinstance(type_, pa.BaseExtensionType):
        storage = column.storage if isinstance(column, pa.ExtensionArray) else column
        storage = _to_blob(storage) if _is_bytes(storage.type) else storage
        return pa.ExtensionArray.from_storage(type_, _blob_parts(storage, type_.storage_type))
    if not _holds_blobs(type_):
        return cast_array(column, type_)
    if isinstance(column, pa.StructArray) and pa.types.is_struct(type_):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        parts = [_with_blobs(column.field(field.name), field.type) for field in fields]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null())
    if isinstance(column, pa.ListArray | pa.LargeListArray) and _is_list(type_):
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        values = _with_blobs(column.values.slice(first, last - first), type_.value_type)
        is_large = pa.types.is_large_list(type_)
        offsets = pa.array(column.offsets.to_numpy() - first, pa.int64() if is_large else pa.int32())
        kind = cast("Any", pa.LargeListArray if is_large else pa.ListArray)
        return kind.from_arrays(offsets, values, type=type_, mask=column.is_null())
    return cast_array(column, type_)


def _blob_parts(storage: pa.Array[Any], type_: pa.DataType) -> pa.Array[Any]:
    """Blobs in the parts that this release of the type has: older ones have none for a range in another file."""
    if storage.type.equals(type_) or not isinstance(storage, pa.StructArray):
        return storage.cast(type_)
    wanted = [type_.field(number) for number in range(type_.num_fields)]
    known = {storage.type.field(number).name for number in range(storage.type.num_fields)}
    for name in known - {field.name for field in wanted}:
        if storage.field(name).null_count < len(storage):
            raise pa.ArrowInvalid(f"the column has no place for the {name} of a blob")
    parts = [
        storage.field(field.name).cast(field.type) if field.name in known else pa.nulls(len(storage), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(parts, fields=wanted, mask=storage.is_null())


def _is_blob(type_: pa.DataType) -> bool:
    return isinstance(type_, pa.BaseExtensionType) and type_.extension_name == BLOB_EXTENSION


def _to_blob(content: pa.Array[Any]) -> pa.Array[Any]:
    """Bytes in the form in which blobs are handed over: the content itself, or else where it is."""
    parts = [content.cast(pa.large_binary()), pa.nulls(len(content), pa.string())]
    return pa.StructArray.from_arrays(parts, names=["data", "uri"], mask=content.is_null())


def _to_dictionary(column: pa.Array[Any], type_: pa.DictionaryType[Any, Any, Any]) -> pa.Array[Any]:
    values = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
    return values.cast(type_.value_type).dictionary_encode().cast(type_)


def refuse_nulls(columns: Sequence[pa.Array[Any]], schema: pa.Schema) -> None:
    """InvalidInputError for a null in a column that may not be null."""
    for column, field in zip(columns, schema, strict=True):
        if not field.nullable and column.null_count:
            raise InvalidInputError(
                f"Column {field.name!r} may not be null, but the data has {column.null_count} nulls in it.",
                hint="Fill or drop those rows.",
            )


_INT_BITS: dict[pa.DataType, int] = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_UINT_BITS: dict[pa.DataType, int] = {pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32, pa.uint64(): 64}
_EXACT_BITS: dict[pa.DataType, int] = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
"""So many bits of an integer a float holds exactly."""
_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class Evolution:
    """What a table's columns must become before it can take data of some schema."""

    new: tuple[pa.Field[Any], ...]
    widened: Mapping[str, pa.DataType]

    def __bool__(self) -> bool:
        return bool(self.new or self.widened)


def evolution(table: pa.Schema, data: pa.Schema, keep: Sequence[str] = ()) -> Evolution:
    """The columns that the table lacks, and the types that its columns need, except for those whose type must stay."""
    new = tuple(field.with_nullable(True) for field in data if field.name not in table.names)
    widened: dict[str, pa.DataType] = {}
    for field in data:
        if field.name in table.names and field.name not in keep:
            there = table.field(field.name).type
            wide = wider(there, field.type)
            if wide is not None and not wide.equals(there):
                widened[field.name] = wide
    return Evolution(new, widened)


def wider(there: pa.DataType, coming: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds every value of both exactly; None if there is none.

    >>> wider(pa.int32(), pa.int64()), wider(pa.int64(), pa.int32()), wider(pa.null(), pa.string())
    (DataType(int64), DataType(int64), DataType(string))
    """
    if there.equals(coming) or pa.types.is_null(coming):
        return there
    if pa.types.is_null(there):
        return coming
    if pa.types.is_integer(there) and pa.types.is_integer(coming):
        return _wider_integer(there, coming)
    if pa.types.is_floating(there) and pa.types.is_floating(coming):
        return max(there, coming, key=lambda type_: _EXACT_BITS[type_])
    if pa.types.is_integer(there) and pa.types.is_floating(coming):
        bits = _INT_BITS[there] - 1 if there in _INT_BITS else _UINT_BITS[there]
        fitting = [float_ for float_, exact in _EXACT_BITS.items() if exact >= max(bits, _EXACT_BITS[coming])]
        return fitting[0] if fitting else None
    if pa.types.is_decimal(there) and pa.types.is_decimal(coming):
        scale = max(there.scale, coming.scale)
        precision = max(there.precision - there.scale, coming.precision - coming.scale) + scale
        return None if precision > 38 else pa.decimal128(precision, scale)
    if pa.types.is_timestamp(there) and pa.types.is_timestamp(coming) and there.tz == coming.tz:
        return pa.timestamp(_finer(there.unit, coming.unit), there.tz)
    if pa.types.is_fixed_size_list(there) and pa.types.is_fixed_size_list(coming):
        item = wider(there.value_type, coming.value_type)
        same_size = there.list_size == coming.list_size
        return pa.list_(there.value_field.with_type(item), there.list_size) if item is not None and same_size else None
    if pa.types.is_list(there) and pa.types.is_list(coming):
        item = wider(there.value_type, coming.value_type)
        return None if item is None else pa.list_(there.value_field.with_type(item))
    return None


def _finer(a: Any, b: Any) -> Any:
    return max(a, b, key=_UNITS.index)


def _wider_integer(there: pa.DataType, coming: pa.DataType) -> pa.DataType | None:
    for same in (_INT_BITS, _UINT_BITS):
        if there in same and coming in same:
            return max(there, coming, key=lambda type_: same[type_])
    needed = max(_INT_BITS.get(type_, 0) or 2 * _UINT_BITS[type_] for type_ in (there, coming))
    return next((type_ for type_, bits in _INT_BITS.items() if bits >= needed), None)
