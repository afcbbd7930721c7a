"""Where a new table goes."""

from __future__ import annotations

import hashlib

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import folder_name
from conroi.commit.forked import branch_folder


def new_location(catalog: Catalog, object_id: str) -> str:
    """The folder for a new table: named like it if that is free, else one that never was used before.

    A table that is dropped and made again gets another folder, so that a writer of the old one that was stalled can
    touch nothing of the new one.
    """
    plain = f"{object_id}.lance"
    if catalog.branch is not None:  # nobody on another branch may choose the same
        return branch_folder(_unused(catalog, object_id), catalog.branch)
    # Of names that are not fit for a folder, two could get the same one.
    if folder_name(object_id) == object_id and next(iter(catalog.objects(plain).list_names("")), None) is None:
        return plain
    return _unused(catalog, object_id)


def _unused(catalog: Catalog, object_id: str) -> str:
    uuid = catalog.environment.new_uuid()
    digest = hashlib.sha256(uuid.bytes).hexdigest()[:8]
    return f"{digest}_{folder_name(object_id)}"
