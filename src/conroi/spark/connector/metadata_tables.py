"""Metadata tables: `lake.orders.history`, `.versions`, `.fragments`, `.indices`, `.tags`; `lake.system.history` …

A table of the lake that has such a name is found first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import types as st

from conroi.errors import NotFoundError
from conroi.lake_snapshot import LakeReader
from conroi.reader import Reader
from conroi.spark.connector import tables
from conroi.spark.connector.lake_session import LakeSession

SYSTEM_NAMESPACE = "system"
"""The namespace of the metadata tables of the lake, and of its procedures."""
Rows = Iterator[Sequence[Any]]


_TYPES: dict[str, st.DataType] = {
    "bigint": st.LongType(),
    "string": st.StringType(),
    "boolean": st.BooleanType(),
    "double": st.DoubleType(),
    "timestamp": st.TimestampType(),
    "array<string>": st.ArrayType(st.StringType()),
    "array<double>": st.ArrayType(st.DoubleType()),
    "map<string,string>": st.MapType(st.StringType(), st.StringType()),
}
"""The types that the JVM reads from JSON (`LocalRows.scala`)."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def columns(**types: str) -> st.StructType:
    """Columns by name: `columns(version="bigint NOT NULL")`."""
    fields = [
        st.StructField(name, _TYPES[text.removesuffix(" NOT NULL")], not text.endswith(" NOT NULL"))
        for name, text in types.items()
    ]
    return st.StructType(fields)


def answer(struct: st.StructType, rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Columns and rows."""
    return {"schema": struct.json(), "rows": [[_value(value) for value in row] for row in rows]}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value - _EPOCH).total_seconds() * 1_000_000)
    if isinstance(value, Mapping):
        return {str(key): None if item is None else str(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class MetadataTable:
    """Its columns, and its rows for a table, or for the lake, at one version."""

    schema: st.StructType
    rows: Callable[[Any], Rows]


def _history(table: Reader) -> Rows:
    for commit in table.history():
        yield (
            *(commit.version, commit.timestamp, commit.operation, commit.message, commit.writer),
            *(commit.transaction_uuid, commit.read_version, commit.rows, commit.properties),
        )


def _versions(table: Reader) -> Rows:
    tags: dict[int, list[str]] = {}
    for tag in table.tags.list():
        tags.setdefault(tag.version, []).append(tag.name)
    for version in table.versions():
        yield version, sorted(tags.get(version, [])), version == table.version


def _fragments(table: Reader) -> Rows:
    for fragment in table.pinned.manifest.fragments:
        deleted = fragment.deletion_file.num_deleted_rows
        size = sum(file.file_size_bytes for file in fragment.files)
        paths = [file.path for file in fragment.files]
        yield fragment.id, fragment.physical_rows - deleted, fragment.physical_rows, deleted, size, paths


def _indices(table: Reader) -> Rows:
    lacking = table.unindexed
    for name, indexed in table.indices.items():
        yield name, list(indexed), lacking.get(name, 0)


def _tags(owner: Reader | LakeReader) -> Rows:
    for tag in owner.tags.list():
        yield tag.name, tag.version, tag.created_at, tag.branch


def _lake_history(lake: LakeReader) -> Rows:
    for commit in lake.history():
        yield (
            *(commit.version, commit.timestamp, commit.message, commit.author, commit.operation),
            *(commit.tables, commit.properties, commit.idempotency_key),
        )


def _lake_tables(lake: LakeReader) -> Rows:
    for name in lake.tables():
        table = lake[name]
        key = list(table.key)
        yield name, table.version, table.count_rows(), len(table.pinned.manifest.fragments), key, table.uri


def _branches(lake: LakeReader) -> Rows:
    for branch in lake.branches.list():
        yield branch.name, branch.parent, branch.parent_version, branch.created_at


_TAG_COLUMNS = columns(
    name="string NOT NULL", version="bigint NOT NULL", created_at="timestamp", branch="string"
)  # fmt: skip

OF_TABLES: dict[str, MetadataTable] = {
    "history": MetadataTable(
        columns(
            version="bigint NOT NULL", timestamp="timestamp NOT NULL", operation="string NOT NULL", message="string",
            writer="string", transaction_id="string", read_version="bigint", rows="bigint",
            properties="map<string,string>",
        ),
        _history,
    ),
    "versions": MetadataTable(
        columns(version="bigint NOT NULL", tags="array<string>", is_current="boolean NOT NULL"), _versions
    ),
    "fragments": MetadataTable(
        columns(
            id="bigint NOT NULL", rows="bigint NOT NULL", physical_rows="bigint NOT NULL",
            deleted_rows="bigint NOT NULL", bytes="bigint", files="array<string>",
        ),
        _fragments,
    ),
    "indices": MetadataTable(
        columns(name="string NOT NULL", columns="array<string>", unindexed_rows="bigint NOT NULL"), _indices
    ),
    "tags": MetadataTable(_TAG_COLUMNS, _tags),
}  # fmt: skip

OF_LAKE: dict[str, MetadataTable] = {
    "history": MetadataTable(
        columns(
            version="bigint NOT NULL", timestamp="timestamp NOT NULL", message="string", author="string",
            operation="string", tables="map<string,string>", properties="map<string,string>", idempotency_key="string",
        ),
        _lake_history,
    ),
    "tables": MetadataTable(
        columns(
            name="string NOT NULL", version="bigint NOT NULL", rows="bigint NOT NULL", fragments="bigint NOT NULL",
            key="array<string>", location="string",
        ),
        _lake_tables,
    ),
    "tags": MetadataTable(_TAG_COLUMNS, _tags),
    "branches": MetadataTable(
        columns(name="string NOT NULL", parent="string", parent_version="bigint", created_at="timestamp"), _branches
    ),
}  # fmt: skip


# ---------------------------------------------------------------------------- requests


def load(session: LakeSession, request: dict[str, Any]) -> dict[str, Any]:
    """A table of the lake, or a metadata table of one."""
    answered = tables.load(session, request)
    if not answered.get("missing"):
        return answered
    found = _found(session, request)
    if found is None:
        return answered
    name = ".".join([session.catalog, *request["table"]])
    return {"name": name, "schema": found[0].schema.json(), "local": True}


def rows(session: LakeSession, request: dict[str, Any]) -> dict[str, Any]:
    """The rows of a metadata table."""
    found = _found(session, request)
    if found is None:
        raise NotFoundError(
            f"{'.'.join(request['table'])} is not there any more.", hint="The table was dropped meanwhile."
        )
    return answer(found[0].schema, found[0].rows(found[1]))


def _found(session: LakeSession, request: dict[str, Any]) -> tuple[MetadataTable, Any] | None:
    *owner, last = request["table"]
    kind = last.lower()
    if [part.lower() for part in owner] == [SYSTEM_NAMESPACE] and kind in OF_LAKE:
        return OF_LAKE[kind], _lake_at(session, request)
    if not owner or kind not in OF_TABLES:
        return None
    opened = tables.opened(session, {**request, "table": owner})
    return None if opened is None else (OF_TABLES[kind], opened[1])


def _lake_at(session: LakeSession, request: dict[str, Any]) -> LakeReader:
    version, timestamp = request.get("version"), request.get("timestamp")
    if timestamp is not None:
        return session.lake.at(as_of=tables.moment(timestamp))
    if version is None:
        return session.snapshot(request.get("execution"))
    return session.lake.at(version=int(version)) if version.isdecimal() else session.lake.at(tag=version)
