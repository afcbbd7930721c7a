"""Lakes on instrumented storage, and what others do to them past conroi."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import conroi
from conroi.storage.objects import Objects
from conroi.testing import Fault, FaultyObjects, Script, connect_through
from tests.support.instruments import CloudLike


def lake_with(folder: Path, *names: str, store: str | None = None) -> conroi.Lake:
    """A lake with tables of one column and one row, 0."""
    lake = conroi.connect(str(folder), store=store)
    with lake.begin("made") as tx:
        for name in names:
            tx.create_table(name, [{"n": 0}])
    return lake


def faulty(
    uri: str,
    faults: Sequence[Fault],
    *,
    only: str = "",
    is_cloud: bool = False,
    **options: Any,
) -> conroi.Lake:
    """The lake as seen by a client whose requests to a folder that ends with `only` meet these faults."""
    plan = Script(faults)

    def wrap(objects: Objects) -> Objects:
        near = CloudLike(objects) if is_cloud else objects
        return FaultyObjects(near, plan) if objects.root.endswith(only) else near

    return connect_through(uri, wrap, **options)


def cloud(uri: str) -> conroi.Lake:
    """The lake, by the code for object stores."""
    return connect_through(uri, CloudLike)


def path_of(lake: conroi.Lake, name: str) -> str:
    """The folder of a table."""
    return str(lake[name].uri)


def append_by_path(path: str, *rows: int) -> int:
    """What a pylance writer does that knows nothing of the lake; the version it made."""
    return lance.write_dataset(pa.table({"n": list(rows)}), path, mode="append").version


def numbers(data: pa.Table) -> list[int]:
    found: list[Any] = data["n"].to_pylist()
    return sorted(found)


def rows(table: conroi.Table) -> list[int]:
    return numbers(table.to_arrow())


def rows_by_path(path: str, version: int | None = None) -> list[int]:
    return numbers(lance.dataset(path, version=version).to_table())


def settle(lake: conroi.Lake) -> None:
    """Until all that this client published is final."""
    for future in list(lake._catalog.finalizing.values()):  # pyright: ignore[reportPrivateUsage]
        future.result()


def manifests(path: str) -> dict[str, bytes]:
    """All manifests of a table, staged ones included, byte for byte."""
    return {file.name: file.read_bytes() for file in (Path(path) / "_versions").glob("*.manifest*")}


class Dies(Exception):
    """Stands for the death of a process."""


def dies(_request: object) -> None:
    """A hook: nothing that comes after it happens."""
    raise Dies
