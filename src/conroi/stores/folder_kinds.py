"""Folder detection: whether a folder is a lake, or a table of Lance, Delta, Iceberg or Hudi, by its files."""

from __future__ import annotations

import contextlib
import itertools
import os

from conroi.format.naming import VERSIONS_DIR
from conroi.stores.lake_marker import MARKER
from conroi.stores.objects import Objects

MANIFEST = "__manifest"
"""The table of a lake that lists its tables."""
_TABLE_FOLDERS = {VERSIONS_DIR: "a Lance table", "_delta_log": "a Delta table", ".hoodie": "a Hudi table"}
_ICEBERG_FOLDER, _ICEBERG_METADATA = "metadata", ".metadata.json"
_LOOKED_AT = 1000
"""So many files of a folder `metadata` are looked at."""


def content_of(folder: Objects) -> str | None:
    """What kind of table or lake a folder is; None if it is none."""
    if folder.is_local:
        path = folder.root
        if any(os.path.exists(f"{path}/{name}") for name in (MANIFEST, MARKER)):
            return "a lake"
        for name, kind in _TABLE_FOLDERS.items():
            if os.path.isdir(f"{path}/{name}"):
                return kind
        with contextlib.suppress(OSError):
            if any(name.endswith(_ICEBERG_METADATA) for name in os.listdir(f"{path}/{_ICEBERG_FOLDER}")):
                return "an Iceberg table"
        return None
    if folder.head(MARKER) is not None or _has(folder, MANIFEST):
        return "a lake"
    for name, kind in _TABLE_FOLDERS.items():
        if _has(folder, name):
            return kind
    names = itertools.islice(folder.list_names(_ICEBERG_FOLDER), _LOOKED_AT)
    return "an Iceberg table" if any(name.endswith(_ICEBERG_METADATA) for name in names) else None


def _has(folder: Objects, name: str) -> bool:
    return next(iter(folder.list_names(name)), None) is not None
