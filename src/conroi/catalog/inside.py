"""Detection of lake tables by path: a table folder inside a lake is opened through that lake."""

from __future__ import annotations

import os
from collections.abc import Mapping

from conroi.catalog.opening import MANIFEST
from conroi.stores.lake_marker import MARKER
from conroi.stores.objects import open_objects


def split_inside(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> tuple[str, str, bool] | None:
    """The lake around a table's path, the table's folder in it, and whether the lake has a store; None if none is."""
    root = open_objects(uri, storage_options).root
    parent, _, folder = root.rpartition("/")
    if not parent or parent.endswith("/") or not folder or folder == MANIFEST:
        return None
    around = open_objects(parent, storage_options)
    if around.is_local:  # one request each, and without creating a folder
        has_store = os.path.exists(f"{around.root}/{MARKER}")
        has_manifest = os.path.isdir(f"{around.root}/{MANIFEST}")
    else:
        has_store = around.head(MARKER) is not None
        has_manifest = has_store or next(iter(around.list_names(MANIFEST)), None) is not None
    return (around.root, folder, has_store) if has_store or has_manifest else None
