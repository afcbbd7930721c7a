"""Version stores: where the versions of one table are recorded, and how a new one is created atomically.

Here: the addresses of external stores, `sqlite:///file.db`, `postgresql://host/database`, `dynamodb://table?region=…`.
An address may hold a password, so no message repeats one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote
from weakref import WeakValueDictionary

from conroi.errors import InvalidInputError
from conroi.storage.dynamodb import dynamo_table
from conroi.versions.dynamodb_records import DynamoRecords
from conroi.versions.records import RecordStore
from conroi.versions.sql_records import PostgresRecords, SqliteRecords

_HINT = "Write sqlite:///file.db, postgresql://user:password@host/database, or dynamodb://table?region=eu-central-1."
_opened: WeakValueDictionary[tuple[object, ...], RecordStore] = WeakValueDictionary()
_opening = threading.Lock()


def split_uri(
    uri: str | os.PathLike[str], store: str | RecordStore | None
) -> tuple[str | os.PathLike[str], str | RecordStore | None]:
    """Split pylance's `s3+ddb://bucket/path?ddbTableName=T` into the table's URI and its store's address."""
    text = os.fspath(uri)
    if not isinstance(text, str) or not text.lower().startswith("s3+ddb://"):  # pyright: ignore[reportUnnecessaryIsInstance]
        return uri, store
    path, _, query = text[len("s3+ddb://") :].partition("?")
    settings = parse_qsl(query)
    if store is not None or [name for name, _ in settings] != ["ddbTableName"]:
        raise InvalidInputError(
            "An s3+ddb:// URI names its store itself, by ddbTableName and nothing else.",
            hint="Write s3+ddb://bucket/path?ddbTableName=T, or s3://bucket/path with store=.",
        )
    return f"s3://{path}", f"dynamodb://{quote(settings[0][1])}"


def open_records(store: str | RecordStore, storage_options: Mapping[str, str] | None = None) -> RecordStore:
    """The store at an address; tables of one process with the same address share its connection.

    DynamoDB takes region and credentials from `storage_options` if given, else as boto3 does by default.
    """
    if not isinstance(store, str):
        return store
    options = {name.lower(): str(value) for name, value in (storage_options or {}).items()}
    key = (store, *sorted(options.items())) if store.startswith("dynamodb:") else (store,)
    with _opening:
        found = _opened.get(key)
        if found is None:
            found = _opened[key] = _open(store, options)
        return found


def _open(address: str, options: Mapping[str, str]) -> RecordStore:
    scheme, separator, rest = address.partition("://")
    if separator and scheme == "sqlite":
        return SqliteRecords(_sqlite_path(rest))
    if separator and scheme in ("postgresql", "postgres"):
        return PostgresRecords(address)
    if separator and scheme == "dynamodb":
        return DynamoRecords(dynamo_table(address, options))
    raise InvalidInputError("This is not the address of a store that conroi knows.", hint=_HINT)


def sqlite_path(address: str) -> str | None:
    """The file of a SQLite store; None if the address is PostgreSQL's. Lakes support only these two."""
    scheme, separator, rest = address.partition("://")
    if separator and scheme == "sqlite":
        return _sqlite_path(rest)
    if separator and scheme in ("postgresql", "postgres"):
        return None
    raise InvalidInputError(
        "This is not the address of a store for lakes.",
        hint="Write sqlite:///file.db or postgresql://user:password@host/database.",
    )


def store_kind(address: str) -> str:
    """What kind of store for lakes this is the address of."""
    return "postgresql" if sqlite_path(address) is None else "sqlite"


def _sqlite_path(rest: str) -> str:
    """As SQLAlchemy reads it: three slashes and a path from here, four and one from the root."""
    host, slash, path = rest.partition("/")
    if host or not slash or not path or "?" in path:
        raise InvalidInputError("The address of a SQLite store must be sqlite:///file.db.", hint=_HINT)
    return unquote(path)
