"""Detached versions: built on a version but outside the table's linear history; readers reach them only by number."""

from __future__ import annotations

from conroi.commit.files import TableFiles
from conroi.commit.snapshot import Snapshot
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format.naming import DETACHED_BIT, ManifestNaming


def detached_version(base: Snapshot | None, files: TableFiles) -> int:
    """A unique random number that no version of the linear history can have."""
    if base is None:
        raise InvalidInputError(
            "The first version of a table cannot be a detached one.", table=files.root, hint="Create the table first."
        )
    if base.naming is ManifestNaming.V1:
        raise UnsupportedError(
            "Detached versions need manifest names of the newer kind, which this table does not have.",
            table=files.root,
            hint="Call table.migrate_manifest_names() first.",
        )
    return files.environment.random_u64() | DETACHED_BIT
