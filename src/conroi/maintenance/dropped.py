"""Folders of tables that were dropped: noted when the last version of the lake that had them is forgotten.

Not every folder in a lake's place that the lake does not know is one: somebody may keep a table of his own there.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote

from conroi.catalog.catalog import Catalog
from conroi.catalog.opening import MANIFEST
from conroi.commit.forked import TREE
from conroi.maintenance.versions import delete_in_batches
from conroi.stores.objects import Objects

_DIR = "_conroi/dropped"


def home_of(catalog: Catalog) -> Objects:
    """Where the lake keeps notes of its own: beside `__manifest`, or in its folder if a store has the history."""
    return catalog.root if catalog.manifest is None else catalog.manifest.objects


def note_dropped(catalog: Catalog, folders: Iterable[str]) -> None:
    """These tables are in no version of the lake any more."""
    for folder in folders:
        if f"/{TREE}/" not in folder and folder != MANIFEST:
            home_of(catalog).put(_path(folder), b"{}")


def dropped_folders(catalog: Catalog) -> list[str]:
    """The folders that were noted."""
    return [unquote(path.rpartition("/")[2]) for path in home_of(catalog).list_names(_DIR)]


def forget_dropped(catalog: Catalog, folder: str) -> None:
    """Nothing is left of it."""
    delete_in_batches(home_of(catalog), [_path(folder)])


def _path(folder: str) -> str:
    return f"{_DIR}/{quote(folder, safe='')}"
