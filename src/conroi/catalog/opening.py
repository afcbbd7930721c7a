"""Opening a lake, and making a new one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from conroi.catalog.catalog import Catalog
from conroi.catalog.manifest_heads import ManifestHeads
from conroi.catalog.manifest_rows import SCHEMA
from conroi.commit.files import TableFiles
from conroi.commit.loop import commit
from conroi.environment import Environment
from conroi.errors import AlreadyExistsError, InvalidInputError
from conroi.format.naming import ManifestNaming
from conroi.stores.objects import Objects, open_objects
from conroi.stores.versions import FolderVersions
from conroi.verbs.create import DEFAULT_DATA_FORMAT, create

MANIFEST = "__manifest"


def open_catalog(
    uri: str | os.PathLike[str],
    *,
    store: str | None,
    storage_options: Mapping[str, str] | None,
    durable: bool,
    environment: Environment,
) -> tuple[Catalog, TableFiles | None]:
    """The lake at a place, which becomes one if there is none."""
    root = open_objects(uri, storage_options, durable=durable)
    if store is not None:
        raise InvalidInputError("A store for lakes is not there yet.", hint="Leave out store.")
    files = manifest_files(root, storage_options, durable=durable, environment=environment)
    if files.versions.latest() is None:
        _create(files)
    catalog = Catalog(root, ManifestHeads(files), environment, storage_options=storage_options, durable=durable)
    catalog.state()
    return catalog, files


def manifest_files(
    root: Objects, storage_options: Mapping[str, str] | None, *, durable: bool, environment: Environment
) -> TableFiles:
    """The storage of a lake's `__manifest`."""
    objects = open_objects(f"{root.root}/{MANIFEST}", storage_options, durable=durable)
    return TableFiles(objects, FolderVersions(objects, environment=environment), environment)


def _create(files: TableFiles) -> None:
    """Make the table; who comes second uses the first one's."""
    change = create(
        files,
        SCHEMA,
        key=None,
        stable_row_ids=False,
        config=None,
        data_format=DEFAULT_DATA_FORMAT,
        naming=ManifestNaming.V2,
        properties={},
        progress=None,
    )
    with contextlib.suppress(AlreadyExistsError):
        commit(files, change)
