"""Diagnosis of a lake that may be too damaged to be opened."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from conroi.catalog.catalog import Catalog
from conroi.catalog.manifest_heads import ManifestHeads
from conroi.catalog.opening import manifest_files, open_catalog
from conroi.data.writing import Progress
from conroi.environment import SYSTEM, Environment
from conroi.errors import NotFoundError
from conroi.maintenance.doctor.examining import examine_lake
from conroi.maintenance.doctor.findings import Diagnosis
from conroi.stores.bases import allow_bases as name_bases
from conroi.stores.objects import open_objects


def diagnose(
    uri: str | os.PathLike[str],
    *,
    store: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_bases: Sequence[str] = (),
    fix: bool = False,
    deep: bool = False,
    progress: Progress | None = None,
    environment: Environment = SYSTEM,
) -> Diagnosis:
    """As `conroi.connect(uri).doctor()`, also where connect() fails because of what doctor is to find."""
    if store is not None:
        catalog, _ = open_catalog(
            uri,
            store=store,
            storage_options=storage_options,
            durable=False,
            allow_bases=allow_bases,
            create=False,
            environment=environment,
        )
        return examine_lake(catalog, None, fix=fix, deep=deep, progress=progress)
    root = open_objects(uri, storage_options)
    name_bases(root, allow_bases)
    files = manifest_files(root, storage_options, durable=False, environment=environment)
    if next(iter(files.objects.list_names("")), None) is None:
        raise NotFoundError(
            f"There is no lake at {root.root}.",
            table=root.root,
            hint="Check the path; a lake whose history is in a database needs store=.",
        )
    catalog = Catalog(root, ManifestHeads(files), environment, storage_options=storage_options)
    catalog.manifest = files
    return examine_lake(catalog, files, fix=fix, deep=deep, progress=progress)
