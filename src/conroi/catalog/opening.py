"""Opening a lake, creating one, migrating one, and finding the lake that a path is inside of."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence

from conroi.catalog.catalog import Catalog, Wrap, unwrapped
from conroi.catalog.folders import MARKER, Marker, content_of, mark, mark_again, marker
from conroi.catalog.manifest_rows import KEY, SCHEMA, check_columns, check_is_lake
from conroi.catalog.manifest_store import ManifestStore
from conroi.catalog.replica_store import ReplicaStore
from conroi.catalog.sql_queries import LakeQueries
from conroi.catalog.sql_store import SqlStore
from conroi.catalog.sql_tables import LakeTables, WrapStore, open_lake_tables, unwrapped_store
from conroi.catalog.store import CatalogStore
from conroi.commit.execution import run
from conroi.commit.table_commit import commit
from conroi.data.table_version import TableVersion
from conroi.environment import SYSTEM, Environment
from conroi.errors import AlreadyExistsError, InvalidInputError, NotFoundError, about
from conroi.format.on_disk import LAKE_MANIFEST
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.storage.base_paths import allow_bases as name_bases
from conroi.storage.objects import Objects, reach_of
from conroi.verbs.create import create
from conroi.verbs.key_declaration import declare_key
from conroi.versions import store_kind
from conroi.versions.folder import FolderVersions
from conroi.versions.records import full_key

_log = logging.getLogger(__name__)


def open_catalog(
    uri: str | os.PathLike[str],
    *,
    store: str | None,
    storage_options: Mapping[str, str] | None,
    durable: bool,
    environment: Environment,
    allow_bases: Sequence[str | os.PathLike[str]] | None = None,
    create: bool = True,
    wrap: Wrap = unwrapped,
    wrap_store: WrapStore = unwrapped_store,
) -> tuple[Catalog, TableStorage | None]:
    """The lake at a location, created if there is none; with create=False, NotFoundError.

    `wrap` wraps an instrument around all its files, `wrap_store` around the tables of its database.
    """
    root = wrap(open_objects(uri, storage_options, durable=durable))
    name_bases(root, allow_bases)
    found = marker(root)
    heads: CatalogStore | None = None
    if store is not None:
        if found is None:
            _check_place(root, storage_options, create=create)
        tables = wrap_store(open_lake_tables(store, environment))
        heads = SqlStore(tables, _lake_id(root, found, tables, store_kind(store), environment), root, environment)
    elif found is not None:
        heads = ReplicaStore(root, found, environment)
        _log.warning("%s was opened without its store: it can only be read, and may be one commit behind", root.root)
    if heads is not None:
        catalog = Catalog(root, heads, environment, storage_options=storage_options, durable=durable, wrap=wrap)
        catalog.state()
        return catalog, None
    files = manifest_files(root, storage_options, durable=durable, environment=environment, wrap=wrap)
    if files.versions.latest() is None:
        _check_place(root, storage_options, create=create)
        _create(files)
    catalog = Catalog(
        root, ManifestStore(files), environment, storage_options=storage_options, durable=durable, wrap=wrap
    )
    catalog.manifest = files
    catalog.state()
    return catalog, files


def _check_place(root: Objects, storage_options: Mapping[str, str] | None, *, create: bool) -> None:
    """Before a lake is created: NotFoundError if none may be created, InvalidInputError inside a table or another
    lake.
    """
    if root.is_local and os.path.isfile(root.root):
        raise InvalidInputError(
            f"{root.root} is a file, not a folder.", hint="Give the folder of the lake, or a new path for one."
        )
    if not create:
        raise NotFoundError(
            f"There is no lake at {root.root}.",
            table=root.root,
            hint="Check the path. connect() without create=False makes a lake there.",
        )
    scheme, separator, path = root.root.rpartition("://")
    parts = path.rstrip("/").split("/")
    # The folder itself, then those above it, up to the root of the disk or the bucket.
    for length in range(len(parts), 0 if separator else 1, -1):
        folder = scheme + separator + "/".join(parts[:length])
        there = content_of(root if length == len(parts) else open_objects(folder, storage_options))
        if there == "a lake" and length == len(parts):
            return  # the one that is to be opened, which another process has just made
        if there is not None:
            where = (
                f"The folder {root.root} is"
                if length == len(parts)
                else f"The folder {root.root} is inside {folder}, which is"
            )
            hint = (
                f'Open that lake: conroi.connect("{folder}").'
                if there == "a lake"
                else "Choose another folder; conroi.open_table(path) opens a Lance table that stands alone."
            )
            raise InvalidInputError(f"{where} {there}, so no lake can be created there.", table=root.root, hint=hint)


def _lake_id(root: Objects, found: Marker | None, tables: LakeTables, kind: str, environment: Environment) -> str:
    """The id of the lake in its store, created if the folder has no lake; refused if the two do not belong together."""
    if found is not None and found.history != kind:
        raise _other_store(root, found)
    key = full_key(root)
    if found is None:
        return _new_lake(root, tables, kind, str(environment.new_uuid()))
    if found.lake is None:  # an older conroi made it
        lake = LakeQueries(tables, key).lake_at(key)
        if lake is not None:
            mark_again(root, Marker(kind, lake))
            return lake
    elif LakeQueries(tables, found.lake).head() is not None:
        return found.lake  # whether it is for this folder is looked at with every look at the head
    raise InvalidInputError(
        f"This store does not have the lake, whose history is in a {kind} store.",
        table=root.root,
        hint="Check the address of the store. If this is a copy of a lake, conroi.stores.attach(uri, store) makes it a "
        "lake of its own; without store= it can be read.",
    )


def _new_lake(root: Objects, tables: LakeTables, kind: str, new_id: str) -> str:
    """Create the lake. The database serializes concurrent creators; the work of a crashed creator is completed."""
    if next(iter(root.list_names(LAKE_MANIFEST)), None) is not None:
        raise InvalidInputError(
            "This lake keeps its history in its own folder, not in a store.", table=root.root, hint="Leave out store."
        )
    key = full_key(root)
    tables.add_lake(new_id, key)
    lake = LakeQueries(tables, new_id).lake_at(key)
    assert lake is not None, "it was made just now"
    marked = mark(root, Marker(kind, lake))
    if marked.lake != lake:
        raise _other_store(root, marked)
    return lake


def _other_store(root: Objects, found: Marker) -> InvalidInputError:
    return InvalidInputError(
        f"This lake keeps its history in a {found.history} store, and not in this one.",
        table=root.root,
        hint=f'Give its address: conroi.connect(uri, store="{found.history}://…").',
    )


def manifest_files(
    root: Objects,
    storage_options: Mapping[str, str] | None,
    *,
    durable: bool,
    environment: Environment,
    wrap: Wrap = unwrapped,
) -> TableStorage:
    """The storage of a lake's `__manifest`."""
    objects = wrap(open_objects(f"{root.root}/{LAKE_MANIFEST}", storage_options, durable=durable, reach=reach_of(root)))
    return TableStorage(objects, FolderVersions(objects, environment=environment), environment)


