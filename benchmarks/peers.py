"""deltalake and pyiceberg, each imported only by the processes that open its tables: workers should start fast.

Before each verb that reads, a handle is brought to the latest version, as their users must.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.engines import Engine, Folder, Storage, id_range, plain

if TYPE_CHECKING:
    from deltalake import DeltaTable


class Delta(Engine):
    name = "deltalake"

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    @classmethod
    def create(cls, folder: Folder, data: pa.Table, *, key: str | None = None, storage: Storage = None) -> Engine:
        from deltalake import write_deltalake

        write_deltalake(f"{folder}/t", data, storage_options=plain(storage))
        return cls.open(folder, storage=storage)

    @classmethod
    def open(cls, folder: Folder, *, storage: Storage = None) -> Engine:
        from deltalake import DeltaTable

        return cls(DeltaTable(f"{folder}/t", storage_options=plain(storage)))

    def append(self, data: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._table, data, mode="append")

    def delete(self, first: int, end: int) -> None:
        self._latest().delete(id_range(first, end))

    def add_one(self, first: int, end: int) -> None:
        self._latest().update({"amount": "amount + 1"}, predicate=id_range(first, end))

    def upsert(self, data: pa.Table) -> tuple[int, int] | None:
        merge = self._latest().merge(data, "s.id = t.id", source_alias="s", target_alias="t")
        counts = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return counts["num_target_rows_updated"], counts["num_target_rows_inserted"]

    def compact(self) -> bool:
        return self._latest().optimize.compact()["numFilesRemoved"] > 0

    def count(self) -> int:
        return self._table.count()

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self._table.to_pyarrow_table(columns=list(columns))

    def _latest(self) -> DeltaTable:
        self._table.update_incremental()
        return self._table


class Iceberg(Engine):
    """With its catalog in SQLite, and so on local disk only."""

    name = "pyiceberg"

    def __init__(self, folder: Folder) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it tells of every retry
        self._catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/t")
        self._table = self._catalog.load_table("n.t") if self._catalog.namespace_exists("n") else None

    @classmethod
    def create(cls, folder: Folder, data: pa.Table, *, key: str | None = None, storage: Storage = None) -> Engine:
        Path(folder, "t").mkdir()
        engine = cls(folder)
        engine._catalog.create_namespace("n")
        engine._table = engine._catalog.create_table("n.t", data.schema)
        engine.append(data)
        return engine

    @classmethod
    def open(cls, folder: Folder, *, storage: Storage = None) -> Engine:
        return cls(folder)

    def append(self, data: pa.Table) -> None:
        assert self._table is not None
        self._table.append(data)

    def delete(self, first: int, end: int) -> None:
        assert self._table is not None
        self._table.refresh().delete(id_range(first, end))

    def add_one(self, first: int, end: int) -> None:
        raise NotImplementedError("pyiceberg has no update by expression")

    def upsert(self, data: pa.Table) -> tuple[int, int] | None:
        assert self._table is not None
        counts = self._table.refresh().upsert(data, join_cols=["id"])
        return counts.rows_updated, counts.rows_inserted

    def compact(self) -> bool:
        raise NotImplementedError("pyiceberg has no compaction")

    def count(self) -> int:
        assert self._table is not None
        return self._table.scan().count()

    def read(self, columns: Sequence[str]) -> pa.Table:
        assert self._table is not None
        return self._table.scan(selected_fields=tuple(columns)).to_arrow()
