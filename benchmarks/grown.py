"""Tables that already have many files, made in one commit and without copying data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.engines import Conroi, ConroiDurable, EngineType, Pylance, rows
from benchmarks.harness import Workspace
from benchmarks.peers import Delta, Iceberg

ROWS_PER_FILE = 100


class Grower:
    """Makes tables of so many files, each in a fresh folder. Lance tables are linked from a template."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._templates: dict[int, Path] = {}

    def grow(self, engine: EngineType, files: int) -> Path:
        """A folder that `engine.open` opens."""
        folder = self._workspace.fresh(f"{engine.name.replace(', ', '-')}-{files}")
        _GROW[engine](self, folder, files)
        return folder

    def lance(self, folder: Path, files: int) -> None:
        """Links to a template."""
        if files not in self._templates:
            template = self._workspace.fresh(f"template-{files}")
            data = rows(files * ROWS_PER_FILE)
            lance.write_dataset(
                data, str(template / "t"), max_rows_per_file=ROWS_PER_FILE, max_rows_per_group=ROWS_PER_FILE
            )
            self._templates[files] = template
        shutil.copytree(self._templates[files] / "t", folder / "t", copy_function=os.link)

    def delta(self, folder: Path, files: int) -> None:
        """Links to one Parquet file, all added in one commit."""
        (folder / "t").mkdir()
        data = rows(ROWS_PER_FILE)
        names = _parquet_files(folder / "t", data, files)
        size = (folder / "t" / names[0]).stat().st_size
        added = [AddAction(name, size, {}, 0, True, f'{{"numRecords": {ROWS_PER_FILE}}}') for name in names]
        create_table_with_add_actions(str(folder / "t"), Schema.from_arrow(data.schema), added, "append", [])

    def iceberg(self, folder: Path, files: int) -> None:
        """The same, through a catalog in SQLite."""
        (folder / "t").mkdir()
        data = rows(ROWS_PER_FILE)
        names = _parquet_files(folder / "t", data, files)
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/t")
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", data.schema)
        table.add_files([f"file://{folder}/t/{name}" for name in names], check_duplicate_files=False)


def _parquet_files(folder: Path, data: pa.Table, files: int) -> list[str]:
    names = [f"{number:05d}.parquet" for number in range(files)]
    pq.write_table(data, folder / names[0])
    for name in names[1:]:
        os.link(folder / names[0], folder / name)
    return names


_GROW: dict[EngineType, Callable[[Grower, Path, int], None]] = {
    Conroi: Grower.lance,
    ConroiDurable: Grower.lance,
    Pylance: Grower.lance,
    Delta: Grower.delta,
    Iceberg: Grower.iceberg,
}
