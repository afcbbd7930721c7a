"""Storage: the bytes of tables and lakes on local disk, in memory and in object stores, and clients of databases.

Here: the storage of a table by its path or URI.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from conroi.storage.cloud import CloudObjects
from conroi.storage.local import LocalObjects
from conroi.storage.location import CloudLocation, parse_location
from conroi.storage.objects import Objects, Reach, plain_objects, reach_of

BUCKETS: dict[tuple[str, str], Callable[[CloudLocation, Reach | None], Objects]] = {}
"""Simulated buckets, by scheme and name: see conroi.testing.simulation."""


def open_objects(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    durable: bool = False,
    reach: Reach | None = None,
) -> Objects:
    """The files of the table at a path or URI.

    `uri` is a local path, `file://…`, `s3://bucket/…`, `gs://bucket/…`, `az://container/…` (or `abfss://…`), or
    `memory://name`. In a URI, odd characters may be percent-encoded, as in pylance.

    `memory://name` is for tests and examples: a folder of this process on the RAM disk where there is one (pylance must
    be able to read it), removed when the process ends; the same name is the same table within the process.

    `durable=True` syncs files and folders on a local disk before a write answers. Object stores always do. `reach` is
    that of the lake or table around it; by default the folder itself, for a branch of a table the table's.

    >>> objects = open_objects("memory://docs")
    >>> objects.put("_versions/1.manifest", b"hello")
    >>> objects.get("_versions/1.manifest")
    b'hello'
    """
    location = parse_location(uri)
    if isinstance(location, CloudLocation):
        bucket = BUCKETS.get((location.scheme, location.authority))
        if bucket is not None:
            return bucket(location, reach)
        return CloudObjects(location, storage_options or {}, reach=reach)
    return LocalObjects(location.folder, durable=durable, storage_options=storage_options, reach=reach)


def opened_below(objects: Objects, folder: str) -> Objects:
    """The files in a folder below these, such as the folder of a branch, with the same reach."""
    durable = bool(getattr(plain_objects(objects), "is_durable", False))
    return open_objects(f"{objects.root}/{folder}", objects.storage_options, durable=durable, reach=reach_of(objects))
