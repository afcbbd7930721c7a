"""Engines that commit to three tables at once, behind one small face."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from tests.support.databases import duckdb_extension

TABLES = ("t0", "t1", "t2")


class Lakes(Protocol):
    """One engine on one folder."""

    name: ClassVar[str]
    is_atomic: ClassVar[bool]

    def create(self) -> None:
        """Make the three tables, empty."""
        ...

    def open(self) -> None:
        """What a writer does before its first commit."""
        ...

    def append(self, rows: pa.Table) -> None:
        """The same rows into all three tables."""
        ...

    def count(self) -> list[int]:
        """How many rows each table has."""
        ...


class ConroiLake:
    """One transaction; the catalog is the address of a SQL store, or nothing for a `__manifest`."""

    name: ClassVar[str] = "conroi"
    is_atomic: ClassVar[bool] = True

    def __init__(self, folder: Path, schema: pa.Schema, catalog: str) -> None:
        self._folder, self._schema, self._store = folder, schema, catalog or None

    def create(self) -> None:
        import conroi

        lake = conroi.connect(self._folder, store=self._store)
        with lake.begin("create") as tx:
            for name in TABLES:
                tx.create_table(name, self._schema)

    def open(self) -> None:
        import conroi

        self._lake = conroi.connect(self._folder, store=self._store)

    def append(self, rows: pa.Table) -> None:
        with self._lake.begin() as tx:
            for name in TABLES:
                tx[name].append(rows)

    def count(self) -> list[int]:
        return [self._lake[name].count_rows() for name in TABLES]


class PylanceThrice:
    """Three commits, one after the other: what is without a lake, and not atomic."""

    name: ClassVar[str] = "pylance, 3 commits"
    is_atomic: ClassVar[bool] = False

    def __init__(self, folder: Path, schema: pa.Schema, _: str) -> None:
        self._folder, self._schema = folder, schema

    def create(self) -> None:
        import lance

        for name in TABLES:
            lance.write_dataset(self._schema.empty_table(), self._folder / name)

    def open(self) -> None:
        import lance

        self._datasets = [lance.dataset(self._folder / name) for name in TABLES]

    def append(self, rows: pa.Table) -> None:
        import lance

        self._datasets = [lance.write_dataset(rows, dataset, mode="append") for dataset in self._datasets]

    def count(self) -> list[int]:
        self.open()
        return [dataset.count_rows() for dataset in self._datasets]


class DuckLake:
    """DuckDB's lake, with its catalog in PostgreSQL."""

    name: ClassVar[str] = "DuckLake on PostgreSQL"
    is_atomic: ClassVar[bool] = True

    def __init__(self, folder: Path, schema: pa.Schema, catalog: str) -> None:
        self._folder, self._schema, self._catalog = folder, schema, catalog

    def create(self) -> None:
        self.open()
        for name in TABLES:
            self._duckdb.execute(f"CREATE TABLE lake.{name} AS SELECT * FROM empty")

    def open(self) -> None:
        import duckdb

        self._duckdb = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        self._duckdb.execute("SET enable_progress_bar = false")
        for extension in ("postgres_scanner", "ducklake"):
            self._duckdb.execute(f"LOAD '{duckdb_extension(extension)}'")
        self._duckdb.register("empty", self._schema.empty_table())
        self._duckdb.execute(f"ATTACH 'ducklake:postgres:{self._catalog}' AS lake (DATA_PATH '{self._folder}/data')")

    def append(self, rows: pa.Table) -> None:
        _insert(self._duckdb, rows, "lake.")

    def count(self) -> list[int]:
        return _count(self._duckdb, "lake.")


class DuckDb:
    """DuckDB's own file: one process, so several writers are threads of it."""

    name: ClassVar[str] = "DuckDB, threads"
    is_atomic: ClassVar[bool] = True

    def __init__(self, folder: Path, schema: pa.Schema, _: str) -> None:
        self._folder, self._schema = folder, schema
        self._local = threading.local()

    def create(self) -> None:
        self.open()
        self._duckdb.register("empty", self._schema.empty_table())
        for name in TABLES:
            self._duckdb.execute(f"CREATE TABLE {name} AS SELECT * FROM empty")

    def open(self) -> None:
        import duckdb

        self._duckdb = duckdb.connect(self._folder / "one.duckdb")

    def append(self, rows: pa.Table) -> None:
        if not hasattr(self._local, "cursor"):
            self._local.cursor = self._duckdb.cursor()
        _insert(self._local.cursor, rows, "")

    def count(self) -> list[int]:
        return _count(self._duckdb, "")


def _insert(duckdb: Any, rows: pa.Table, prefix: str) -> None:
    duckdb.register("source", rows)
    duckdb.execute("BEGIN")
    try:
        for name in TABLES:
            duckdb.execute(f"INSERT INTO {prefix}{name} SELECT * FROM source")
        duckdb.execute("COMMIT")
    except Exception:
        duckdb.execute("ROLLBACK")
        raise


def _count(duckdb: Any, prefix: str) -> list[int]:
    return [duckdb.execute(f"SELECT count(*) FROM {prefix}{name}").fetchone()[0] for name in TABLES]
