"""Serialized table version for executors: its manifest, not its number."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format.json import parse_object
from conroi.format.manifest import Manifest
from conroi.format.naming import ManifestNaming
from conroi.storage.cloud_options import StorageOptions

if TYPE_CHECKING:
    from conroi.data.table_version import TableVersion
    from conroi.storage.objects import Objects


@dataclass(frozen=True)
class Place:
    """The location of a table's files, for another process."""

    uri: str
    storage_options: StorageOptions
    durable: bool = False
    reach: tuple[str, ...] = ()
    """The root of the lake or table, and the bases that the caller allowed."""

    @staticmethod
    def of(objects: Objects) -> Place:
        """Where these files are."""
        from conroi.storage.objects import reach_of

        options = StorageOptions(objects.storage_options)
        reach = reach_of(objects)
        durable = bool(getattr(objects, "is_durable", False))
        return Place(objects.root, options, durable, (reach.root, *sorted(reach.bases)))

    def objects(self) -> Objects:
        """The files themselves."""
        from conroi.storage import open_objects
        from conroi.storage.objects import Reach

        reach = Reach(self.reach[0], set(self.reach[1:])) if self.reach else None
        return open_objects(self.uri, self.storage_options, durable=self.durable, reach=reach)


@dataclass(frozen=True)
class PinnedVersion:
    """One complete version of a table: reading it needs no look-up."""

    place: Place
    manifest: bytes
    path: str
    naming: str
    is_final: bool
    is_private: bool

    @staticmethod
    def of(pinned: TableVersion) -> PinnedVersion:
        """The version that this table is pinned at."""
        from conroi.data.admission import admit
        from conroi.data.pylance import has_sections, require_known_flags, rows_in_file

        snapshot = pinned.snapshot
        require_known_flags(snapshot.manifest.head, pinned.root)
        admit(pinned.files.objects, snapshot, rows_in_file)
        return PinnedVersion(
            place=Place.of(pinned.files.objects),
            manifest=snapshot.manifest.message,
            path=snapshot.located.path,
            naming=snapshot.naming.name,
            is_final=has_sections(pinned.files.objects, snapshot),
            is_private=snapshot.is_private,
        )

    def with_storage_options(self, options: StorageOptions) -> PinnedVersion:
        """The same, reached in another way: without credentials, or with them again."""
        return replace(self, place=replace(self.place, storage_options=options))

    def opened(self) -> TableVersion:
        """The table at this version; opened once in a process."""
        return _opened(self)

    def contents(self) -> Manifest:
        """Its columns and fragments: all that planning needs, without the storage and without pylance."""
        return Manifest(self.manifest)

    def __hash__(self) -> int:
        return hash((self.place.uri, self.path, self.manifest))

    # ------------------------------------------------------------------------ as text, for an option of Spark

    def to_text(self) -> str:
        """All of it as one line."""
        facts = {
            "uri": self.place.uri,
            "storage_options": dict(self.place.storage_options),
            "durable": self.place.durable,
            "reach": list(self.place.reach),
            "path": self.path,
            "naming": self.naming,
            "is_final": self.is_final,
            "is_private": self.is_private,
        }
        return base64.b64encode(zlib.compress(json.dumps(facts).encode() + b"\n" + self.manifest, 1)).decode()

    @staticmethod
    def from_text(text: str) -> PinnedVersion:
        """The same, read again."""
        try:
            front, _, manifest = zlib.decompress(base64.b64decode(text)).partition(b"\n")
            facts = parse_object(front, "The pinned version")
            return PinnedVersion(
                place=Place(
                    str(facts["uri"]),
                    StorageOptions(facts["storage_options"]),
                    bool(facts["durable"]),
                    tuple(map(str, facts["reach"])),
                ),
                manifest=manifest,
                path=str(facts["path"]),
                naming=ManifestNaming[str(facts["naming"])].name,
                is_final=bool(facts["is_final"]),
                is_private=bool(facts["is_private"]),
            )
        except (ValueError, KeyError, TypeError, zlib.error, CorruptionError):
            raise InvalidInputError(
                "The pinned version that Spark handed over is damaged.",
                hint="The options that begin with conroi. are set by conroi itself: leave them out.",
            ) from None


@lru_cache(maxsize=8)  # a long-lived process sees many versions
def _opened(version: PinnedVersion) -> TableVersion:
    from conroi.data.table_version import TableVersion
    from conroi.environment import SYSTEM
    from conroi.snapshots.snapshot import Snapshot, TableStorage
    from conroi.versions.folder import FolderVersions, ManifestRef

    objects = version.place.objects()
    naming = ManifestNaming[version.naming]
    manifest = Manifest(version.manifest)
    snapshot = Snapshot(
        manifest,
        ManifestRef(manifest.version, version.path, naming),
        is_final=version.is_final,
        is_private=version.is_private,
        is_admitted=True,
    )
    return TableVersion(TableStorage(objects, FolderVersions(objects, None, SYSTEM), SYSTEM), snapshot)
