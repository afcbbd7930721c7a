"""What the versions of a lake need: on the main branch and on all others, which pins of which tables.

This is the one place that says what is kept. Whatever else comes to need versions or files of a lake adds itself here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial

from conroi.catalog.catalog import Catalog
from conroi.catalog.manifest_rows import load_rows
from conroi.catalog.names import shown
from conroi.catalog.opening import MANIFEST
from conroi.catalog.records import decode_records
from conroi.catalog.rows import Row
from conroi.commit.files import TableFiles
from conroi.commit.forked import branch_folder
from conroi.commit.pins import Pin
from conroi.commit.snapshot import Snapshot, load_snapshot, load_transaction
from conroi.errors import NotFoundError
from conroi.maintenance.versions import Aged, listed_versions
from conroi.refs.branches import MAIN, BranchNames
from conroi.stores.versions import FolderVersions

LAKE_BRANCH = re.compile(r"[^/]+-[0-9a-f]{8}")
"""What pylance calls a branch of a lake."""
AT_ONCE = 16
"""So many requests are under way at the same time."""
MERGES = "__merges"
"""The row of a branch that says which versions of others were merged into it: see conroi.branching.ancestry."""


@dataclass
class Needed:
    """Tables, by their folder in the lake: their names, and the versions of them that are pinned."""

    names: dict[str, str] = field(default_factory=dict[str, str])
    pins: dict[str, set[Pin]] = field(default_factory=dict[str, set[Pin]])
    incarnations: dict[str, str] = field(default_factory=dict[str, str])
    """Which table is in a folder: of several that were there one after the other, the one that was added last."""
    origins: set[str] = field(default_factory=set[str])
    """Folders with older versions of tables that are on branches."""

    def add(self, rows: Iterable[Row]) -> Needed:
        """What these rows pin."""
        for row in rows:
            if not row.is_table or row.location is None:
                continue
            self.names[row.location] = shown(row.object_id)
            self.incarnations[row.location] = row.incarnation
            self.origins |= {folder for folder, _ in row.lineage}
            # On a branch that has not written the table, its version is where the branch found it.
            folder = row.lineage[0][0] if row.is_inherited else row.location
            self.names.setdefault(folder, shown(row.object_id))
            pins = self.pins.setdefault(folder, set())
            if row.pin is not None:
                pins.add(row.pin)
        return self

    @property
    def folders(self) -> list[str]:
        return sorted({*self.names, *self.pins})


def rows_of(files: TableFiles, versions: Sequence[Aged]) -> Iterator[Row]:
    """The rows that these versions of a `__manifest` have: those of the first, and what each next one changed."""
    before = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for aged, snapshot in zip(versions, pool.map(partial(_loaded, files), versions), strict=True):
            if snapshot is None:  # forgotten meanwhile, by another collector
                continue
            transaction = load_transaction(files.objects, snapshot)
            records = None if transaction is None else decode_records(transaction.properties)
            follows = transaction is not None and transaction.read_version == before == aged.version - 1
            if records is None or not follows:
                yield from load_rows(files, snapshot).rows.values()
            else:
                yield from (row for row in records[0].values() if row is not None)
            before = aged.version


def _loaded(files: TableFiles, aged: Aged) -> Snapshot | None:
    try:
        return load_snapshot(files.objects, aged.located)
    except NotFoundError:
        return None


# ------------------------------------------------------------------------------ branches


@dataclass(frozen=True)
class Line:
    """A branch of the lake other than main; all its versions stay for as long as it lives."""

    name: str
    """What pylance calls it."""
    files: TableFiles
    """The storage of its `__manifest`."""
    began_at: frozenset[int]
    """The versions of the main branch at which it began."""

    @cached_property
    def rows(self) -> list[Row]:
        """The rows that any version on the branch has."""
        return list(rows_of(self.files, listed_versions(self.files.objects)))

    @property
    def main_versions(self) -> set[int]:
        """The versions of the main branch that it needs: where it began, and what was merged into it."""
        merged = [row.notes[MAIN] for row in self.rows if row.object_id == MERGES and MAIN in row.notes]
        return {*self.began_at, *map(int, merged)}


def lines_of(catalog: Catalog) -> list[Line]:
    """The branches of the lake; none where a store has the history."""
    main = catalog.main
    if main.manifest is None:
        return []
    found: list[Line] = []
    for branch in BranchNames(main.manifest.objects).all():
        if branch.lance_name is not None:
            objects = main.opened(branch_folder(MANIFEST, branch.lance_name))
            versions = FolderVersions(objects, environment=main.environment)
            began = frozenset(version for folder, version in branch.lineage if folder == MANIFEST)
            found.append(Line(branch.lance_name, TableFiles(objects, versions, main.environment), began))
    return found
