"""Fields by their dotted path."""

from __future__ import annotations

from collections.abc import Sequence

from conroi.data.pinned import Pinned, unknown_column
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path


def find(pinned: Pinned, column: str) -> pb.Field:
    """The field with this name, or this dotted path inside a struct."""
    field = fields_by_path(pinned.manifest.fields).get(column)
    if field is None:
        raise unknown_column(pinned, column)
    return field


def descendants(fields: Sequence[pb.Field], field_id: int) -> set[int]:
    """The ids of all fields below this one."""
    found: set[int] = set()
    for field in fields:  # parents stand before their children
        if field.parent_id == field_id or field.parent_id in found:
            found.add(field.id)
    return found
