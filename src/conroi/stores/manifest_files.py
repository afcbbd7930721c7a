"""Read-only access to the manifest files in a table's `_versions` folder."""

from __future__ import annotations

from collections.abc import Iterator

from conroi.format.naming import VERSIONS_DIR
from conroi.stores.listed import TREE_DIR
from conroi.stores.objects import ObjectInfo, Objects


def manifest_files(objects: Objects) -> Iterator[ObjectInfo]:
    """All files in that folder, staged and temporary ones included."""
    return objects.list(VERSIONS_DIR)


def manifest_name(path: str) -> str | None:
    """The name of a file that is in that folder; None if it is elsewhere."""
    folder, _, name = path.rpartition("/")
    return name if folder == VERSIONS_DIR else None


def is_in_manifest_folder(path: str) -> bool:
    """Whether a file is in that folder of a table, or of a branch below it."""
    return f"/{VERSIONS_DIR}/" in f"/{path}"


def branch_folders(objects: Objects) -> set[str]:
    """The branches below a table, as pylance keeps them: each has such a folder of its own."""
    inner = f"/{VERSIONS_DIR}/"
    return {path.partition(inner)[0] for path in objects.list_names(TREE_DIR) if inner in path}
