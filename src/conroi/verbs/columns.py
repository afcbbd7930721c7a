"""Add, drop, rename and alter columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, cast

import pyarrow as pa

from conroi.arguments import shortened
from conroi.commit.change import Plan
from conroi.data.casts import can_become
from conroi.data.columns import Columns, column_batches, column_types, write_column_file
from conroi.data.sql import check_column_name, quoted
from conroi.data.table_version import TableVersion, descendants, find
from conroi.data.writer import Progress
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import field_path, key_fields, max_field_id
from conroi.format.on_disk import ADDED_METADATA, RETYPED_METADATA
from conroi.operations import Merge, Project
from conroi.operations.schemas import KEY_MARKS, keeps_nullability
from conroi.verbs.create import new_fields


class ColumnChange(TypedDict, total=False):
    """What `alter_columns` can change of one column."""

    type: pa.DataType
    nullable: bool


NewColumns: TypeAlias = "Columns | pa.Field[Any] | Sequence[pa.Field[Any]] | pa.Schema"


ComputeColumns: TypeAlias = Callable[
    [TableVersion, Columns, "Sequence[str] | None", "Progress | None"],
    "tuple[Sequence[pb.Field], Sequence[pb.DataFile]]",
]
"""Computes new columns: the table's fields and the new ones, and a file for each fragment, in their order."""


def compute_here(
    pinned: TableVersion, columns: Columns, read_columns: Sequence[str] | None, progress: Progress | None
) -> tuple[Sequence[pb.Field], Sequence[pb.DataFile]]:
    """In this process, one fragment after the other; the first one says what types the columns have."""
    fields: list[pb.Field] = []
    new_schema = pa.schema([])
    files: list[pb.DataFile] = []
    rows = 0
    for fragment in pinned.manifest.fragments:
        batches = column_batches(pinned, fragment.id, columns, read_columns)
        if not files:
            new_schema = batches.schema
            fields = with_new_fields(pinned, list(new_schema))
        files.append(write_column_file(pinned, pinned.writer(fields), batches, new_schema, fragment.physical_rows))
        rows += fragment.physical_rows
        if progress is not None:
            progress(rows)
    return fields, files


def add_columns(
    pinned: TableVersion,
    columns: NewColumns,
    *,
    read_columns: Sequence[str] | None = None,
    progress: Progress | None = None,
    compute: ComputeColumns = compute_here,
) -> Plan:
    """Add columns by SQL expressions, by a function over batches, or (given fields) filled with nulls."""
    if isinstance(columns, pa.Field | pa.Schema) or not (callable(columns) or isinstance(columns, Mapping)):
        return _add_null_columns(pinned, _given_fields(pinned, columns))
    if not pinned.manifest.fragments:
        if callable(columns):
            raise InvalidInputError(
                "The table has no rows, so the types that the function would give are not known.",
                table=pinned.root,
                hint="Give expressions or pyarrow fields instead.",
            )
        fields = with_new_fields(pinned, list(column_types(pinned, columns)))
        return Plan(pinned.staged(merged(pinned, (), fields)))
    fields, files = compute(pinned, columns, read_columns, progress)
    changed = [with_file(fragment, file) for fragment, file in zip(pinned.manifest.fragments, files, strict=True)]
    return Plan(pinned.staged(merged(pinned, changed, fields)))


def no_column(pinned: TableVersion) -> InvalidInputError:
    """The error for a call that names no column."""
    return InvalidInputError("No column was given.", table=pinned.root, hint="Name at least one.")


def _given_fields(pinned: TableVersion, columns: object) -> list[pa.Field[Any]]:
    given: list[object] = (
        [columns] if isinstance(columns, pa.Field) or not isinstance(columns, Iterable) else [*columns]
    )
    for field in given:
        if not isinstance(field, pa.Field):
            raise InvalidInputError(
                f"{shortened(field)} does not say what column to add.",
                table=pinned.root,
                hint='Give {"name": "expression"}, a function over batches, or pyarrow fields.',
            )
    return cast("list[pa.Field[Any]]", given)


def _add_null_columns(pinned: TableVersion, new: list[pa.Field[Any]]) -> Plan:
    for field in new:
        if not field.nullable:
            raise InvalidInputError(
                f"Column {field.name!r} may not be null, but the existing rows have no value for it.",
                table=pinned.root,
                hint="Make the field nullable, or add it with an expression.",
            )
    return Plan(pinned.staged(merged(pinned, pinned.manifest.fragments, with_new_fields(pinned, new))))


