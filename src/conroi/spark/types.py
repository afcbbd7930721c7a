"""Types of Arrow and Spark: which column becomes which, and batches cast to exactly what Spark takes."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from conroi.errors import InvalidInputError, UnsupportedError

_PLAIN: dict[pa.DataType, st.DataType] = {
    pa.null(): st.NullType(),
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.uint8(): st.ShortType(),
    pa.uint16(): st.IntegerType(),
    pa.uint32(): st.LongType(),
    pa.uint64(): st.DecimalType(20, 0),
    pa.float16(): st.FloatType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.string(): st.StringType(),
    pa.large_string(): st.StringType(),
    pa.binary(): st.BinaryType(),
    pa.large_binary(): st.BinaryType(),
    pa.date32(): st.DateType(),
    pa.date64(): st.DateType(),
}
_MOST_DIGITS = 38


def spark_schema(schema: pa.Schema, *, table: str) -> st.StructType:
    """What Spark calls these columns; UnsupportedError if it has no type for one."""
    return st.StructType([_field(field, table) for field in schema])


def _field(field: pa.Field[Any], table: str) -> st.StructField:
    found = spark_type(field.type)
    if found is None:
        raise UnsupportedError(
            f"Spark has no type for column {field.name!r} ({field.type}).",
            table=table,
            hint="Leave it out: to_spark(spark, columns=[…]), or convert it: columns={'name': 'CAST(… AS …)'}.",
        )
    return st.StructField(field.name, found, field.nullable)


def spark_type(type_: pa.DataType) -> st.DataType | None:
    """The type of Spark that holds all its values; None if there is none."""
    if isinstance(type_, pa.BaseExtensionType):
        return spark_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return spark_type(type_.value_type)
    if pa.types.is_nested(type_):
        return _nested(type_)
    if pa.types.is_decimal(type_):
        return st.DecimalType(type_.precision, type_.scale) if type_.precision <= _MOST_DIGITS else None
    if pa.types.is_timestamp(type_):
        return st.TimestampNTZType() if type_.tz is None else st.TimestampType()
    if pa.types.is_time(type_):
        return st.TimeType()
    if pa.types.is_duration(type_):
        return st.DayTimeIntervalType()
    if pa.types.is_fixed_size_binary(type_):
        return st.BinaryType()
    return _PLAIN.get(type_)


def is_exact_in_spark(type_: pa.DataType) -> bool:
    """Whether Spark reads every value of a column as it is: it has no parts of microseconds."""
    if pa.types.is_timestamp(type_) or pa.types.is_time(type_) or pa.types.is_duration(type_):
        return type_.unit != "ns"
    if isinstance(type_, pa.BaseExtensionType):
        return is_exact_in_spark(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return is_exact_in_spark(type_.value_type)
    return all(is_exact_in_spark(type_.field(number).type) for number in range(type_.num_fields))


def _nested(type_: pa.DataType) -> st.DataType | None:
    if pa.types.is_struct(type_):
        inside = [(field, spark_type(field.type)) for field in type_]
        fields = [st.StructField(field.name, found, field.nullable) for field, found in inside if found is not None]
        return st.StructType(fields) if len(fields) == len(inside) else None
    if pa.types.is_map(type_):
        key, item = spark_type(type_.key_type), spark_type(type_.item_type)
        return None if key is None or item is None else st.MapType(key, item, type_.item_field.nullable)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        element = spark_type(type_.value_type)
        return None if element is None else st.ArrayType(element, type_.value_field.nullable)
    return None


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """The Arrow types in which Spark hands over and takes these columns, exactly."""
    convert: Any = to_arrow_schema
    if "timezone" in inspect.signature(convert).parameters:
        return convert(schema, timezone="UTC")
    return convert(schema)  # Spark 4.1: UTC is the default


def table_schema(schema: st.StructType) -> pa.Schema:
    """The columns of a table made from this: as Spark's, but named inside as everywhere else in Arrow.

    And they may be null, as in every table that Spark makes: what it says of a DataFrame is only what it could infer.
    """
    return pa.schema([_usual(field) for field in arrow_schema(schema)])


def _usual(field: pa.Field[Any]) -> pa.Field[Any]:
    return pa.field(field.name, _usual_type(field.type))


def _usual_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([_usual(field) for field in type_])
    if pa.types.is_map(type_):
        inside: Any = (
            _usual(type_.key_field).with_nullable(False),
            _usual(type_.item_field),
        )  # fields will do, unlike the stubs say
        return pa.map_(*inside)
    if pa.types.is_list(type_):
        return pa.list_(_usual(type_.value_field).with_name("item"))
    return type_


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
