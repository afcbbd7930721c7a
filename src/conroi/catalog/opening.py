"""Opening a lake, and making a new one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from conroi.catalog.catalog import Catalog, Wrap, unwrapped
from conroi.catalog.manifest_heads import ManifestHeads
from conroi.catalog.manifest_rows import SCHEMA
from conroi.catalog.sql_heads import SqlHeads
from conroi.commit.files import TableFiles
from conroi.commit.loop import commit
from conroi.environment import Environment
from conroi.errors import AlreadyExistsError, InvalidInputError
from conroi.format.naming import ManifestNaming
from conroi.stores.addresses import store_kind
from conroi.stores.lake_marker import mark, marker
from conroi.stores.lake_tables import WrapStore, open_lake_tables, unwrapped_store
from conroi.stores.objects import Objects, open_objects
from conroi.stores.table_keys import full_key
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
    wrap: Wrap = unwrapped,
    wrap_store: WrapStore = unwrapped_store,
) -> tuple[Catalog, TableFiles | None]:
    """The lake at a place, which becomes one if there is none.

    `wrap` puts an instrument around all its files, `wrap_store` around the tables of its database.
    """
    root = wrap(open_objects(uri, storage_options, durable=durable))
    check_marker(root, store)
    if store is not None:
        tables, key = wrap_store(open_lake_tables(store, environment)), full_key(root)
        tables.add_lake(key, key)
        heads = SqlHeads(tables, key, root, environment)
        catalog = Catalog(root, heads, environment, storage_options=storage_options, durable=durable, wrap=wrap)
        catalog.state()
        return catalog, None
    files = manifest_files(root, storage_options, durable=durable, environment=environment, wrap=wrap)
    if files.versions.latest() is None:
        _create(files)
    catalog = Catalog(
        root, ManifestHeads(files), environment, storage_options=storage_options, durable=durable, wrap=wrap
    )
    catalog.manifest = files
    catalog.state()
    return catalog, files


def check_marker(root: Objects, store: str | None) -> None:
    """A lake keeps its history in one place: whoever would look for it in another gets an error, not an empty lake."""
    kept = marker(root)
    if kept is None and store is not None:
        if next(iter(root.list_names(MANIFEST)), None) is not None:
            raise InvalidInputError(
                "This lake keeps its history in its own folder, not in a store.",
                table=root.root,
                hint="Leave out store.",
            )
        kept = mark(root, store_kind(store))
    if kept is not None and (store is None or store_kind(store) != kept):
        raise InvalidInputError(
            f"This lake keeps its history in a {kept} store.",
            table=root.root,
            hint=f'Give its address: conroi.connect(uri, store="{kept}://…").',
        )


def manifest_files(
    root: Objects,
    storage_options: Mapping[str, str] | None,
    *,
    durable: bool,
    environment: Environment,
    wrap: Wrap = unwrapped,
) -> TableFiles:
    """The storage of a lake's `__manifest`."""
    objects = wrap(open_objects(f"{root.root}/{MANIFEST}", storage_options, durable=durable))
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