def with_new_fields(
    pinned: TableVersion, new: list[pa.Field[Any]], fields: Sequence[pb.Field] | None = None
) -> list[pb.Field]:
    """The table's fields (or `fields`) and the new ones, with ids that were never used, not even by dropped columns."""
    taken = set(pinned.schema.names)
    for field in new:
        check_column_name(field.name, table=pinned.root)
        if field.name in taken:
            raise InvalidInputError(
                f"The table has a column {field.name!r} already.",
                table=pinned.root,
                hint="Choose another name, or change its values with update() or replace_column_data().",
            )
        taken.add(field.name)
    if not new:
        raise no_column(pinned)
    there = pinned.manifest.fields if fields is None else fields
    added = numbered_from(pinned, max(next_field_id(pinned), *(field.id + 1 for field in there)), new)
    for field in added:  # a copy of a key column is not part of the key
        for mark in KEY_MARKS & field.metadata.keys():
            del field.metadata[mark]
        field.unenforced_primary_key = field.unenforced_clustering_key = False
        field.unenforced_primary_key_position = field.unenforced_clustering_key_position = 0
        if pinned.files.may_branch:
            field.metadata[ADDED_METADATA] = pinned.files.environment.new_uuid().hex[:12].encode()
    return [*there, *added]


def numbered_from(pinned: TableVersion, first_id: int, new: Sequence[pa.Field[Any]]) -> list[pb.Field]:
    """New columns as fields, numbered from here."""
    data_format = pinned.manifest.head.data_format.version
    return new_fields(pa.schema(new), table=pinned.root, data_format=data_format, first_id=first_id)


def next_field_id(pinned: TableVersion) -> int:
    """Above every id in the schema and in any data file, so that the data of a dropped column never reappears."""
    manifest = pinned.manifest
    return max(max_field_id(manifest.fields, manifest.fragments), manifest.head.max_allocated_field_id) + 1


def with_file(fragment: pb.DataFragment, file: pb.DataFile) -> pb.DataFragment:
    """The fragment with one more data file."""
    changed = pb.DataFragment()
    changed.CopyFrom(fragment)
    changed.files.append(file)
    return changed


def merged(pinned: TableVersion, fragments: Iterable[pb.DataFragment], fields: Sequence[pb.Field]) -> Merge:
    """These columns and fragments in place of the table's."""
    return Merge(
        fragments=tuple(fragments),
        schema=tuple(fields),
        schema_metadata=dict(pinned.manifest.head.schema_metadata),
        preserves_nullability=keeps_nullability(pinned.manifest.fields, fields),
    )


def _project(pinned: TableVersion, fields: Sequence[pb.Field]) -> Project:
    return Project(schema=tuple(fields), preserves_nullability=keeps_nullability(pinned.manifest.fields, fields))


def drop_columns(pinned: TableVersion, columns: Sequence[str]) -> Plan:
    """Drop columns (`a`, or `a.b` inside a struct); their data stays in the files until they are rewritten."""
    if isinstance(columns, str) or not columns:
        raise InvalidInputError(
            f"{columns!r} is not a list of columns.",
            table=pinned.root,
            hint='Give their names: drop_columns(["a", "b"]).',
        )
    fields = list(pinned.manifest.fields)
    gone: set[int] = set()
    for column in columns:
        field = find(pinned, column)
        gone |= {field.id, *descendants(fields, field.id)}
    _refuse_key_change(pinned, gone, "dropped")
    left = [field for field in fields if field.id not in gone]
    if not any(field.parent_id == -1 for field in left):
        raise InvalidInputError(
            "A table must keep at least one column.", table=pinned.root, hint='Use delete("true") to delete all rows.'
        )
    _refuse_empty_parents(pinned, fields, left)
    ids = {field.id for field in left}
    has_data = [any(not ids.isdisjoint(file.fields) for file in each.files) for each in pinned.manifest.fragments]
    if all(has_data):
        return Plan(pinned.staged(_project(pinned, left)))
    fragments = [
        fragment if has else _with_nulls(pinned, fragment, left)
        for has, fragment in zip(has_data, pinned.manifest.fragments, strict=True)
    ]
    return Plan(pinned.staged(merged(pinned, fragments, left)))