def _create(files: TableStorage) -> None:
    """Create the table; of concurrent creators, the second uses the first one's."""
    with contextlib.suppress(AlreadyExistsError):
        commit(files, create(files, SCHEMA))


def split_inside(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> tuple[str, str, bool] | None:
    """The lake around a table's path, the table's folder in it, and whether the lake has a store; None if none is."""
    root = open_objects(uri, storage_options).root
    parent, _, folder = root.rpartition("/")
    if not parent or parent.endswith("/") or not folder or folder == LAKE_MANIFEST:
        return None
    around = open_objects(parent, storage_options)
    if around.is_local:  # one request each, and without creating a folder
        has_store = os.path.exists(f"{around.root}/{MARKER}")
        has_manifest = os.path.isdir(f"{around.root}/{LAKE_MANIFEST}")
    else:
        has_store = around.head(MARKER) is not None
        has_manifest = has_store or next(iter(around.list_names(LAKE_MANIFEST)), None) is not None
    return (around.root, folder, has_store) if has_store or has_manifest else None


def migrate(
    uri: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    environment: Environment = SYSTEM,
) -> int:
    """Mark the names in `__manifest` as its key, after checking that they are unique; returns the resulting version.

    A lake that has the mark is left unchanged. There must be no concurrent writer; a concurrent write makes it fail.
    """
    root = open_objects(uri, storage_options)
    files = manifest_files(root, storage_options, durable=False, environment=environment)
    with about(root.root):
        if files.versions.latest() is None:
            raise NotFoundError(
                f"There is no {LAKE_MANIFEST} in {root.root}, so there is nothing to migrate.",
                hint="conroi.connect(uri) makes a new lake.",
            )
        head = files.head()
        check_is_lake(head.manifest, root.root)
        done = run(
            files,
            head,
            lambda head: declare_key(TableVersion(files, head), KEY),
            {"message": f"mark {KEY} as the key"},
        )
        check_columns(done.snapshot.manifest, root.root)
        return done.snapshot.version
