"""The engines, each with the verbs that we measure, on a handle that is kept: the fast way for every one of them.

Their peers are in `benchmarks.peers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    def create(cls, folder: Folder, data: pa.Table, *, key: str | None = None, storage: Storage = None) -> Engine:
        """A new table in an empty folder; with a declared key, where the engine knows such a thing."""

    @classmethod
    @abstractmethod
    def open(cls, folder: Folder, *, storage: Storage = None) -> Engine:
        """The latest version of a table."""

    @abstractmethod
    def append(self, data: pa.Table) -> None:
        """One commit."""

    @abstractmethod
    def delete(self, first: int, end: int) -> None:
        """Delete the rows whose ids are in this range."""

    @abstractmethod
    def add_one(self, first: int, end: int) -> None:
        """Add one to the amount of the rows whose ids are in this range."""

    @abstractmethod
    def upsert(self, data: pa.Table) -> tuple[int, int] | None:
        """Update the rows whose ids are there, insert the others; how many were updated and inserted, if it says so."""

    @abstractmethod
    def compact(self) -> bool:
        """Make few files of many; whether there was anything to do."""

    @abstractmethod
    def count(self) -> int:
        """The rows it has now, to see that every commit is there."""

    @abstractmethod
    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows, to see that they are right."""


class Conroi(Engine):
    name = "conroi"
    durable = False

    def __init__(self, table: conroi.Table) -> None:
        self._table = table

    @classmethod
    def create(cls, folder: Folder, data: pa.Table, *, key: str | None = None, storage: Storage = None) -> Engine:
        uri = f"{folder}/t"
        return cls(conroi.create_table(uri, data, key=key, storage_options=storage, durable=cls.durable))

    @classmethod
    def open(cls, folder: Folder, *, storage: Storage = None) -> Engine:
        return cls(conroi.open_table(f"{folder}/t", storage_options=storage, durable=cls.durable))

    def append(self, data: pa.Table) -> None:
        self._table = self._table.append(data)

    def delete(self, first: int, end: int) -> None:
        self._table = self._table.delete(id_range(first, end))

    def add_one(self, first: int, end: int) -> None:
        self._table = self._table.update({"amount": "amount + 1"}, id_range(first, end))

    def upsert(self, data: pa.Table) -> tuple[int, int] | None:
        done = self._table.merge(data, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
        self._table = done.table
        return done.rows_updated, done.rows_inserted

    def compact(self) -> bool:
        before = self._table.latest().version
        self._table = self._table.compact()
        # Where there was nothing to do, the version we get may still be newer: that of a concurrent writer.
        return self._table.version > before and self._table.history(limit=1)[0].operation == "Rewrite"

    def count(self) -> int:
        return self._table.count_rows()

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self._table.to_arrow(columns=list(columns))


class ConroiDurable(Conroi):
    name = "conroi, durable"
    durable = True


class Pylance(Engine):
    name = "pylance"

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self._dataset = dataset

    @classmethod
    def create(cls, folder: Folder, data: pa.Table, *, key: str | None = None, storage: Storage = None) -> Engine:
        data = data if key is None else _with_key(data, key)
        return cls(lance.write_dataset(data, f"{folder}/t", storage_options=plain(storage)))

    @classmethod
    def open(cls, folder: Folder, *, storage: Storage = None) -> Engine:
        return cls(lance.dataset(f"{folder}/t", storage_options=plain(storage)))

    def append(self, data: pa.Table) -> None:
        self._dataset = lance.write_dataset(data, self._dataset, mode="append")

    def delete(self, first: int, end: int) -> None:
        self._dataset.delete(id_range(first, end))

    def add_one(self, first: int, end: int) -> None:
        self._dataset.update({"amount": "amount + 1"}, where=id_range(first, end))

    def upsert(self, data: pa.Table) -> tuple[int, int] | None:
        merge = self._dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        counts = merge.execute(data)
        return counts["num_updated_rows"], counts["num_inserted_rows"]

    def compact(self) -> bool:
        self._dataset.checkout_latest()
        return self._dataset.optimize.compact_files().fragments_removed > 0

    def count(self) -> int:
        return self._dataset.count_rows()

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self._dataset.to_table(columns=list(columns))


EngineType = type[Engine]


def id_range(first: int, end: int) -> str:
    return f"id >= {first} AND id < {end}"


def rows(count: int, start: int = 0) -> pa.Table:
    """Plain rows: a number, a measure, a short text."""
    return numbered(np.arange(start, start + count))


def numbered(ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    """Plain rows with these ids."""
    column = pa.array(ids, pa.int64())
    names = pc.replace_substring_regex(column.cast(pa.string()), "^", "row ")
    return pa.table({"id": column, "amount": pa.array(ids * 0.5, pa.float64()), "name": names}, schema=SCHEMA)


SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.float64()), pa.field("name", pa.string())]
)


def renumbered(data: pa.Table, start: int) -> pa.Table:
    """The same rows with other ids, at next to no cost."""
    ids = pa.array(np.arange(start, start + data.num_rows), pa.int64())
    return data.set_column(0, data.schema.field(0), ids)


def plain(storage: Storage) -> dict[str, str] | None:
    return None if storage is None else dict(storage)


def _with_key(data: pa.Table, key: str) -> pa.Table:
    """Marked as pylance wants it."""
    at = data.schema.get_field_index(key)
    field = data.schema.field(at).with_metadata({"lance-schema:unenforced-primary-key": "true"})
    return data.cast(data.schema.set(at, field))
