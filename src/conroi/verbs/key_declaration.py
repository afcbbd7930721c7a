"""Declare a primary key on a table that already has rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from conroi.commit.change import Plan
from conroi.data.keys import repeated, sample, scan_keys, shown_keys
from conroi.data.table_version import TableVersion, unknown_column
from conroi.errors import DuplicateKeyError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.schema import fields_from_schema
from conroi.operations import Operation, Project
from conroi.verbs.columns import hidden_nulls, rewritten
from conroi.verbs.create import with_key


def declare_key(pinned: TableVersion, key: str | Sequence[str]) -> Plan | None:
    """Declare a primary key, after checking every row: no key may be null or occur twice."""
    columns = (key,) if isinstance(key, str) else tuple(key)
    current = pinned.key
    if current and current == columns:
        return None
    if current:
        raise InvalidInputError(
            f"The table's key is {', '.join(current)}, and a key stays.",
            table=pinned.root,
            hint="Make a new table with another key and copy the rows.",
        )
    for column in columns:
        if column not in pinned.schema.names:
            raise unknown_column(pinned, column)
    schema = with_key(pinned.schema, list(columns), table=pinned.root)
    _refuse_rows_that_break_it(pinned, columns)
    fields = _marked_fields(pinned, schema)
    hidden = hidden_nulls(pinned, columns)
    operation: Operation = Project(schema=tuple(fields), preserves_nullability=False)
    if hidden:
        operation = rewritten(pinned, fields, hidden)
    return Plan(pinned.staged(operation), must_not_move=True)


def _refuse_rows_that_break_it(pinned: TableVersion, columns: Sequence[str]) -> None:
    keys = scan_keys(pinned, columns).drop_columns(["_rowaddr"])
    for column, values in zip(columns, keys.columns, strict=True):
        if values.null_count:
            raise InvalidInputError(
                f"Column {column!r} has {values.null_count} nulls, so it cannot be a key.",
                table=pinned.root,
                hint="Fill or delete those rows first.",
            )
    again = repeated(keys)
    if again.num_rows:
        raise DuplicateKeyError(
            f"The table has the same {', '.join(columns)} more than once: {shown_keys(again)}.",
            table=pinned.root,
            version=pinned.version,
            keys=sample(again, columns),
            hint="Delete the rows that are too many first.",
        )


def _marked_fields(pinned: TableVersion, schema: pa.Schema) -> list[pb.Field]:
    """The table's own fields, with the marks that the new schema has."""
    marked = {f.name: f for f in fields_from_schema(schema) if f.parent_id == -1}
    fields: list[pb.Field] = []
    for field in pinned.manifest.fields:
        copy = pb.Field()
        copy.CopyFrom(field)
        if field.parent_id == -1 and marked[field.name].unenforced_primary_key:
            source = marked[field.name]
            copy.nullable = False
            copy.unenforced_primary_key = True
            copy.unenforced_primary_key_position = source.unenforced_primary_key_position
            for name, value in source.metadata.items():
                copy.metadata[name] = value
        fields.append(copy)
    return fields
