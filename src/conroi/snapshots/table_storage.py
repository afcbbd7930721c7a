"""Storage of one table: its files, its version store, its environment; errors for versions that were collected."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from conroi.environment import Environment, utc_time
from conroi.errors import BaseVersionExpired, ConroiError, CorruptionError, NotFoundError, VersionExpired
from conroi.snapshots.snapshot import Snapshot, load_snapshot
from conroi.storage.objects import Objects
from conroi.versions.folder import ManifestRef, VersionStore
from conroi.versions.retention import collected_at_ns

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class TableStorage:
    """Storage of one table: everything that a commit reads or writes."""

    objects: Objects
    versions: VersionStore
    environment: Environment
    is_managed: ClassVar[bool] = False
    """Whether a catalog commits its versions, together with those of other tables."""

    @cached_property
    def _kept(self) -> dict[object, Any]:
        return {}

    def kept(self, kind: Callable[[Environment], Kept]) -> Kept:
        """The one object of this class that belongs to this storage, such as its fairness state."""
        if kind not in self._kept:
            self._kept[kind] = kind(self.environment)
        return self._kept[kind]

    @property
    def root(self) -> str:
        return self.objects.root

    @property
    def name(self) -> str:
        """The table's name in errors: its address, or its name in a lake."""
        return self.root

    @property
    def may_branch(self) -> bool:
        """Whether its versions may be merged with those of a branch, where the same field id may mean another field.

        The next field id is the same on every branch, and the id of a dropped column is assigned again.
        """
        return False

    def refuse_past(self) -> None:
        """InvalidInputError if this is a table of a past lake version, which is read-only."""

    def current(self) -> TableStorage:
        """The storage of the table at its newest state."""
        return self

    def holding(self, snapshot: Snapshot) -> TableStorage:  # noqa: ARG002 (a table of a lake may go on in another folder)
        """The storage that has this version of the table."""
        return self

    def head(self) -> Snapshot:
        """The newest version, loaded."""
        located = self.versions.latest()
        if located is None:
            raise NotFoundError(
                f"There is no Lance table at {self.root}.",
                table=self.root,
                hint="Check the path, or make the table with conroi.create_table(uri, schema_or_data).",
            )
        return self._loaded(located)

    def newest(self, known: Snapshot) -> Snapshot:
        """The newest version; `known` itself, without reading it again, if it still is the newest."""
        located = self.versions.latest()
        if located is None or located.version < known.version:
            return self.head()
        is_same = located == known.located and located.stamp == known.located.stamp
        return known if is_same else self._loaded(located)

    def _loaded(self, located: ManifestRef) -> Snapshot:
        """This version, without reading it again if it is the last one of this process and its file is unchanged."""
        last: Snapshot | None = self._kept.get(Snapshot)
        if last is None or located != last.located or located.stamp != last.located.stamp:
            last = load_snapshot(self.objects, located)
            self.remember(last)
        return last

    def remember(self, snapshot: Snapshot) -> None:
        """Keep this version, which was committed or read just now; only where its stamp shows a change of its file."""
        if snapshot.located.stamp:
            self._kept[Snapshot] = snapshot


@contextmanager
def version_in_use(objects: Objects, snapshot: Snapshot | None, *, is_base: bool = False) -> Generator[None]:
    """Context manager around reads of a version: VersionExpired if the version was collected meanwhile.

    `is_base`: a transaction or a verb started from it, so the work can be done again on a newer version.
    """
    try:
        yield
    except BaseVersionExpired:
        raise
    except VersionExpired as error:
        if not is_base:
            raise
        raise expired(objects, error.version, is_base=True, table=error.table) from error
    except (CorruptionError, NotFoundError) as error:
        if snapshot is None or is_there(objects, snapshot):
            raise
        raise expired(objects, snapshot.version, is_base=is_base, table=error.table) from error


def is_there(objects: Objects, snapshot: Snapshot) -> bool:
    """Whether the version's manifest still exists, under its final or its staged name."""
    paths = {snapshot.located.path, snapshot.naming.path(snapshot.version)}
    return any(objects.head(path) is not None for path in sorted(paths))


def expired(
    objects: Objects, version: int | None, *, is_base: bool = False, table: str | None = None
) -> VersionExpired:
    """The error for an expired version."""
    try:
        moment_ns = None if version is None else collected_at_ns(objects, version)
    except ConroiError:  # only the time is lost by that
        moment_ns = None
    moment = None if moment_ns is None else utc_time(moment_ns)
    when = "" if moment is None else f", at {moment:%Y-%m-%d %H:%M:%S} UTC at the latest"
    what = "The version" if version is None else f"Version {version}"
    if is_base:
        return BaseVersionExpired(
            f"{what}, on which this work was begun, was collected as an old version{when}.",
            table=table or objects.root,
            version=version,
            base_version=version,
            collected_at=moment,
            hint="Do the work again on the newest version: lake.run(function) and conroi.retry do that. "
            'lake.begin(keep="1h") keeps the version for as long as the work takes.',
        )
    return VersionExpired(
        f"{what} was collected as an old version{when}.",
        table=table or objects.root,
        version=version,
        collected_at=moment,
        hint="Open a newer version: latest() gives the newest, versions() lists all. To hold a version for "
        'long, tag it, or open it with at(version, keep="1h").',
    )