def _with_nulls(pinned: TableVersion, fragment: pb.DataFragment, fields: Sequence[pb.Field]) -> pb.DataFragment:
    """A fragment whose columns were never written gets one of them as a file: pylance reads none without."""
    name = next(field.name for field in fields if field.parent_id == -1)
    batches = column_batches(pinned, fragment.id, {name: quoted(name)})
    schema = pa.schema([pinned.schema.field(name)])
    file = write_column_file(pinned, pinned.writer(fields), batches, schema, fragment.physical_rows)
    return with_file(fragment, file)


def _refuse_empty_parents(pinned: TableVersion, before: Sequence[pb.Field], after: Sequence[pb.Field]) -> None:
    parents_before = {f.parent_id for f in before}
    parents_after = {f.parent_id for f in after}
    for field in after:
        if field.id in parents_before and field.id not in parents_after:
            raise InvalidInputError(
                f"{_path(before, field)!r} would have no field left.",
                table=pinned.root,
                hint="Drop the whole column instead.",
            )


def rename_columns(pinned: TableVersion, names: Mapping[str, str]) -> Plan:
    """Rename columns: `{"old": "new"}`, or `{"a.old": "new"}` inside a struct. Data and indices stay."""
    if not names:
        raise no_column(pinned)
    for name in names.values():
        check_column_name(name, table=pinned.root)
    renamed = {find(pinned, old).id: new for old, new in names.items()}
    fields = [_edited(f, name=renamed.get(f.id, f.name)) for f in pinned.manifest.fields]
    _refuse_taken_names(pinned, fields)
    return Plan(pinned.staged(_project(pinned, fields)))


def _refuse_taken_names(pinned: TableVersion, fields: Sequence[pb.Field]) -> None:
    """Also a name that is freed in the same call: a reader of the old schema would confuse the two."""
    owners = {(field.parent_id, field.name): field.id for field in pinned.manifest.fields}
    for field in fields:
        if owners.setdefault((field.parent_id, field.name), field.id) != field.id:
            raise InvalidInputError(
                f"The name {_path(fields, field)!r} is taken.",
                table=pinned.root,
                hint="Choose another one; to swap two names, rename one to a third name first.",
            )


def alter_columns(pinned: TableVersion, changes: Mapping[str, ColumnChange]) -> Plan:
    """Change the type of columns (their data is cast and rewritten) or whether they may be null."""
    if not changes:
        raise no_column(pinned)
    for column, change in changes.items():
        unknown = set(change) - {"type", "nullable"}
        if unknown:
            raise InvalidInputError(
                f"{', '.join(sorted(unknown))!r} of column {column!r} cannot be altered.",
                table=pinned.root,
                hint='Give {"type": …} or {"nullable": …}; use rename_columns() for names.',
            )
    fields = _with_nullability(pinned, changes)
    retyped = {column: change["type"] for column, change in changes.items() if "type" in change}
    required = [column for column, change in changes.items() if change.get("nullable") is False]
    retyped = hidden_nulls(pinned, required) | retyped
    if not retyped:
        return Plan(pinned.staged(_project(pinned, fields)))
    return Plan(pinned.staged(rewritten(pinned, fields, retyped)))


def _with_nullability(pinned: TableVersion, changes: Mapping[str, ColumnChange]) -> list[pb.Field]:
    wanted = {find(pinned, column).id: c["nullable"] for column, c in changes.items() if "nullable" in c}
    _refuse_key_change(pinned, {i for i, nullable in wanted.items() if nullable}, "made nullable")
    for field in pinned.manifest.fields:
        if wanted.get(field.id) is False and field.nullable:
            _refuse_nulls_in(pinned, _path(pinned.manifest.fields, field))
    return [_edited(f, nullable=wanted.get(f.id, f.nullable)) for f in pinned.manifest.fields]


def _refuse_nulls_in(pinned: TableVersion, column: str) -> None:
    nulls = pinned.dataset.count_rows(filter=f"{quoted(column)} IS NULL")
    if nulls:
        raise InvalidInputError(
            f"Column {column!r} has {nulls} nulls, so it cannot be declared free of them.",
            table=pinned.root,
            hint="Fill or delete those rows first.",
        )


def hidden_nulls(pinned: TableVersion, columns: Sequence[str]) -> dict[str, pa.DataType]:
    """The columns, with their types, that are null in deleted rows.

    pylance does not read those rows where it takes the column for one that is never null, so it is written anew.
    """
    found: dict[str, pa.DataType] = {}
    for name in columns:
        if name not in pinned.schema.names or not pinned.schema.field(name).nullable:
            continue
        for fragment in pinned.manifest.fragments:
            if fragment.HasField("deletion_file"):
                batches = column_batches(pinned, fragment.id, {name: quoted(name)})
                if any(batch.column(0).null_count for batch in batches):
                    found[name] = pinned.schema.field(name).type
                    break
    return found


