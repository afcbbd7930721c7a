"""Clients of a lake's namespace, and namespaces with something up their sleeve."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pyarrow as pa

import conroi
from conroi.lake_snapshot import LakeReader
from conroi.namespace import ConroiNamespace
from conroi.namespace.requests import Request
from tests.support.arrow import column_values

NAME = "conroi.catalog.namespace.ConroiNamespace"


def rows(*ids: int, key: bool = False) -> pa.Table:
    """Rows of a table with one column."""
    return pa.table({"id": pa.array(ids, pa.int64())}, schema=pa.schema([pa.field("id", pa.int64(), nullable=not key)]))


def new_lake(tmp_path: Path, *tables: str, key: str | None = None) -> conroi.Lake:
    """A lake with these tables, of one row each: 1."""
    lake = conroi.connect(tmp_path / "lake")
    for table in tables:
        lake.create_table(table, rows(1), key=key)
    return lake


def ids(lake: LakeReader, table: str) -> list[int]:
    """What a table of the lake has, in order."""
    return sorted(column_values(lake[table].to_arrow()["id"]))


def opened(namespace: ln.LanceNamespace, *table_id: str, version: int | None = None) -> lance.LanceDataset:
    """pylance's handle on a table, through a namespace."""
    return lance.dataset(namespace_client=namespace, table_id=list(table_id), version=version)


def ids_of(dataset: lance.LanceDataset) -> list[int]:
    return sorted(column_values(dataset.to_table()["id"]))


def append(namespace: ln.LanceNamespace, data: pa.Table, *table_id: str) -> lance.LanceDataset:
    """pylance appends, through a namespace."""
    return lance.write_dataset(data, namespace_client=namespace, table_id=list(table_id), mode="append")


def elsewhere(work: Callable[[], object]) -> None:
    """In a thread of ours: pylance cannot be called from the threads in which it calls us."""
    with ThreadPoolExecutor(1) as one:
        one.submit(work).result()


class Rivalled(ConroiNamespace):
    """A namespace where a concurrent writer wins the race `times` times."""

    def __init__(self, lake: conroi.Lake, rival: Callable[[], object], times: int = 1) -> None:
        super().__init__(lake)
        self._rival = rival
        self._left = times
        self.asked: list[int] = []

    def create_table_version(self, request: ln.CreateTableVersionRequest) -> ln.CreateTableVersionResponse:
        self.asked.append(Request(request).number("version") or 0)
        if self._left:
            self._left -= 1
            elsewhere(self._rival)
        return super().create_table_version(request)


class Careless(Rivalled):
    """The control: it gives the manifest its final name without asking whether that is free."""

    def create_table_version(self, request: ln.CreateTableVersionRequest) -> ln.CreateTableVersionResponse:
        elsewhere(self._rival)
        staged = "/" + (Request(request).text("manifest_path") or "")
        final = staged[: staged.rindex(".manifest")] + ".manifest"
        os.replace(staged, final)
        version = Request(request).number("version") or 0
        return ln.CreateTableVersionResponse(version=ln.TableVersion(version=version, manifest_path=final[1:]))


class Keeping(ConroiNamespace):
    """A namespace that publishes nothing and keeps what it was asked for: manifests that pylance staged."""

    def __init__(self, lake: conroi.Lake) -> None:
        super().__init__(lake)
        self.kept: list[dict[str, Any]] = []

    def create_table_version(self, request: ln.CreateTableVersionRequest) -> ln.CreateTableVersionResponse:
        asked = Request(request)
        names = ("id", "version", "manifest_path", "naming_scheme")
        self.kept.append({name: asked.get(name) for name in names})
        raise ln.ServiceUnavailableError("kept, not published")


def staged(lake: conroi.Lake, *table_id: str, data: pa.Table | None = None) -> dict[str, Any]:
    """The request for a version that pylance staged by an append, and that is not published yet."""
    keeping = Keeping(lake)
    try:
        append(keeping, rows(7) if data is None else data, *table_id)
    except OSError:  # pylance does not know what became of it
        return keeping.kept[0]
    raise AssertionError("it was published")


def versions_of(lake: conroi.Lake, tables: Sequence[str]) -> dict[str, int]:
    return {table: lake[table].version for table in tables}
