"""Creating a table: an Overwrite of nothing, as version 1, or a clone of a version of another table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from uuid import UUID

import pyarrow as pa

from conroi.commit.change import Change, Plan
from conroi.commit.table_commit import commit
from conroi.conflicts import Staged
from conroi.data.arrow_types import metadata_of
from conroi.data.incoming import KeysSeen, RemoteRows, opened, write_rows
from conroi.data.sql import check_column_name
from conroi.data.table_version import TableVersion
from conroi.data.writer import DataWriter, Progress
from conroi.environment import moment
from conroi.errors import AlreadyExistsError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import BLOB_EXTENSION, key_columns
from conroi.format.manifest import Manifest
from conroi.format.naming import ManifestNaming, deletion_path, index_dir
from conroi.format.on_disk import ADDED_METADATA, RETYPED_METADATA
from conroi.format.schema import fields_from_schema
from conroi.operations import Clone, Overwrite
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.storage.base_paths import Copy, copies_of_data_file, copy_all, objects_of_base, share_reach
from conroi.storage.objects import Objects
from conroi.verbs.key_check import refuse_repeated
from conroi.verbs.settings import check_settings

DEFAULT_DATA_FORMAT = "2.2"
DATA_FORMATS = ("2.0", "2.1", "2.2")
KEY_METADATA = b"lance-schema:unenforced-primary-key"
KEY_POSITION_METADATA = b"lance-schema:unenforced-primary-key:position"


def create(
    files: TableStorage,
    schema_or_data: object,
    *,
    key: str | Sequence[str] | None = None,
    stable_row_ids: bool = False,
    config: Mapping[str, str] | None = None,
    data_format: str = DEFAULT_DATA_FORMAT,
    naming: ManifestNaming = ManifestNaming.V2,
    properties: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    schema: pa.Schema | None = None,
    claim: Callable[[], None] | None = None,
) -> Change:
    """Write the data, if any, and return the table's first operation.

    `schema` gives the data its types. `claim` is called before anything is written, after the request was validated.
    """
    if data_format not in DATA_FORMATS:
        raise InvalidInputError(
            f"{data_format!r} is not a data file version.", table=files.root, hint=f"One of {', '.join(DATA_FORMATS)}."
        )
    if schema is not None and isinstance(schema_or_data, pa.Schema):
        raise InvalidInputError("There are two schemas and no data.", table=files.root, hint="Leave one of them out.")
    rows = None if isinstance(schema_or_data, pa.Schema) else opened(schema_or_data, schema)
    if schema is None:
        schema = schema_or_data if isinstance(schema_or_data, pa.Schema) else _schema_of(rows)
    schema = with_key(schema, key, table=files.root)
    fields = checked_fields(schema, table=files.root, data_format=data_format)
    check_settings(config or {}, files.root)
    begun_at = moment(files.environment)
    if claim is not None:
        claim()
    writer = DataWriter(files.objects, files.environment, fields, data_format)
    seen = KeysSeen(key_columns(fields))
    written: list[pb.DataFragment] = []
    if rows is not None:
        written = write_rows(rows, schema, writer, seen, progress).fragments
        refuse_repeated(seen.keys(), seen.columns, files.root)
    operation = Overwrite(
        fragments=tuple(written),
        schema=tuple(fields),
        schema_metadata={key.decode(): value for key, value in (schema.metadata or {}).items()},
        config_upsert_values=dict(config or {}),
        stable_row_ids=stable_row_ids,
        data_format=data_format,
    )
    return Change(
        Plan(Staged(operation=operation, base=Manifest(b""))),
        base=None,
        uuid=str(files.environment.new_uuid()),
        properties=properties or {},
        begun_at=begun_at,
        new_table_naming=naming,
    )


def check_same_table(
    there: pa.Schema,
    key_there: Sequence[str],
    schema_or_data: object,
    schema: pa.Schema | None,
    key: str | Sequence[str] | None,
    *,
    table: str,
) -> None:
    """AlreadyExistsError if the existing table has another key or other columns than requested.

    Data may lack columns that the table has got since, but not have others.
    """
    asked = schema_or_data if isinstance(schema_or_data, pa.Schema) else schema
    types = None if asked is None else [(field.name, field.type) for field in asked]
    has_others = types is None and not _names_of(schema_or_data) <= set(there.names)
    if has_others or (types is not None and types != [(field.name, field.type) for field in there]):
        raise AlreadyExistsError(
            f"Table {table!r} already exists, with other columns.",
            table=table,
            hint=f"It has {', '.join(f'{field.name} {field.type}' for field in there)}. Choose another name.",
        )
    wanted = None if key is None else (key,) if isinstance(key, str) else tuple(key)
    if wanted is not None and wanted != tuple(key_there):
        raise AlreadyExistsError(
            f"There is a table {table!r} already, and its key is {', '.join(key_there) or 'not declared'}.",
            table=table,
            hint="Leave out key, or choose another name; declare_key() declares one.",
        )


def _names_of(data: object) -> set[str]:
    """The columns of data, as far as they can be told without reading it."""
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        rows = cast("Sequence[object]", data)
        return {str(name) for row in rows if isinstance(row, Mapping) for name in cast("Mapping[object, object]", row)}
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return set(data.schema.names)
    columns = getattr(data, "columns", ())  # pandas, polars and Spark
    return {str(name) for name in columns} if isinstance(columns, Iterable) else set()


def _schema_of(rows: pa.RecordBatchReader | RemoteRows | None) -> pa.Schema:
    assert rows is not None
    return rows.schema


def checked_fields(schema: pa.Schema, *, table: str, data_format: str) -> list[pb.Field]:
    """The schema as fields; InvalidInputError if no table can have it."""
    if not len(schema):
        raise InvalidInputError(
            "A table needs at least one column.", table=table, hint="Give a pyarrow schema, or data with columns."
        )
    names = schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"Column names must differ: {', '.join(twice)} stands there twice.", table=table, hint="Rename one of them."
        )
    for name in names:
        check_column_name(name, table=table)
    return new_fields(schema, table=table, data_format=data_format)


def new_fields(schema: pa.Schema, *, table: str, data_format: str, first_id: int = 0) -> list[pb.Field]:
    """The fields of new columns; InvalidInputError if a type can be written but not read again."""
    fields = fields_from_schema(schema, first_id=first_id)
    for field in fields:
        for mark in (ADDED_METADATA, RETYPED_METADATA):  # of the column that the values come from
            field.metadata.pop(mark, None)
        if field.extension_name == BLOB_EXTENSION and data_format != "2.2":
            raise InvalidInputError(
                f"Column {field.name!r} is for blobs, which files of version {data_format} hold in another way.",
                table=table,
                hint='Make the table with data_format="2.2", or leave out the mark "lance-encoding:blob".',
            )
        if field.logical_type.startswith("fixed_size_list:struct:"):
            raise InvalidInputError(
                f"Column {field.name!r} is a fixed-size list of structs, which pylance cannot read beside other "
                "columns.",
                table=table,
                hint="Use a list of structs, or a struct of fixed-size lists.",
            )
    return fields


def with_key(schema: pa.Schema, key: str | Sequence[str] | None, *, table: str) -> pa.Schema:
    """The schema with these columns marked as the primary key; key columns are never null."""
    if key is None:
        return schema
    columns = [key] if isinstance(key, str) else list(key)
    if not columns or len(set(columns)) != len(columns):
        raise InvalidInputError(
            "A key is one column, or several different ones.", table=table, hint='Give key="id" or key=["a", "b"].'
        )
    fields = {field.name: field for field in schema}
    for position, column in enumerate(columns, start=1):
        if column not in fields:
            raise InvalidInputError(
                f"The key column {column!r} is not in the schema.", table=table, hint=f"It has {', '.join(fields)}."
            )
        fields[column] = _marked(fields[column], position if len(columns) > 1 else None, table)
    return pa.schema(list(fields.values()), metadata=metadata_of(schema))


def _marked(field: pa.Field[Any], position: int | None, table: str) -> pa.Field[Any]:
    if pa.types.is_nested(field.type) or isinstance(field.type, pa.BaseExtensionType):
        raise InvalidInputError(
            f"Column {field.name!r} ({field.type}) cannot be a key.", table=table, hint="Use plain columns."
        )
    metadata = {**(metadata_of(field) or {}), KEY_METADATA: b"true"}
    if position is not None:
        metadata[KEY_POSITION_METADATA] = str(position).encode()
    return field.with_metadata(metadata).with_nullable(False)


def clone(pinned: TableVersion, target: TableStorage, *, deep: bool) -> Snapshot:
    """Create the new table. A shallow clone references the files where they are; a deep one copies all of them."""
    begun_at = moment(target.environment)
    if not deep:
        share_reach(target.objects, pinned.files.objects)
    if deep:
        copy_all(target.objects, list(_files(pinned)))
    operation = Clone(
        is_shallow=not deep, ref_version=pinned.version, ref_path=pinned.files.objects.pylance_uri(), ref_name=None
    )
    change = Change(
        Plan(Staged(operation=operation, base=Manifest(b"")), cloned=pinned.snapshot),
        base=None,
        uuid=str(target.environment.new_uuid()),
        begun_at=begun_at,
        new_table_naming=pinned.snapshot.naming,
    )
    return commit(target, change).snapshot


def _files(pinned: TableVersion) -> Iterator[Copy]:
    """All files of the version, wherever they are: its own, and those of the tables and branches it came from."""
    objects, manifest = pinned.files.objects, pinned.manifest
    for fragment in manifest.fragments:
        for file in fragment.files:
            yield from copies_of_data_file(objects, manifest, file)
        if fragment.HasField("deletion_file"):
            path = deletion_path(fragment.id, fragment.deletion_file)
            yield Copy(_where(pinned, fragment.deletion_file), path, path)
    for index in manifest.indices:
        source = _where(pinned, index)
        for path in source.list_names(index_dir(UUID(bytes=index.uuid.uuid))):
            yield Copy(source, path, path)


def _where(pinned: TableVersion, item: pb.DeletionFile | pb.IndexMetadata) -> Objects:
    return objects_of_base(pinned.files.objects, pinned.manifest, item.base_id if item.HasField("base_id") else None)
