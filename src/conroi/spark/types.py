"""Type mapping between Arrow and Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from conroi.errors import UnsupportedError

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
    """Whether Spark reads every value of a plain column as it is: it has no parts of microseconds."""
    if pa.types.is_timestamp(type_) or pa.types.is_time(type_) or pa.types.is_duration(type_):
        return type_.unit != "ns"
    return True


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
    return to_arrow_schema(schema, timezone="UTC")


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
