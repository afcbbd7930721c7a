"""Conversion between Arrow schemas and the flat list of fields in a manifest.

A table's columns and their nested fields are numbered in depth-first order. Field ids never change and are never
reused, so that a data file can record which fields it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.arrow_types import ArrowField, HasArrowSchema, logical_type_of, read_arrow_schema, simple_type
from conroi.format.fields import (
    BLOB_EXTENSION,
    TOP_LEVEL,
    children_of,
    field_path,
    fields_by_path,
    is_true,
    key_columns,
    leaf_field_ids,
    lineage,
    max_field_id,
    named,
)

__all__ = [
    "fields_from_schema",
    "key_columns",
    "leaf_field_ids",
    "match_fields",
    "max_field_id",
    "schema_from_fields",
    "stored_as_read",
]

EXTENSION_NAME = "ARROW:extension:name"
EXTENSION_METADATA = "ARROW:extension:metadata"
PRIMARY_KEY = "lance-schema:unenforced-primary-key"
PRIMARY_KEY_POSITION = "lance-schema:unenforced-primary-key:position"
CLUSTERING_KEY_POSITION = "lance-schema:unenforced-clustering-key:position"
RESERVED_COLUMNS = frozenset(
    ("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")
)

_TEXT_FORMATS = ("u", "U")
_BINARY_FORMATS = ("z", "Z")
_BLOB_KEY = "lance-encoding:blob"


# --------------------------------------------------------------------------------------------- Arrow to fields


def fields_from_schema(schema: HasArrowSchema, first_id: int = 0) -> list[pb.Field]:
    """The fields that pylance writes for this schema, numbered from `first_id`."""
    columns = read_arrow_schema(schema).children
    _check_column_names([column.name for column in columns])
    fields: list[pb.Field] = []
    for column in columns:
        _add_field(fields, column, TOP_LEVEL, first_id, column.name)
    _check_key(fields)
    return fields


def _add_field(fields: list[pb.Field], source: ArrowField, parent_id: int, first_id: int, path: str) -> None:
    source = _as_stored(source)
    logical_type = _logical_type(source, path)
    field = pb.Field(
        name=source.name,
        id=first_id + len(fields),
        parent_id=parent_id,
        logical_type=logical_type,
        nullable=source.is_nullable,
        encoding=_encoding(logical_type),
        extension_name=source.metadata.get(EXTENSION_NAME, b"").decode(),
        metadata=source.metadata,
    )
    _mark_keys(field)
    fields.append(field)
    if source.dictionary is None and _has_child_fields(logical_type):
        _check_child_names(source, path)
        for child in source.children:
            _add_field(fields, child, field.id, first_id, f"{path}.{child.name}")


def _as_stored(source: ArrowField) -> ArrowField:
    """JSON text and blobs are stored in a form of Lance's own."""
    if source.metadata.get(EXTENSION_NAME) == b"arrow.json" and source.format in _TEXT_FORMATS:
        metadata = source.metadata | {EXTENSION_NAME: b"lance.json"}
        return _replaced(source, format="Z", metadata=metadata)
    if is_true(source.metadata.get(_BLOB_KEY)) and source.format in _BINARY_FORMATS:
        metadata = {key: value for key, value in source.metadata.items() if key != _BLOB_KEY}
        metadata[EXTENSION_NAME] = BLOB_EXTENSION.encode()
        parts = (_plain_field("data", "Z"), _plain_field("uri", "u"))
        return _replaced(source, format="+s", metadata=metadata, children=parts)
    return source


def _plain_field(name: str, format_: str) -> ArrowField:
    return ArrowField(name, format_, is_nullable=True, has_sorted_keys=False, metadata={}, children=(), dictionary=None)


def _replaced(
    source: ArrowField, *, format: str, metadata: dict[str, bytes], children: tuple[ArrowField, ...] = ()
) -> ArrowField:
    return ArrowField(
        source.name, format, source.is_nullable, source.has_sorted_keys, metadata, children, source.dictionary
    )


def _logical_type(source: ArrowField, path: str) -> str:
    if source.format == "Z" and source.metadata.get(EXTENSION_NAME) == b"lance.json":
        return "json"
    found = logical_type_of(source)
    if found is None:
        raise InvalidInputError(
            f"Column {path!r} has a type that Lance tables cannot store (Arrow format {source.format!r}).",
            hint="Convert the column to another type, or leave it out.",
        )
    return found


def _encoding(logical_type: str) -> pb.Field.Encoding:
    if logical_type in ("struct", "null"):
        return pb.Field.NONE
    if logical_type in ("string", "large_string", "binary", "large_binary", "json"):
        return pb.Field.VAR_BINARY
    return pb.Field.DICTIONARY if logical_type.startswith("dict:") else pb.Field.PLAIN


def _has_child_fields(logical_type: str) -> bool:
    # The items of other fixed-size lists are part of the list's own name.
    return not logical_type.startswith("fixed_size_list:") or logical_type.startswith("fixed_size_list:struct:")


def _mark_keys(field: pb.Field) -> None:
    position = _position(field.metadata.get(PRIMARY_KEY_POSITION))
    if position is not None or is_true(field.metadata.get(PRIMARY_KEY)):
        field.unenforced_primary_key = True
        field.unenforced_primary_key_position = position or 0
    field.unenforced_clustering_key_position = _position(field.metadata.get(CLUSTERING_KEY_POSITION)) or 0


