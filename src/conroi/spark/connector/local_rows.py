"""Small tables that the helper computes itself: their columns, and their rows as JSON for the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import types as st

_TYPES: dict[str, st.DataType] = {
    "bigint": st.LongType(),
    "string": st.StringType(),
    "boolean": st.BooleanType(),
    "double": st.DoubleType(),
    "timestamp": st.TimestampType(),
    "array<string>": st.ArrayType(st.StringType()),
    "array<double>": st.ArrayType(st.DoubleType()),
    "map<string,string>": st.MapType(st.StringType(), st.StringType()),
}
"""The types that the JVM reads from JSON (`LocalRows.scala`)."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def columns(**types: str) -> st.StructType:
    """Columns by name: `columns(version="bigint NOT NULL")`."""
    fields = [
        st.StructField(name, _TYPES[text.removesuffix(" NOT NULL")], not text.endswith(" NOT NULL"))
        for name, text in types.items()
    ]
    return st.StructType(fields)


def answer(struct: st.StructType, rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Columns and rows."""
    return {"schema": struct.json(), "rows": [[_value(value) for value in row] for row in rows]}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value - _EPOCH).total_seconds() * 1_000_000)
    if isinstance(value, Mapping):
        return {str(key): None if item is None else str(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
