"""Tables for Spark: from the name in a statement to a table at one version, and the facts that the JVM needs of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st

from conroi.data.arrow_types import row_width
from conroi.data.table_version import TableVersion
from conroi.errors import InvalidInputError, NotFoundError
from conroi.format.manifest import count_rows
from conroi.lake_snapshot import LakeReader
from conroi.reader import Reader
from conroi.spark.connector.lake_session import LakeSession
from conroi.spark.connector.predicates import is_ordered
from conroi.spark.connector.tasks import schema_to_text
from conroi.spark.expressions import same_name
from conroi.spark.pins import PinnedVersion
from conroi.spark.types import spark_schema
from conroi.transaction import Transaction

ROW_ADDRESS, ROW_ID, TABLE_VERSION = "_rowaddr", "_rowid", "_version"
DISTANCE, SCORE = "_distance", "_score"
METADATA = st.StructType(
    [
        st.StructField(ROW_ADDRESS, st.LongType(), False, {"comment": "fragment << 32 | offset"}),
        st.StructField(ROW_ID, st.LongType(), False, {"comment": "stable row id; the address if there are none"}),
        st.StructField(TABLE_VERSION, st.LongType(), False, {"comment": "version of the table that is read"}),
        st.StructField(DISTANCE, st.FloatType(), True, {"comment": "from the vector of a search; else null"}),
        st.StructField(SCORE, st.FloatType(), True, {"comment": "for the words of a search; else null"}),
    ]
)
_READABLE = ("BATCH_READ",)
_WRITABLE = (
    *("BATCH_READ", "BATCH_WRITE", "TRUNCATE", "OVERWRITE_BY_FILTER", "OVERWRITE_DYNAMIC"),
    *("MICRO_BATCH_READ", "STREAMING_WRITE"),
)
"""Capabilities, as Spark calls them. A past version does not change, so it is no stream."""
_BRANCH, _TAG = "branch_", "tag_"
COMMENT = "comment"
"""The entry of a column's metadata that is its comment, in Arrow as in Spark."""


@dataclass(frozen=True)
class Name:
    """A table as a statement names it: `orders`, `sales.orders`, `orders.branch_dev`, `orders.tag_q3`."""

    table: str
    branch: str | None = None
    tag: str | None = None


def table_name(parts: Sequence[str], of: LakeReader | Transaction) -> Name | None:
    """The table that is meant; in any letters, if no table is called exactly so. None if there is none."""
    found = _found(parts, of)
    if found is not None:
        return Name(found)
    *table, suffix = parts
    found = _found(table, of) if table else None
    if found is None:
        return None
    if suffix.startswith(_BRANCH):
        return Name(found, branch=suffix.removeprefix(_BRANCH))
    return Name(found, tag=suffix.removeprefix(_TAG)) if suffix.startswith(_TAG) else None


def _found(parts: Sequence[str], of: LakeReader | Transaction) -> str | None:
    if not parts or any("." in part for part in parts):
        return None
    asked = ".".join(parts)
    with suppress(InvalidInputError):  # nothing that a table can be called
        if asked in of:
            return asked
        return same_name(asked, of.tables())
    return None


def load(session: LakeSession, request: dict[str, Any]) -> dict[str, Any]:
    """A table for a statement: at the version of its transaction, of its execution, or at the one asked for."""
    found = opened(session, request)
    if found is None:
        return {"missing": True}
    name, table, is_newest = found
    identity = request.get("transaction")
    if identity is not None and name.table in (replaced := session.transaction(identity).replaced):
        return replaced[name.table].facts
    return facts(session, name, table, is_writable=is_newest)


def opened(session: LakeSession, request: dict[str, Any]) -> tuple[Name, Reader, bool] | None:
    """The table that is meant, at the version that is meant, and whether it is the newest; None if there is none."""
    identity, execution = request.get("transaction"), request.get("execution")
    source = session.snapshot(execution) if identity is None else session.transaction(identity).on(None)
    name = table_name(request["table"], source)
    if name is None:
        return None
    if name.branch is not None:
        source = (
            session.snapshot(execution, name.branch)
            if identity is None
            else session.transaction(identity).on(name.branch)
        )
    try:
        return name, *_at(session, source, name, request)
    except NotFoundError:
        if name.branch is not None and name.table not in source:
            return None
        raise


def moment(microseconds: int) -> datetime:
    """A time of Spark."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def _at(
    session: LakeSession, source: LakeReader | Transaction, name: Name, request: dict[str, Any]
) -> tuple[Reader, bool]:
    version, timestamp = request.get("version"), request.get("timestamp")
    if timestamp is not None:
        return _past(source, name.table, as_of=moment(timestamp)), False
    if version is not None and version.isdecimal():
        return _past(source, name.table, version=int(version)), False
    tag = name.tag if version is None else version
    return (source[name.table], True) if tag is None else (_tagged(session, source, name.table, tag), False)


def _past(source: LakeReader | Transaction, name: str, **when: Any) -> Reader:
    return source.table(name, **when) if isinstance(source, LakeReader) else source[name].at(**when)


def _tagged(session: LakeSession, source: LakeReader | Transaction, name: str, tag: str) -> Reader:
    """At a tag of the table, else at a tag of the lake."""
    try:
        return _past(source, name, tag=tag)
    except NotFoundError:
        try:
            return session.lake.at(tag=tag)[name]
        except NotFoundError:
            pass
        raise


def facts(session: LakeSession, name: Name, table: Reader, *, is_writable: bool) -> dict[str, Any]:
    """What the JVM knows of a table of the lake."""
    whole = ".".join([session.catalog, name.table, *([f"{_BRANCH}{name.branch}"] if name.branch else [])])
    return {
        **version_facts(whole, table.pinned, table.pinned.schema, PinnedVersion.of(table.pinned).to_text()),
        "target": {"name": name.table, "branch": name.branch},
        "metadata": METADATA.json(),
        "properties": _properties(table),
        "capabilities": list(_WRITABLE if is_writable else _READABLE),
    }


def version_facts(name: str, pinned: TableVersion, columns: pa.Schema, pin: str) -> dict[str, Any]:
    """What the JVM knows of some columns of a version: enough to read it. It hands `pin` back when it plans a scan."""
    schema = pinned.schema
    return {
        "name": name,
        "version": str(pinned.version),
        "schema": _with_comments(spark_schema(columns, table=name), columns).json(),
        "metadata": st.StructType([]).json(),
        "columns": schema_to_text(schema),
        "pin": pin,
        "rows": count_rows(pinned.manifest.fragments),
        "widths": {field.name: row_width(pa.schema([field])) for field in schema},
        "filterable": [field.name for field in schema if is_ordered(field.type)],
        "properties": {},
        "capabilities": list(_READABLE),
    }


def _with_comments(struct: st.StructType, schema: pa.Schema) -> st.StructType:
    for field in schema:
        comment = (field.metadata or {}).get(COMMENT.encode())
        if comment is not None:
            struct[field.name].metadata[COMMENT] = comment.decode()
    return struct


def _properties(table: Reader) -> dict[str, str]:
    pinned = table.pinned
    found = {**pinned.manifest.head.config, "provider": "conroi", "location": pinned.root}
    found["version"] = str(pinned.version)
    if pinned.key:
        found["key"] = ",".join(pinned.key)
    if pinned.manifest.has_stable_row_ids:
        found["stable_row_ids"] = "true"
    return found
