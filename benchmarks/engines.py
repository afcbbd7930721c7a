"""The engines, each with the three things we measure: make a table, append to it, open the latest version.

Appends go through a handle that is kept, which is the fast way for every one of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import conroi

Folder = Path | str
"""A folder on disk, or the URI of one on an object store."""
Storage = Mapping[str, str] | None
"""How the object store is reached."""


class Engine(ABC):
    """One contender; an instance holds one open table."""

    name: str

    @classmethod
    @abstractmethod
    def create(cls, folder: Folder, data: pa.Table, storage: Storage = None) -> Engine:
        """A new table in an empty folder."""

    @classmethod
    @abstractmethod
    def open(cls, folder: Folder, storage: Storage = None) -> Engine:
        """The latest version of a table."""

    @abstractmethod
    def append(self, data: pa.Table) -> None:
        """One commit."""

    @abstractmethod
    def count(self) -> int:
        """The rows it has now, to see that every commit is there."""

    @abstractmethod
    def ids(self) -> pa.ChunkedArray:
        """All ids, to see which rows are there."""


class Conroi(Engine):
    name = "conroi"
    durable = False

    def __init__(self, table: conroi.Table) -> None:
        self._table = table

    @classmethod
    def create(cls, folder: Folder, data: pa.Table, storage: Storage = None) -> Engine:
        return cls(conroi.create_table(f"{folder}/t", data, storage_options=storage, durable=cls.durable))

    @classmethod
    def open(cls, folder: Folder, storage: Storage = None) -> Engine:
        return cls(conroi.open_table(f"{folder}/t", storage_options=storage, durable=cls.durable))

    def append(self, data: pa.Table) -> None:
        self._table = self._table.append(data)

    def count(self) -> int:
        return self._table.count_rows()

    def ids(self) -> pa.ChunkedArray:
        return self._table.to_arrow(columns=["id"])["id"]


class ConroiDurable(Conroi):
    name = "conroi, durable"
    durable = True


class Pylance(Engine):
    name = "pylance"

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self._dataset = dataset

    @classmethod
    def create(cls, folder: Folder, data: pa.Table, storage: Storage = None) -> Engine:
        return cls(lance.write_dataset(data, f"{folder}/t", storage_options=_plain(storage)))

    @classmethod
    def open(cls, folder: Folder, storage: Storage = None) -> Engine:
        return cls(lance.dataset(f"{folder}/t", storage_options=_plain(storage)))

    def append(self, data: pa.Table) -> None:
        self._dataset = lance.write_dataset(data, self._dataset, mode="append")

    def count(self) -> int:
        return self._dataset.count_rows()

    def ids(self) -> pa.ChunkedArray:
        return self._dataset.to_table(columns=["id"])["id"]


class Delta(Engine):
    name = "deltalake"

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    @classmethod
    def create(cls, folder: Folder, data: pa.Table, storage: Storage = None) -> Engine:
        write_deltalake(f"{folder}/t", data, storage_options=_plain(storage))
        return cls.open(folder, storage)

    @classmethod
    def open(cls, folder: Folder, storage: Storage = None) -> Engine:
        return cls(DeltaTable(f"{folder}/t", storage_options=_plain(storage)))

    def append(self, data: pa.Table) -> None:
        write_deltalake(self._table, data, mode="append")

    def count(self) -> int:
        return self._table.count()

    def ids(self) -> pa.ChunkedArray:
        return self._table.to_pyarrow_table(columns=["id"])["id"]


class Iceberg(Engine):
    """With its catalog in SQLite, and so on local disk only."""

    name = "pyiceberg"

    def __init__(self, folder: Folder) -> None:
        self._catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/t")
        self._table = self._catalog.load_table("n.t") if self._catalog.namespace_exists("n") else None

    @classmethod
    def create(cls, folder: Folder, data: pa.Table, storage: Storage = None) -> Engine:
        Path(folder, "t").mkdir()
        engine = cls(folder)
        engine._catalog.create_namespace("n")
        engine._table = engine._catalog.create_table("n.t", data.schema)
        engine.append(data)
        return engine

    @classmethod
    def open(cls, folder: Folder, storage: Storage = None) -> Engine:
        return cls(folder)

    def append(self, data: pa.Table) -> None:
        assert self._table is not None
        self._table.append(data)

    def count(self) -> int:
        assert self._table is not None
        return self._table.scan().count()

    def ids(self) -> pa.ChunkedArray:
        assert self._table is not None
        return self._table.scan(selected_fields=("id",)).to_arrow()["id"]


EngineType = type[Engine]
ALL: tuple[EngineType, ...] = (Conroi, Pylance, ConroiDurable, Delta, Iceberg)  # those with a bar are neighbours


def rows(count: int, start: int = 0) -> pa.Table:
    """Plain rows: a number, a measure, a short text."""
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "amount": pa.array([number * 0.5 for number in ids], pa.float64()),
            "name": pa.array([f"row {number}" for number in ids], pa.string()),
        }
    )


def renumbered(data: pa.Table, start: int) -> pa.Table:
    """The same rows with other ids, at next to no cost."""
    return data.set_column(0, "id", pa.array(np.arange(start, start + data.num_rows)))


def _plain(storage: Storage) -> dict[str, str] | None:
    return None if storage is None else dict(storage)
