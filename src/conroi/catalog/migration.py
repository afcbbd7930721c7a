"""Catalog migration: turn a folder whose `__manifest` has no key marker, as older software leaves it, into a lake."""

from __future__ import annotations

import os
from collections.abc import Mapping

from conroi.catalog.manifest_rows import KEY, check_columns, check_is_lake
from conroi.catalog.opening import MANIFEST, manifest_files
from conroi.commit.run import run
from conroi.data.pinned import Pinned
from conroi.environment import SYSTEM, Environment
from conroi.errors import NotFoundError, about
from conroi.stores.objects import open_objects
from conroi.verbs.key import declare_key


def migrate(
    uri: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    environment: Environment = SYSTEM,
) -> int:
    """Mark the names in `__manifest` as its key, after checking that they are unique; returns the resulting version.

    A lake that has the mark is left unchanged. There must be no concurrent writer; a concurrent write makes it fail.
    """
    root = open_objects(uri, storage_options)
    files = manifest_files(root, storage_options, durable=False, environment=environment)
    with about(root.root):
        if files.versions.latest() is None:
            raise NotFoundError(
                f"There is no {MANIFEST} in {root.root}, so there is nothing to migrate.",
                hint="conroi.connect(uri) makes a new lake.",
            )
        head = files.head()
        check_is_lake(head.manifest, root.root)
        done = run(
            files,
            head,
            lambda head: declare_key(Pinned(files, head), KEY),
            {"message": f"mark {KEY} as the key"},
        )
        check_columns(done.snapshot.manifest, root.root)
        return done.snapshot.version
