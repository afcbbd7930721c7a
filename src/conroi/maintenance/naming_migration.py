"""Migration of manifest names from scheme V1, `7.manifest`, to scheme V2, in which a listing returns the newest first.

Manifests are renamed newest first. An interrupted migration leaves the newest versions under V2 names and the older
ones under V1 names. In that state every way to find the newest version still works: by number, by the hint, by the
largest number of a listing, by the first name of a listing. Running the migration again completes it.

There must be no concurrent writers: a writer that still uses V1 names would not see the V2 names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from conroi.errors import CorruptionError, TooMuchContention
from conroi.format.naming import ManifestNaming, parse_manifest_name
from conroi.format.on_disk import VERSIONS_DIR
from conroi.snapshots.snapshot import TableStorage
from conroi.storage.objects import ObjectExists

_log = logging.getLogger(__name__)

ROUNDS = 3
"""Maximum number of passes over the folder, for manifests that were written under V1 names during the migration."""


def migrate_manifest_names(files: TableStorage) -> int:
    """Rename every manifest to scheme V2; returns how many were renamed."""
    renamed = 0
    for _ in range(ROUNDS):
        old = sorted(_old_versions(files), reverse=True)
        if not old:
            _remember_newest(files)
            return renamed
        for version in old:
            _rename(files, version)
        renamed += len(old)
        _log.info("%s: %d manifests renamed", files.root, len(old))
    raise TooMuchContention(
        "Other writers keep writing versions under the old names.",
        table=files.root,
        hint="Stop all writers of the table, then run migrate_manifest_names() again; nothing was lost.",
        attempts=ROUNDS,
    )


def _remember_newest(files: TableStorage) -> None:
    found = files.versions.all()
    if found:
        files.versions.saw(found[-1])


def _old_versions(files: TableStorage) -> Iterator[int]:
    for path in files.objects.list_names(VERSIONS_DIR):
        parsed = parse_manifest_name(path.rpartition("/")[2])
        if parsed is not None and parsed.naming is ManifestNaming.V1:
            yield parsed.version


def _rename(files: TableStorage, version: int) -> None:
    old, new = ManifestNaming.V1.path(version), ManifestNaming.V2.path(version)
    try:
        files.objects.rename_if_absent(old, new)
    except ObjectExists:
        # An earlier run was stopped between giving the new name and taking the old one, or two writers made a version.
        if files.objects.get(old) != files.objects.get(new):
            raise CorruptionError(
                f"There are two different manifests of version {version}, {old} and {new}.",
                table=files.root,
                version=version,
                hint="A client wrote during a migration. Keep the one whose rows you want, move the other one out of "
                "the folder, and run migrate_manifest_names() again.",
            ) from None
        files.objects.delete([old])
