"""Tables on instrumented storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conroi.environment import SYSTEM, Environment
from conroi.snapshots.snapshot import TableStorage
from conroi.storage.objects import ObjectInfo, Objects
from conroi.table import Table
from conroi.testing import FaultyObjects, WrappedObjects, call_before
from conroi.versions.folder import FolderVersions, PutNew


def files_on(objects: Objects, *, environment: Environment = SYSTEM, putter: PutNew | None = None) -> TableStorage:
    """The storage of a table whose every request passes through these objects."""
    return TableStorage(objects, FolderVersions(objects, putter, environment), environment)


def table_on(objects: Objects, *, environment: Environment = SYSTEM, putter: PutNew | None = None) -> Table:
    """The table there, at its newest version, opened as a process that has not seen it before."""
    files = files_on(objects, environment=environment, putter=putter)
    return Table(files, files.head())


def interrupted(
    table: Table, work: Callable[[], object], *, at: str = "_transactions/*", verb: str = "put", times: int = 1
) -> Table:
    """The same table as seen by a writer during whose commit a concurrent writer does `work` first.

    By default that is when its work is done and its transaction file is about to be written.
    """
    faulty = FaultyObjects(table._files.objects, [call_before(lambda _: work(), verb, at, times=times)])
    return table_on(faulty, environment=table._files.environment)


class CloudLike(WrappedObjects):
    """A folder that behaves as an object store does: far away, and listed in the order of names."""

    @property
    def is_local(self) -> bool:
        return False

    @property
    def is_listing_ordered(self) -> bool:
        return True

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(sorted(self.inner.list(prefix, after=after), key=lambda info: info.path))

    def list_names(self, prefix: str, *, after: str | None = None) -> Iterator[str]:
        return iter(sorted(self.inner.list_names(prefix, after=after)))
