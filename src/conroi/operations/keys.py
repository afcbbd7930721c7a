"""Primary-key metadata: a declared key may be set once, and never changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.schema import CLUSTERING_KEY_POSITION, PRIMARY_KEY, PRIMARY_KEY_POSITION

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
