"""The engines, each with the three things we measure: make a table, append to it, open the latest version.

Appends go through a handle that is kept, which is the fast way for every one of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import lance
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import conroi


class Engine(ABC):
    """One contender; an instance holds one open table."""

    name: str

    @classmethod
    @abstractmethod
    def create(cls, folder: Path, data: pa.Table) -> Engine:
        """A new table in an empty folder."""

    @classmethod
    @abstractmethod
    def open(cls, folder: Path) -> Engine:
        """The latest version of a table."""

    @abstractmethod
    def append(self, data: pa.Table) -> None:
        """One commit."""

    @abstractmethod
    def count(self) -> int:
        """The rows it has now, to see that every commit is there."""


class Conroi(Engine):
    name = "conroi"
    durable = False

    def __init__(self, table: conroi.Table) -> None:
        self._table = table

    @classmethod
    def create(cls, folder: Path, data: pa.Table) -> Engine:
        return cls(conroi.create_table(folder / "t", data, durable=cls.durable))

    @classmethod
    def open(cls, folder: Path) -> Engine:
        return cls(conroi.open_table(folder / "t", durable=cls.durable))

    def append(self, data: pa.Table) -> None:
        self._table = self._table.append(data)

    def count(self) -> int:
        return self._table.count_rows()


class ConroiDurable(Conroi):
    name = "conroi, durable"
    durable = True


class Pylance(Engine):
    name = "pylance"

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self._dataset = dataset

    @classmethod
    def create(cls, folder: Path, data: pa.Table) -> Engine:
        return cls(lance.write_dataset(data, str(folder / "t")))

    @classmethod
    def open(cls, folder: Path) -> Engine:
        return cls(lance.dataset(str(folder / "t")))

    def append(self, data: pa.Table) -> None:
        self._dataset = lance.write_dataset(data, self._dataset, mode="append")

    def count(self) -> int:
        return self._dataset.count_rows()


class Delta(Engine):
    name = "deltalake"

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    @classmethod
    def create(cls, folder: Path, data: pa.Table) -> Engine:
        write_deltalake(str(folder / "t"), data)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> Engine:
        return cls(DeltaTable(str(folder / "t")))

    def append(self, data: pa.Table) -> None:
        write_deltalake(self._table, data, mode="append")

    def count(self) -> int:
        return self._table.count()


class Iceberg(Engine):
    """With its catalog in SQLite."""

    name = "pyiceberg"

    def __init__(self, folder: Path) -> None:
        self._catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/t")
        self._table = self._catalog.load_table("n.t") if self._catalog.namespace_exists("n") else None

    @classmethod
    def create(cls, folder: Path, data: pa.Table) -> Engine:
        (folder / "t").mkdir()
        engine = cls(folder)
        engine._catalog.create_namespace("n")
        engine._table = engine._catalog.create_table("n.t", data.schema)
        engine.append(data)
        return engine

    @classmethod
    def open(cls, folder: Path) -> Engine:
        return cls(folder)

    def append(self, data: pa.Table) -> None:
        assert self._table is not None
        self._table.append(data)

    def count(self) -> int:
        assert self._table is not None
        return self._table.scan().count()


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
