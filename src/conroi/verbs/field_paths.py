"""Fields by their dotted path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from conroi.format import lance_pb2 as pb
from conroi.data.pinned import Pinned, unknown_column

Path: TypeAlias = tuple[str, ...]


def find(pinned: Pinned, column: str) -> pb.Field:
    """The field with this name, or this dotted path inside a struct."""
    fields = pinned.manifest.fields
    for field in fields:
        if ".".join(path_of(fields, field)) == column:
            return field
    raise unknown_column(pinned, column)


def path_of(fields: Sequence[pb.Field], field: pb.Field) -> Path:
    """The names from the column down to this field."""
    by_id = {f.id: f for f in fields}
    names = [field.name]
    while field.parent_id != -1 and field.parent_id in by_id:
        field = by_id[field.parent_id]
        names.append(field.name)
    return tuple(reversed(names))


def descendants(fields: Sequence[pb.Field], field_id: int) -> set[int]:
    """The ids of all fields below this one."""
    found: set[int] = set()
    for field in fields:  # parents stand before their children
        if field.parent_id == field_id or field.parent_id in found:
            found.add(field.id)
    return found
