"""The peers of the museum, as their users call them: pylance, lancedb, deltalake, pyiceberg and DuckLake."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, TypeAlias, cast

import lance
import pyarrow as pa
from lance.fragment import LanceFragment

from tests.support.databases import duckdb_extension

Anything: TypeAlias = Any
"""A handle of a library without type stubs."""


def upsert(table: Anything, rows: pa.Table) -> None:
    """Upsert by the column `id`, in a pylance dataset or a lancedb table."""
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def written(uri: str, rows: pa.Table) -> Anything:
    """A fragment that no version has yet: what a distributed writer brings to its commit."""
    return LanceFragment.create(uri, rows)


def commit(uri: str, operation: Anything, *, read_version: int) -> lance.LanceDataset:
    """pylance's lower-level commit, as engines use it."""
    return lance.LanceDataset.commit(uri, operation, read_version=read_version)


def column(uri: str, name: str) -> list[Any]:
    """A column of the newest version, as pylance reads it, sorted."""
    return sorted(lance.dataset(uri).to_table()[name].to_pylist())


def iceberg_catalog(folder: Path) -> Anything:
    """An Iceberg catalog in SQLite, with the namespace `n`."""
    sql = importlib.import_module("pyiceberg.catalog.sql")
    folder.mkdir()
    catalog = sql.SqlCatalog("museum", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    return catalog


def iceberg_schema(*, key: str | None = None, **columns: str) -> Anything:
    """A schema of long columns; the `key` is required and the identifier field."""
    schema, types = importlib.import_module("pyiceberg.schema"), importlib.import_module("pyiceberg.types")
    fields = [
        types.NestedField(number, name, getattr(types, kind)(), required=name == key)
        for number, (name, kind) in enumerate(columns.items(), 1)
    ]
    ids = [field.field_id for field in fields if field.name == key]
    return schema.Schema(*fields, identifier_field_ids=ids)


def outcome(work: Any) -> str:
    """`committed`, or the name of the error."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  # whatever the peer raises is its outcome
        return type(error).__name__
    return "committed"


def ducklake(folder: Path) -> Anything:
    """A DuckDB connection with a DuckLake attached as `lake`, its catalog in a DuckDB file."""
    duckdb = cast("Anything", importlib.import_module("duckdb"))
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{duckdb_extension('ducklake')}'")
    folder.mkdir()
    connection.execute(f"ATTACH 'ducklake:{folder}/catalog.ddb' AS lake (DATA_PATH '{folder}/data')")
    return connection


def deltalake() -> Anything:
    """The package."""
    return importlib.import_module("deltalake")
