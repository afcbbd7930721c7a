"""Three-way merge of a table's columns, and conversion of one side's rows to the columns of the other.

Columns are matched by field id. A column whose type was altered has a new id; the alteration records the old id in the
metadata of the new field. A column that was added on a branch has a unique marker, because the next field id is the
same on every branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conroi.data.arrow_types import nulls
from conroi.data.casts import can_become, cast_batch
from conroi.data.table_version import TableVersion
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import TOP_LEVEL, children_of
from conroi.format.on_disk import ADDED_METADATA, RETYPED_METADATA

Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Column:
    """A column of one version, or a field inside one, with its type and what is inside it."""

    id: int
    first_id: int
    """Its field id before its type was ever altered."""
    name: str
    type: pa.DataType
    is_nullable: bool
    key: tuple[bool, int]
    extension: str
    inside: tuple[Column, ...]
    metadata: Mapping[str, bytes]
    added: bytes = b""
    """The unique marker of a column that was added on a branch; empty for all others."""

    @property
    def identity(self) -> tuple[int, bytes]:
        """The same for all versions of one column, on every branch: its first field id, and its mark."""
        return self.first_id, self.added

    @property
    def ids(self) -> frozenset[int]:
        """Its id and those of all fields inside it."""
        return frozenset({self.id}).union(*(each.ids for each in self.inside))

    @property
    def shape(self) -> tuple[object, ...]:
        """The column without its ids and its metadata."""
        inside = tuple(each.shape for each in self.inside)
        return (self.name, str(self.type), self.is_nullable, self.key, self.extension, inside)

    @property
    def shape_with_ids(self) -> tuple[object, ...]:
        return (self.id, self.added, self.shape, tuple(each.shape_with_ids for each in self.inside))


Columns: TypeAlias = tuple[Column, ...]


def columns_of(pinned: TableVersion) -> Columns:
    """The columns of a version, in their order."""
    fields = pinned.manifest.fields
    children = children_of(fields)
    types = {field.name: field.type for field in pinned.schema}
    return tuple(_column(field, types[field.name], children) for field in children.get(TOP_LEVEL, []))


def _column(field: pb.Field, type_: pa.DataType, children: Mapping[int, Sequence[pb.Field]]) -> Column:
    first_id = field.metadata.get(RETYPED_METADATA, b"").decode().rpartition(",")[2]
    return Column(
        id=field.id,
        first_id=int(first_id) if first_id.isdecimal() else field.id,
        name=field.name,
        type=type_,
        is_nullable=field.nullable,
        key=(field.unenforced_primary_key, field.unenforced_primary_key_position),
        extension=field.extension_name,
        inside=tuple(_inside(type_, children.get(field.id, ()), children)),
        metadata={key: value for key, value in field.metadata.items() if key not in (ADDED_METADATA, RETYPED_METADATA)},
        added=field.metadata.get(ADDED_METADATA, b""),
    )


def _inside(
    type_: pa.DataType, fields: Sequence[pb.Field], children: Mapping[int, Sequence[pb.Field]]
) -> Iterator[Column]:
    if pa.types.is_struct(type_):
        by_name = {type_.field(number).name: type_.field(number).type for number in range(type_.num_fields)}
        yield from (_column(field, by_name[field.name], children) for field in fields if field.name in by_name)
    elif _is_list(type_) and len(fields) == 1:
        yield _column(fields[0], cast("Any", type_).value_type, children)


def _is_list(type_: pa.DataType) -> bool:
    return pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)


# ---------------------------------------------------------------------------------- which is which


def matched(before: Columns, after: Columns) -> list[tuple[Column | None, Column]]:
    """Each column of the later version with its counterpart in the earlier one; None if it was added since."""
    by_identity = {column.identity: column for column in before}
    found = [by_identity.get(column.identity) for column in after]
    taken = {column.id for column in found if column is not None}
    left = {column.name: column for column in before if column.id not in taken}
    for number, column in enumerate(after):
        is_followed = any(later is not None for later in found[number + 1 :])
        old = left.get(column.name) if found[number] is None and is_followed else None
        if old is not None and can_become(old.type, column.type):  # other software gave it another type
            found[number] = old
    return list(zip(found, after, strict=True))


def is_same(one: Columns, other: Columns) -> bool:
    """Whether two versions have the same columns, with key and all but metadata.

    A column that was given another type and its own again has other ids and is the same.
    """
    return len(one) == len(other) and all(map(_is_same_column, one, other))


def _is_same_column(one: Column, other: Column) -> bool:
    if one.identity != other.identity or one.shape != other.shape:
        return False
    return one.id != other.id or is_same(one.inside, other.inside)


def has_same_ids(one: Columns, other: Columns) -> bool:
    """Whether, besides, all fields have the same ids, so that files of one are files of the other."""
    return [column.shape_with_ids for column in one] == [column.shape_with_ids for column in other]


Side: TypeAlias = Literal["source", "target"]


def side_with_columns(base: Columns, source: Columns, target: Columns) -> Side | None:
    """The side whose columns are those of the result; None if both changed them differently."""
    if is_same(base, source):
        return "target"
    if is_same(base, target):
        return "source"
    origins = [[None if old is None else old.id for old, _ in matched(base, side)] for side in (source, target)]
    is_alike = [column.shape for column in source] == [column.shape for column in target]
    return "target" if is_alike and origins[0] == origins[1] and None not in origins[0] else None


# ---------------------------------------------------------------------------------- values carried over


@dataclass(frozen=True)
class Carry:
    """Conversion of rows to the columns of another version: renamed, cast, and without missing columns."""

    pairs: tuple[tuple[Column, Column], ...]
    """Each column that both have, as it is here and as it is there."""

    @staticmethod
    def between(before: Columns, after: Columns) -> Carry:
        """From a version to a later one."""
        return Carry(tuple((old, new) for old, new in matched(before, after) if old is not None))

    @staticmethod
    def by_name(one: Columns, other: Columns) -> Carry:
        """Between versions of which neither comes from the other."""
        known = {column.name: column for column in one}
        return Carry(tuple((known[column.name], column) for column in other if column.name in known))

    def only(self, there: Sequence[str]) -> Carry:
        """For these columns only, by their names there."""
        return replace(self, pairs=tuple(pair for pair in self.pairs if pair[1].name in there))

    @property
    def here(self) -> list[str]:
        return [old.name for old, _ in self.pairs]

    @property
    def there(self) -> list[str]:
        return [new.name for _, new in self.pairs]

    def key(self, key: Sequence[str]) -> tuple[str, ...]:
        """The path of key columns here, for their path there."""
        return tuple(self._path(column) for column in key)

    def _path(self, path: str) -> str:
        for old, new in self.pairs:
            if path == new.name:
                return old.name
            if path.startswith(f"{new.name}."):
                return ".".join([old.name, *_inner_path(old, new, path.removeprefix(f"{new.name}.").split("."))])
        return path

    def carried(self, rows: pa.Table) -> tuple[pa.Table, Flags]:
        """The converted rows, and which of them have a value that cannot be cast (it is null instead)."""
        bad = np.zeros(rows.num_rows, dtype=bool)
        columns: list[pa.Array[Any]] = []
        for old, new in self.pairs:
            column, failed = _carried(cast("Any", rows[old.name].combine_chunks()), old, new)
            columns.append(column)
            bad |= failed
        fields = [pa.field(new.name, new.type) for _, new in self.pairs]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields)), bad


def _inner_path(old: Column, new: Column, path: list[str]) -> list[str]:
    """Where a field inside a column was in the earlier version."""
    found: list[str] = []
    for part in path:
        pairs = [(before, after) for before, after in matched(old.inside, new.inside) if after.name == part]
        if not pairs or pairs[0][0] is None:
            return path
        old, new = pairs[0][0], pairs[0][1]
        found.append(old.name)
    return found


def _carried(values: pa.Array[Any], old: Column, new: Column) -> tuple[pa.Array[Any], Flags]:
    try:
        return _cast(values, old, new), np.zeros(len(values), dtype=bool)
    except (InvalidInputError, pa.ArrowException):
        if len(values) <= 1:  # the cast of some types fails even for no value at all
            return nulls(len(values), new.type), np.ones(len(values), dtype=bool)
    middle = len(values) // 2  # find the values that do not fit
    parts = [_carried(each, old, new) for each in (values[:middle], values[middle:])]
    return pa.concat_arrays([part for part, _ in parts]), np.concatenate([failed for _, failed in parts])


def _cast(values: pa.Array[Any], old: Column, new: Column) -> pa.Array[Any]:
    if _is_unchanged(old, new):
        return values
    if isinstance(values, pa.StructArray) and pa.types.is_struct(new.type) and new.inside:
        known = {column.id: values.field(number) for number, column in enumerate(old.inside)}
        parts = [
            nulls(len(values), after.type) if before is None else _cast(known[before.id], before, after)
            for before, after in matched(old.inside, new.inside)
        ]
        fields = [new.type.field(number) for number in range(new.type.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=values.is_null())
    is_list = pa.types.is_list(old.type) or pa.types.is_large_list(old.type)
    if is_list and old.inside and new.inside and type(old.type) is type(new.type):
        lists = cast("Any", values)
        first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
        inner = _cast(lists.values.slice(first, last - first), old.inside[0], new.inside[0])
        offsets = pa.array(np.asarray(lists.offsets) - first, lists.offsets.type)
        return type(lists).from_arrays(offsets, inner, type=new.type, mask=lists.is_null())
    schema = pa.schema([pa.field("value", new.type)])
    batch = pa.RecordBatch.from_arrays([values], names=["value"])
    return cast_batch(batch, schema, new.name).column(0)


def _is_unchanged(old: Column, new: Column) -> bool:
    if not old.type.equals(new.type) or len(old.inside) != len(new.inside):
        return False
    return all(a is not None and _is_unchanged(a, b) for a, b in matched(old.inside, new.inside)) and [
        a.name for a in old.inside
    ] == [b.name for b in new.inside]


def null_where_forbidden(rows: pa.Table, columns: Columns) -> str | None:
    """The first column, or field inside one, that may not be null and is; a column that the rows lack is null."""
    for column in columns:
        if column.name not in rows.column_names:
            if rows.num_rows and not column.is_nullable:
                return column.name
            continue
        found = _null_in(cast("Any", rows[column.name].combine_chunks()), column)
        if found is not None:
            return found
    return None


def _null_in(values: pa.Array[Any], column: Column) -> str | None:
    if not column.is_nullable and values.null_count:
        return column.name
    if isinstance(values, pa.StructArray) and column.inside:
        there = values.drop_null()
        for number, inner in enumerate(column.inside):
            found = _null_in(cast("Any", there).field(number), inner)
            if found is not None:
                return f"{column.name}.{found}"
    return None
