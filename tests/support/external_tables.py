"""Tables under a store, on instrumented storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lance

import conroi
from conroi.environment import SYSTEM
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.table import Table
from conroi.testing import Fault, FaultyObjects, FaultyRecords
from conroi.versions import open_records
from conroi.versions.external import ExternalVersions
from tests.support.arrow import column_values
from tests.support.instruments import CloudLike


def rows(table: conroi.Table) -> list[int]:
    """What is in the one column."""
    found: list[Any] = table.to_arrow()["row"].to_pylist()
    return sorted(found)


def rows_by_pylance(uri: str | Path, options: Mapping[str, str] | None = None) -> tuple[int, list[int]]:
    """Version and rows for a reader that does not know the store."""
    dataset = lance.dataset(str(uri), storage_options=None if options is None else dict(options))
    return dataset.version, sorted(column_values(dataset.to_table()["row"]))


def staged_files(uri: str | Path) -> list[str]:
    """The staged manifests that are there."""
    return [file.name for file in (Path(uri) / "_versions").iterdir() if ".manifest-" in file.name]


def faulty_table(
    uri: str | Path,
    store: str,
    at_storage: Sequence[Fault] = (),
    at_store: Sequence[Fault] = (),
    *,
    is_cloud: bool = True,
) -> tuple[Table, FaultyObjects, FaultyRecords]:
    """The table, opened as it is, by the code for object stores; the faults begin with what is done next."""
    storage = open_objects(uri)
    objects = FaultyObjects(CloudLike(storage) if is_cloud else storage, [])
    records = FaultyRecords(open_records(store))
    files = TableStorage(objects, ExternalVersions(objects, records), SYSTEM)
    table = Table(files, files.head())
    objects.plan, records.plan = FaultyObjects(objects, at_storage).plan, FaultyRecords(records, at_store).plan
    return table, objects, records
