"""Field lookup by dotted path."""

from __future__ import annotations

import re
from collections.abc import Sequence

from conroi.data.table_version import TableVersion, unknown_column
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path, lineage


def find(pinned: TableVersion, column: str) -> pb.Field:
    """The field with this name, or this dotted path inside a struct."""
    field = fields_by_path(pinned.manifest.fields).get(column)
    if field is None:
        raise unknown_column(pinned, column)
    return field


def paths_of_fields(pinned: TableVersion) -> dict[tuple[str, ...], pb.Field]:
    """Every field by the names from its column down; a name may have dots in it."""
    by_id = {field.id: field for field in pinned.manifest.fields}
    return {
        tuple(outer.name for outer in reversed(list(lineage(field, by_id)))): field for field in pinned.manifest.fields
    }


def path_of(pinned: TableVersion, column: str) -> tuple[str, ...]:
    """The names from the column down to the field that is meant: `a`, `a.b`, or quoted as in SQL, in any case.

    A path that fits as it is written comes before one that fits in another case.
    """
    known = paths_of_fields(pinned)
    dotted = [path for path in known if ".".join(path) == column]
    parts = tuple(quoted or plain for quoted, plain in _PARTS.findall(column))
    same = [path for path in known if tuple(map(str.lower, path)) == tuple(map(str.lower, parts))]
    found = dotted or [path for path in same if path == parts] or same
    if len(found) > 1:
        raise InvalidInputError(
            f"{column!r} may be any of {', '.join('.'.join(path) for path in found)}.",
            table=pinned.root,
            hint="Write the name as the table does, with backticks around a part that has dots in it.",
        )
    if not found:
        raise unknown_column(pinned, column)
    return found[0]


_PARTS = re.compile(r"`([^`]+)`|([^`.]+)")


def descendants(fields: Sequence[pb.Field], field_id: int) -> set[int]:
    """The ids of all fields below this one."""
    found: set[int] = set()
    for field in fields:  # parents stand before their children
        if field.parent_id == field_id or field.parent_id in found:
            found.add(field.id)
    return found
