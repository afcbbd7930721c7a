"""JSON encoding of Arrow schemas for namespaces, with the type names that pylance's own namespaces use."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance_namespace_urllib3_client.models.json_arrow_data_type import JsonArrowDataType
from lance_namespace_urllib3_client.models.json_arrow_field import JsonArrowField
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema

_NAMES = {
    "string": "utf8",
    "large_string": "large_utf8",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
}


def json_schema(schema: pa.Schema) -> JsonArrowSchema:
    """All columns, with what is inside them."""
    return JsonArrowSchema(fields=[_field(field) for field in schema])


def _field(field: pa.Field[Any]) -> JsonArrowField:
    return JsonArrowField(name=field.name, nullable=field.nullable, type=_type(field.type))


def _type(type_: pa.DataType) -> JsonArrowDataType:
    if isinstance(type_, pa.BaseExtensionType):
        return _type(type_.storage_type)
    if isinstance(type_, pa.DictionaryType):
        return _type(type_.value_type)
    name = str(type_).partition("[")[0].partition("<")[0].partition("(")[0]
    if pa.types.is_fixed_size_list(type_):
        name = "fixed_size_list"
    inside = [_field(type_.field(number)) for number in range(type_.num_fields)]
    return JsonArrowDataType(type=_NAMES.get(name, name), length=_length(type_), fields=inside or None)


def _length(type_: pa.DataType) -> int | None:
    if isinstance(type_, pa.FixedSizeListType):
        return type_.list_size
    if isinstance(type_, pa.FixedSizeBinaryType) and not pa.types.is_decimal(type_):
        return type_.byte_width
    if isinstance(type_, pa.Decimal128Type | pa.Decimal256Type):
        return type_.precision * 1000 + type_.scale
    return None
