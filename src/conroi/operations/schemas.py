"""Schemas as operations see them: flat lists of fields with stable ids, and the marks of key columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.schema import CLUSTERING_KEY_POSITION, PRIMARY_KEY, PRIMARY_KEY_POSITION, max_field_id


def set_schema(head: pb.ManifestHead, fields: Iterable[pb.Field], metadata: Mapping[str, bytes] | None = None) -> None:
    """Put another schema into a head, and other schema metadata if given."""
    del head.fields[:]
    head.fields.extend(fields)
    if metadata is not None:
        head.schema_metadata.clear()
        head.schema_metadata.update(metadata)


def check_schema(fields: Sequence[pb.Field]) -> None:
    """Refuse a schema whose field ids do not tell its columns apart."""
    ids = [field.id for field in fields]
    if len(set(ids)) < len(ids) or any(field_id < 0 for field_id in ids):
        raise InvalidInputError(
            f"The field ids {ids} of the new schema are not distinct numbers from 0 up.",
            hint="Start from the schema of the table, and number only the columns that are new.",
        )
    known = {-1, *ids}
    for field in fields:
        if field.parent_id not in known:
            raise InvalidInputError(
                f"Column {field.name!r} is inside a field with id {field.parent_id}, which the schema does not have.",
                hint="Keep the parent of every nested column in the schema.",
            )


def check_ids_kept(base: Manifest, fields: Sequence[pb.Field]) -> None:
    """Refuse a schema in which an id of the table means another column: readers find columns by id, not by name."""
    check_schema(fields)
    old = {field.id: field for field in base.fields}
    old_ids = {(field.parent_id, field.name): field.id for field in base.fields}
    for field in fields:
        before = old.get(field.id)
        if before is not None and (
            before.parent_id != field.parent_id or old_ids.get((field.parent_id, field.name), field.id) != field.id
        ):
            raise InvalidInputError(
                f"The new schema gives id {field.id}, which is column {before.name!r}, to column {field.name!r}.",
                hint="Start from the schema of the table, and number only the columns that are new.",
            )
    _check_new_ids(base, [field for field in fields if field.id not in old])


def _check_new_ids(base: Manifest, new: Sequence[pb.Field]) -> None:
    """New columns get ids that no column ever had; data files may still hold columns that were dropped."""
    if not new:
        return
    highest = max_field_id(base.fields, base.fragments)
    if base.head.HasField("max_allocated_field_id"):
        highest = max(highest, base.head.max_allocated_field_id)
    for field in new:
        if field.id <= highest:
            raise InvalidInputError(
                f"The new column {field.name!r} has id {field.id}, but ids up to {highest} are or were in use.",
                hint=f"Number new columns from {highest + 1}.",
            )


def keeps_nullability(before: Iterable[pb.Field], after: Sequence[pb.Field]) -> bool:
    """Whether rows that fit the schema before fit the one after too: no field became one that may not be null.

    A field inside a new column that may be null does not count: rows that know nothing of it have no such column.
    """
    old = {field.id: field for field in before}
    parents = {field.id: field for field in after}

    def is_promised(field: pb.Field) -> bool:
        if field.nullable or (field.id in old and not old[field.id].nullable):
            return False
        parent = parents.get(field.parent_id)
        while parent is not None:
            if parent.nullable and parent.id not in old:
                return False
            parent = parents.get(parent.parent_id)
        return True

    return not any(map(is_promised, after))


def with_ancestors(field_ids: Iterable[int], fields: Iterable[pb.Field]) -> set[int]:
    """These field ids, and the ids of the fields they are nested in."""
    parents = {field.id: field.parent_id for field in fields}
    found: set[int] = set()
    for field_id in field_ids:
        while field_id >= 0 and field_id not in found:
            found.add(field_id)
            field_id = parents.get(field_id, -1)
    return found


KEY_MARKS = frozenset((PRIMARY_KEY, PRIMARY_KEY_POSITION, CLUSTERING_KEY_POSITION))

_TRUE_WORDS = (b"true", b"1", b"yes", b"on", b"y")


def mark_keys(field: pb.Field) -> None:
    """Bring the field's key marks in line with its metadata."""
    position = _position(field, PRIMARY_KEY_POSITION)
    is_key = position is not None or field.metadata.get(PRIMARY_KEY, b"").lower() in _TRUE_WORDS
    field.unenforced_primary_key = is_key
    field.unenforced_primary_key_position = position or 0
    field.unenforced_clustering_key_position = _position(field, CLUSTERING_KEY_POSITION) or 0


def check_keys(before: Sequence[pb.Field], after: Sequence[pb.Field], *, written: Collection[str]) -> None:
    """Refuse to change a key that is set, and to set one that is none."""
    writes_key = PRIMARY_KEY in written or PRIMARY_KEY_POSITION in written
    writes_clustering = CLUSTERING_KEY_POSITION in written
    _refuse_change("primary key", _primary(before), _primary(after), is_written=writes_key)
    _refuse_change("clustering key", _clustering(before), _clustering(after), is_written=writes_clustering)
    if writes_key:
        _require("primary key", is_valid=bool(_primary(after)))
        _check_not_null(after)
    if writes_clustering:
        _require("clustering key", is_valid=bool(_clustering(after)))


def _refuse_change(what: str, before: list[tuple[int, int]], after: list[tuple[int, int]], *, is_written: bool) -> None:
    if before and (is_written or after != before):
        raise InvalidInputError(
            f"The table's {what} is set, and cannot be changed.",
            hint="Copy the rows into a table with the other key.",
        )


def _require(what: str, *, is_valid: bool) -> None:
    if not is_valid:
        raise InvalidInputError(
            f"The metadata does not declare a valid {what}.", hint="A mark is 'true', a position a number from 0 up."
        )


def _check_not_null(fields: Sequence[pb.Field]) -> None:
    by_id = {field.id: field for field in fields}
    for field in fields:
        around: pb.Field | None = field if field.unenforced_primary_key else None
        while around is not None:
            if around.nullable:
                raise InvalidInputError(
                    f"Column {field.name!r} cannot be a key: it may be null.",
                    hint="Declare it, and the columns around it, as not nullable.",
                )
            around = by_id.get(around.parent_id)


def _primary(fields: Iterable[pb.Field]) -> list[tuple[int, int]]:
    return [(field.id, field.unenforced_primary_key_position) for field in fields if field.unenforced_primary_key]


def _clustering(fields: Iterable[pb.Field]) -> list[tuple[int, int]]:
    # pylance 14 writes only the position, so that a key at position 0 shows in nothing but the metadata.
    positions = [(field.id, _position(field, CLUSTERING_KEY_POSITION)) for field in fields]
    return [(field_id, position) for field_id, position in positions if position is not None]


def _position(field: pb.Field, key: str) -> int | None:
    digits = field.metadata.get(key, b"").removeprefix(b"+")
    return int(digits) if digits.isdigit() and int(digits) < 1 << 32 else None
