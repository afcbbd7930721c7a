"""Columns of CREATE TABLE and ALTER TABLE: from Spark's types to Arrow's. A type that would come back as another one is
refused; CHAR and VARCHAR become STRING, as in other catalogs.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as st

from conroi.errors import UnsupportedError
from conroi.format.json import parse_json
from conroi.spark.connector.tables import COMMENT
from conroi.spark.types import spark_type, table_schema


def new_schema(struct: st.StructType) -> pa.Schema:
    """The columns of a new table; NOT NULL and comments are kept for top-level columns."""
    return pa.schema([_column(field) for field in struct])


def _column(given: st.StructField) -> pa.Field[Any]:
    comment = given.metadata.get(COMMENT)
    metadata = None if comment is None else {COMMENT: str(comment)}
    return pa.field(given.name, _arrow_type(given.dataType, given.name), given.nullable, metadata)


def column_type(text: str, name: str) -> pa.DataType:
    """The type of a column as Spark writes it in JSON."""
    parsed: Any = parse_json(text, "The type of a column")
    struct = st.StructType.fromJson({"fields": [{"name": name, "type": parsed, "nullable": True, "metadata": {}}]})
    return _arrow_type(struct[0].dataType, name)


def _arrow_type(given: st.DataType, name: str) -> pa.DataType:
    plain = _plain(given)
    try:
        found = table_schema(st.StructType([st.StructField(name, plain)])).field(0).type
    except PySparkException:
        found = None
    back = None if found is None else spark_type(found)
    if found is None or back is None or back.simpleString() != plain.simpleString():
        raise UnsupportedError(
            f"A table has no type for column {name!r} ({given.simpleString()}).",
            hint="Use another type; JSON as STRING, intervals as BIGINT.",
        )
    return found


def _plain(kind: st.DataType) -> st.DataType:
    """The type without the lengths of CHAR and VARCHAR."""
    if isinstance(kind, st.CharType | st.VarcharType):
        return st.StringType()
    if isinstance(kind, st.ArrayType):
        return st.ArrayType(_plain(kind.elementType), kind.containsNull)
    if isinstance(kind, st.MapType):
        return st.MapType(_plain(kind.keyType), _plain(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, st.StructType):
        return st.StructType([st.StructField(each.name, _plain(each.dataType), each.nullable) for each in kind])
    return kind