def _position(text: bytes | None) -> int | None:
    digits = (text or b"").removeprefix(b"+")
    return int(digits) if digits.isdigit() and int(digits) < 1 << 32 else None


def _check_column_names(names: Sequence[str]) -> None:
    for name in names:
        if "." in name:
            raise InvalidInputError(
                f"A column cannot be named {name!r}: a dot separates the parts of nested columns.",
                hint="Rename the column.",
            )
        if name in RESERVED_COLUMNS:
            raise InvalidInputError(f"The name {name!r} is reserved.", hint="Rename the column.")
    _check_unique(names, "The table")


def _check_child_names(source: ArrowField, path: str) -> None:
    _check_unique([child.name for child in source.children], f"Column {path!r}")


def _check_unique(names: Sequence[str], where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(f"{where} would have {twice[0]!r} twice.", hint="Rename one of the two.")


def _check_key(fields: Sequence[pb.Field]) -> None:
    by_id = {field.id: field for field in fields}
    parents = {field.parent_id for field in fields}
    for field in fields:
        if field.unenforced_primary_key:
            path = field_path(field, by_id)
            if field.id in parents:
                raise InvalidInputError(
                    f"Column {path!r} cannot be a key: it has columns inside.", hint="Use a plain column."
                )
            if any(ancestor.nullable for ancestor in lineage(field, by_id)):
                raise InvalidInputError(
                    f"Column {path!r} cannot be a key: it may be null.",
                    hint="Declare it, and the columns around it, as not nullable.",
                )


# --------------------------------------------------------------------------------------------- fields to Arrow


def schema_from_fields(fields: Sequence[pb.Field], metadata: Mapping[str, bytes] | None = None) -> pa.Schema:
    """The Arrow schema of a table, as pylance shows it."""
    children = children_of(fields)
    columns = [_arrow_field(field, children) for field in children.get(TOP_LEVEL, ())]
    schema = pa.schema(columns, metadata={**metadata} if metadata else None)
    try:
        # Reading it back turns the names of extension types into the types, where they are registered.
        return pa.ipc.read_schema(schema.serialize())
    except pa.ArrowException as error:
        raise CorruptionError(
            f"The manifest has a column that contradicts itself: {error}.",
            hint="The manifest is damaged, or its writer is broken; open another version.",
        ) from error


def stored_as_read(fields: Sequence[pb.Field]) -> bool:
    """Whether pylance gives all columns in the types of `schema_from_fields`; it converts some when it reads."""
    return not any(
        field.extension_name
        or field.logical_type.startswith(("blob", "dict:", "json"))
        or _BLOB_KEY in field.metadata
        or EXTENSION_NAME in field.metadata
        for field in fields
    )


def _arrow_field(field: pb.Field, children: Mapping[int, Sequence[pb.Field]]) -> pa.Field[Any]:
    parts = [_arrow_field(child, children) for child in children.get(field.id, ())]
    metadata = dict(field.metadata)
    if field.logical_type == "json":
        metadata |= {EXTENSION_NAME: b"arrow.json", EXTENSION_METADATA: b""}
    return pa.field(field.name, _arrow_type(field, parts), nullable=field.nullable, metadata=metadata or None)


def _arrow_type(field: pb.Field, parts: list[pa.Field[Any]]) -> pa.DataType:
    kind = field.logical_type
    if kind == "struct":
        return pa.struct(parts)
    if kind in ("list", "list.struct", "large_list", "large_list.struct") and len(parts) == 1:
        return pa.list_(parts[0]) if kind.startswith("list") else pa.large_list(parts[0])
    if kind == "map" and len(parts) == 1 and parts[0].type.num_fields == 2:
        return pa.map_(parts[0].type.field(0), parts[0].type.field(1))
    size = kind.removeprefix("fixed_size_list:struct:")
    if size != kind and len(parts) == 1 and len(size) < 10 and size.isascii() and size.isdecimal():
        return pa.list_(parts[0], int(size))
    if parts or kind in ("list", "list.struct", "large_list", "large_list.struct", "map"):
        raise CorruptionError(
            f"The manifest has a column {field.name!r} of type {kind!r} with {len(parts)} columns inside.",
            hint="The manifest is damaged, or its writer is broken; open another version.",
        )
    return simple_type(kind)


# -------------------------------------------------------------------------------------------------- incoming data


def match_fields(existing: Sequence[pb.Field], schema: HasArrowSchema) -> list[pb.Field]:
    """The table's own fields for incoming columns, found by name, in the order of the incoming schema."""
    known = fields_by_path(existing)
    return [_matched(path, field, known) for path, field in fields_by_path(fields_from_schema(schema)).items()]


def _matched(path: str, incoming: pb.Field, known: Mapping[str, pb.Field]) -> pb.Field:
    found = named(known, path)
    if found.logical_type != incoming.logical_type:
        raise InvalidInputError(
            f"Column {path!r} is {found.logical_type} in the table and {incoming.logical_type} in the data.",
            hint="Convert the column first.",
        )
    return found
