"""Detection of expired versions: a read that fails because its version was garbage-collected raises VersionExpired.

A collector deletes the manifest of a version before any file that only this version needs. So if a read fails and the
manifest no longer exists, the version was collected. If the manifest exists, a missing file is corruption.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from conroi.commit.snapshot import Snapshot
from conroi.environment import utc_time
from conroi.errors import BaseVersionExpired, ConroiError, CorruptionError, NotFoundError, VersionExpired
from conroi.stores.forgotten import collected_at_ns
from conroi.stores.objects import Objects


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
