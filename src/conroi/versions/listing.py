"""Listings: all files below one place, listed once, and which of them are manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from conroi.errors import CorruptionError
from conroi.format.naming import parse_manifest_name, parse_staged_name
from conroi.format.on_disk import (
    DATA_DIR,
    DELETIONS_DIR,
    INDICES_DIR,
    TEMPORARY_PREFIX,
    TRANSACTIONS_DIR,
    TREE_DIR,
    VERSION_HINT_PATH,
    VERSIONS_DIR,
)
from conroi.storage.local import LocalObjects
from conroi.storage.objects import ObjectInfo, Objects, plain_objects
from conroi.versions.folder import ManifestRef

CONTENT_DIRS = (DATA_DIR, DELETIONS_DIR, INDICES_DIR, TRANSACTIONS_DIR)
"""The folders of all files that manifests reference."""


class Listed:
    """The files of one table, by their path below its root, as they were a moment ago."""

    def __init__(self, files: Mapping[str, ObjectInfo]) -> None:
        self.files = files

    @cached_property
    def manifests(self) -> dict[int, list[ManifestRef]]:
        """Every version under its final name; under two names if a renaming was interrupted."""
        found: dict[int, list[ManifestRef]] = {}
        for name, path in self._names:
            parsed = parse_manifest_name(name)
            if parsed is not None and not parsed.is_detached:
                found.setdefault(parsed.version, []).append(ManifestRef(parsed.version, path, parsed.naming))
        return found

    @cached_property
    def detached(self) -> list[ManifestRef]:
        """Detached versions."""
        parsed = [(parse_manifest_name(name), path) for name, path in self._names]
        return [ManifestRef(found.version, path, found.naming) for found, path in parsed if found and found.is_detached]

    @cached_property
    def staged(self) -> dict[str, int]:
        """Staged manifests: their paths, and their version numbers."""
        parsed = [(parse_staged_name(name), path) for name, path in self._names]
        return {path: found[0].version for found, path in parsed if found is not None}

    @property
    def hint(self) -> str | None:
        """The path of the version hint file, if there is one."""
        return VERSION_HINT_PATH if VERSION_HINT_PATH in self.files else None

    @cached_property
    def branches(self) -> list[str]:
        """The branches that have a version, as folders below the table's root."""
        inner = f"/{VERSIONS_DIR}/"
        return sorted({path.partition(inner)[0] for path in self.files if _is_in(path, TREE_DIR) and inner in path})

    @cached_property
    def temporary(self) -> list[str]:
        """Files that are being written, or were never finished."""
        return sorted(path for path in self.files if path.rpartition("/")[2].startswith(TEMPORARY_PREFIX))

    @cached_property
    def contents(self) -> list[str]:
        """Data, deletions, indices and transactions: garbage if no manifest references them."""
        return [path for path in self.files if path.partition("/")[0] in CONTENT_DIRS]

    @cached_property
    def _names(self) -> list[tuple[str, str]]:
        """The files of the folder of manifests, by name and by path."""
        parts = ((path.rpartition("/"), path) for path in self.files)
        return [(name, path) for (folder, _, name), path in parts if folder == VERSIONS_DIR]


class Folders:
    """Everything below one root, from one listing."""

    def __init__(self, root: Objects) -> None:
        self.root = root.root
        self._by_folder: dict[str, list[ObjectInfo]] = {}
        self.count = 0
        self.irregular: dict[str, str] = {}
        """On a local disk, by path: links, FIFOs, devices; all other code refuses them."""
        plain = plain_objects(root)
        try:
            listing = list(root.list(""))
        except CorruptionError:
            if not isinstance(plain, LocalObjects):
                raise
            listing, self.irregular = plain.regular()
        for info in listing:
            self.count += 1
            folder, slash, _ = info.path.partition("/")
            self._by_folder.setdefault(folder if slash else "", []).append(info)

    @property
    def names(self) -> list[str]:
        """The folders right below the root."""
        return sorted(name for name in self._by_folder if name)

    @property
    def loose(self) -> list[str]:
        """The files that are in no folder."""
        return [info.path for info in self._by_folder.get("", [])]

    def at(self, location: str) -> Listed:
        """The files of the table in this folder; of the root itself if it is ''."""
        if not location:
            return Listed({info.path: info for infos in self._by_folder.values() for info in infos})
        start = f"{location}/"
        infos = self._by_folder.get(location.partition("/")[0], [])
        return Listed({info.path[len(start) :]: info for info in infos if info.path.startswith(start)})

    def size_of(self, folder: str) -> int:
        """How many bytes are in a folder right below the root."""
        return sum(info.size for info in self._by_folder.get(folder, []))

    def newest_in(self, folder: str) -> int:
        """When something in a folder right below the root was last written, in nanoseconds since 1970."""
        return max((info.modified_ns for info in self._by_folder.get(folder, [])), default=0)


def listed_contents(objects: Objects, *, is_table: bool) -> Listed:
    """The files at a place outside, where a table has some of its own: a whole table, or a plain folder."""
    folders = CONTENT_DIRS[:3] if is_table else ("",)
    return Listed({info.path: info for folder in folders for info in objects.list(folder)})


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


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