def rewritten(pinned: TableVersion, fields: list[pb.Field], types: Mapping[str, pa.DataType]) -> Merge:
    """Each of these columns becomes a new field with a file of its own; the old one is forgotten."""
    fields = retyped_fields(pinned, fields, types)
    return merged(pinned, retyped_fragments(pinned, fields, types), fields)


def retyped_fragments(
    pinned: TableVersion, fields: Sequence[pb.Field], types: Mapping[str, pa.DataType]
) -> list[pb.DataFragment]:
    """The table's fragments with a file more each, for the columns that have these types among `fields`."""
    writer = pinned.writer(fields)
    columns = [pinned.schema.field(name).with_type(type_) for name, type_ in types.items()]
    schema = pa.schema([_as_in(fields, column) for column in columns])
    changed: list[pb.DataFragment] = []
    for fragment in pinned.manifest.fragments:
        batches = column_batches(pinned, fragment.id, {name: quoted(name) for name in types}, keeps_deleted=False)
        changed.append(with_file(fragment, write_column_file(pinned, writer, batches, schema, fragment.physical_rows)))
    return changed


def _as_in(fields: Sequence[pb.Field], column: pa.Field[Any]) -> pa.Field[Any]:
    is_nullable = next(field.nullable for field in fields if field.parent_id == -1 and field.name == column.name)
    return column.with_nullable(is_nullable)


def retyped_fields(pinned: TableVersion, fields: list[pb.Field], types: Mapping[str, pa.DataType]) -> list[pb.Field]:
    """The fields with new ones in place of those of these columns."""
    first_id = next_field_id(pinned)
    replaced: dict[int, list[pb.Field]] = {}
    for name, type_ in types.items():
        old = pinned.field(name)
        _refuse_key_change(pinned, {old.id}, "given another type")
        current = pinned.schema.field(name)
        if not can_become(current.type, type_):
            raise InvalidInputError(
                f"Column {name!r} ({current.type}) cannot become {type_}.",
                table=pinned.root,
                hint="Add a new column with an expression, then drop this one.",
            )
        changed = next(f for f in fields if f.id == old.id)
        column = pa.field(name, type_, nullable=changed.nullable, metadata=current.metadata)
        replaced[old.id] = _marked(numbered_from(pinned, first_id, [column]), fields, old)
        top = replaced[old.id][0]
        top.unenforced_primary_key = changed.unenforced_primary_key
        top.unenforced_primary_key_position = changed.unenforced_primary_key_position
        for mark in KEY_MARKS & changed.metadata.keys():
            top.metadata[mark] = changed.metadata[mark]
        first_id += len(replaced[old.id])
    gone = {child for i in replaced for child in descendants(fields, i)}
    return [new for f in fields if f.id not in gone for new in replaced.get(f.id, [f])]


def _marked(new: list[pb.Field], before: Sequence[pb.Field], old: pb.Field) -> list[pb.Field]:
    """The fields of a retyped column, each with a mark that names the field that it was."""
    known = {_path(before, field): field for field in before}
    for field in new:
        was = known.get(".".join([old.name, *_path(new, field).split(".")[1:]]))
        if was is not None:
            earlier = was.metadata.get(RETYPED_METADATA, b"")
            field.metadata[RETYPED_METADATA] = b",".join([str(was.id).encode(), *([earlier] if earlier else [])])
            if ADDED_METADATA in was.metadata:
                field.metadata[ADDED_METADATA] = was.metadata[ADDED_METADATA]
    return new


def _refuse_key_change(pinned: TableVersion, field_ids: set[int], what: str) -> None:
    keys = {f.id: f.name for f in key_fields(pinned.manifest.fields)}
    touched = [name for i, name in keys.items() if i in field_ids]
    if touched:
        raise InvalidInputError(
            f"{', '.join(touched)!r} is part of the table's key and cannot be {what}.",
            table=pinned.root,
            hint="Make a new table with another key and copy the rows.",
        )


def _edited(field: pb.Field, *, name: str | None = None, nullable: bool | None = None) -> pb.Field:
    changed = pb.Field()
    changed.CopyFrom(field)
    changed.name = field.name if name is None else name
    changed.nullable = field.nullable if nullable is None else nullable
    return changed


def _path(fields: Sequence[pb.Field], field: pb.Field) -> str:
    return field_path(field, {f.id: f for f in fields})
