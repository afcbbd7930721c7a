"""Location of a table or a lake: a path, found to be a lake, a table inside one, or a standalone table; pickles.

A pickle of a lake or a table is its location and version, and the other process opens it again. It never contains
credentials: storage options other than region and endpoint come from the environment of the process that opens it.
Pickling fails for a lake or table that cannot be opened again without a secret, or that would lose a lock that makes
commits safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conroi.branches.lake_ref import LakeRef
from conroi.catalog.catalog import Catalog
from conroi.catalog.manifest_store import ManifestStore
from conroi.catalog.names import object_id
from conroi.catalog.opening import open_catalog, split_inside
from conroi.catalog.replica_store import ReplicaStore
from conroi.catalog.rows import table_of
from conroi.catalog.tables import LakeTableStorage
from conroi.environment import SYSTEM, Environment
from conroi.errors import AlreadyExistsError, InvalidInputError, NotFoundError, UnsupportedError, about
from conroi.format.naming import is_detached
from conroi.history import find
from conroi.inserts import locks_of
from conroi.inserts.insert_locks import checked_address
from conroi.snapshots.branch_names import MAIN
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.storage import open_objects
from conroi.storage.base_paths import allow_bases as name_bases
from conroi.versions import open_records, split_uri
from conroi.versions.external import ExternalVersions
from conroi.versions.folder import CommitLock, ConditionalPut, FolderVersions, LockedPut, Put, PutNew, RenameIfAbsent
from conroi.versions.records import RecordStore

Uri = str | os.PathLike[str]
Store = str | RecordStore
Bases = Sequence[str | os.PathLike[str]]


def open_lake(
    uri: Uri,
    *,
    store: str | None = None,
    locks: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durable: bool = False,
    branch: str | None = None,
    allow_bases: Bases | None = None,
    create: bool = True,
    environment: Environment = SYSTEM,
) -> LakeRef:
    """The lake at a path, or a branch of it: see connect()."""
    checked_address(locks)
    catalog, manifest = open_catalog(
        uri,
        store=store,
        storage_options=storage_options,
        durable=durable,
        allow_bases=allow_bases,
        create=create and branch in (None, MAIN),  # a new lake has no other branch
        environment=environment,
    )
    locks_of(catalog, locks)
    lake = LakeRef(catalog, manifest)
    return lake if branch is None else lake.branch(branch)


def table_storage(
    uri: Uri,
    *,
    store: Store | None = None,
    storage_options: Mapping[str, str] | None = None,
    durable: bool = False,
    commit_lock: CommitLock | None = None,
    put: Put = "conditional",
    environment: Environment = SYSTEM,
    branch: str | None = None,
    allow_bases: Bases | None = None,
) -> TableStorage:
    """The storage of one table; of a table in a lake, through that lake."""
    lake = lake_around(
        uri,
        store=store,
        storage_options=storage_options,
        durable=durable,
        allow_bases=allow_bases,
        environment=environment,
    )
    if branch is not None:
        lake = _on_branch(lake, branch, uri)
    inside = None if lake is None else lake[0].storage_in(lake[1])
    if inside is not None:
        refuse_lake_commit(uri, commit_lock, put)
        return inside
    uri, store = split_uri(uri, store)
    objects = open_objects(uri, storage_options, durable=durable)
    name_bases(objects, allow_bases)
    if put not in ("conditional", "rename"):
        raise InvalidInputError(f"put={put!r} is not known.", hint='Give "conditional" or "rename".')
    putter: PutNew | None = None if put == "conditional" else RenameIfAbsent(environment)
    if commit_lock is not None:
        putter = LockedPut(commit_lock)
    if store is not None:
        records = open_records(store, storage_options)
        return TableStorage(objects, ExternalVersions(objects, records, putter, environment), environment)
    return TableStorage(objects, FolderVersions(objects, putter, environment), environment)


def _on_branch(lake: tuple[LakeRef, str] | None, branch: str, uri: Uri) -> tuple[LakeRef, str]:
    found = None if lake is None else lake[0].branch(branch)
    if lake is None or found is None or found.storage_in(lake[1]) is None:
        raise NotFoundError(
            f"There is no table of a lake with a branch {branch!r} at this path.",
            table=os.fspath(uri),
            hint="Give the path of a table inside a lake, or use conroi.connect(uri, branch=…)[name].",
        )
    return found, lake[1]


def lake_around(
    uri: Uri,
    *,
    store: Store | None = None,
    storage_options: Mapping[str, str] | None = None,
    durable: bool = False,
    allow_bases: Bases | None = None,
    environment: Environment = SYSTEM,
) -> tuple[LakeRef, str] | None:
    """The lake that contains a path, and the folder in it; None if the parent folder is not a lake."""
    if isinstance(uri, str) and uri.lower().startswith("s3+ddb://"):
        return None
    found = split_inside(uri, storage_options)
    if found is None:
        return _branch_around(
            uri,
            store=store,
            storage_options=storage_options,
            durable=durable,
            allow_bases=allow_bases,
            environment=environment,
        )
    root, folder, has_store = found
    if has_store and not isinstance(store, str | None):
        raise InvalidInputError(
            "This table belongs to a lake, which keeps its history in a store.",
            table=os.fspath(uri),
            hint="Give the address of the lake's store.",
        )
    if store is not None and not has_store:
        return None  # a store of the table's own
    address = store if isinstance(store, str) else None
    lake = open_lake(
        root,
        store=address,
        storage_options=storage_options,
        durable=durable,
        allow_bases=allow_bases,
        environment=environment,
    )
    return lake, folder


def _branch_around(uri: Uri, **settings: Any) -> tuple[LakeRef, str] | None:
    """The lake branch that contains a path: the folder of a table on a branch is below that of the table."""
    path = os.fspath(uri).rstrip("/")
    table = table_of(path)
    found = None if table == path else lake_around(table, **settings)
    if found is None:
        return None
    name = path.rpartition("/")[2]
    branches = {branch.lance_name: branch.name for branch in found[0].branched().names.all()}
    return (found[0].branch(branches[name]), found[1]) if name in branches else None


def clone_target(
    uri: Uri,
    *,
    deep: bool,
    store: Store | None,
    storage_options: Mapping[str, str] | None,
    durable: bool,
    commit_lock: CommitLock | None,
    put: Put,
    environment: Environment,
) -> tuple[TableStorage, tuple[Catalog, str, str] | None]:
    """The location for a clone; in the folder of a lake also the lake, and how to register it."""
    found = lake_around(uri, store=store, storage_options=storage_options, durable=durable, environment=environment)
    if found is None:
        files = table_storage(
            uri,
            store=store,
            storage_options=storage_options,
            durable=durable,
            commit_lock=commit_lock,
            put=put,
            environment=environment,
        )
        return files, None
    lake, folder = found
    name = folder.removesuffix(".lance")
    if lake.state().table(object_id(name)) is not None or lake.storage_in(folder) is not None:
        raise AlreadyExistsError(f"The lake has a table {name!r} already.", table=name, hint="Choose another name.")
    if not deep:
        raise UnsupportedError(
            "A lake accepts no shallow clones: its garbage collection does not see which files they need.",
            table=os.fspath(uri),
            hint="Use deep=True; or lake.branches for a copy that shares files.",
        )
    refuse_lake_commit(uri, commit_lock, put)
    objects = open_objects(uri, storage_options, durable=durable)
    return TableStorage(objects, FolderVersions(objects, None, environment), environment), (lake.catalog, name, folder)


def refuse_lake_commit(uri: Uri, commit_lock: CommitLock | None, put: Put) -> None:
    """Tables of a lake are committed by the lake, which supports neither option."""
    if commit_lock is not None or put != "conditional":
        raise InvalidInputError(
            "This table belongs to a lake, which commits for it.",
            table=os.fspath(uri),
            hint="Leave out commit_lock and put. On storage without conditional writes, give the lake a store: "
            'conroi.connect(uri, store="postgresql://…").',
        )


Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

LakeAddress = tuple[str, Mapping[str, str], bool, "str | None"]
"""Location, storage options without credentials, `durable`, branch."""

NOT_SECRET = {
    "region", "aws_region", "default_region", "aws_default_region", "endpoint", "aws_endpoint", "endpoint_url",
    "aws_endpoint_url", "allow_http", "aws_allow_http", "client_allow_http", "virtual_hosted_style_request",
    "aws_virtual_hosted_style_request",
}  # fmt: skip
"""Storage options that hold locations, not credentials."""


def lake_address(catalog: Catalog) -> LakeAddress:
    """How another process opens the lake, on its branch."""
    if not isinstance(catalog.heads, ManifestStore | ReplicaStore):
        raise _refused("A lake whose history is in a store", catalog.uri)
    if locks_of(catalog).has_address:
        raise _refused("A lake with the address of its insert locks", catalog.uri)
    branch = None if catalog.identity.is_main else catalog.identity.name
    uri, options, durable = catalog.main.place
    return uri, _without_credentials(options), durable, branch


def opened_lake(address: LakeAddress) -> LakeRef:
    """The lake, opened in this process."""
    uri, options, durable, branch = address
    return open_lake(uri, storage_options=dict(options) or None, durable=durable, branch=branch, create=False)


def table_address(files: TableStorage, version: int) -> tuple[Any, ...]:
    """How another process opens the table at its version: the arguments of `opened_table`."""
    if isinstance(files, LakeTableStorage) and files.catalog is not None:
        return lake_address(files.catalog), files.name, version
    if not isinstance(files.versions, FolderVersions) or not files.versions.puts_with(ConditionalPut):
        raise _refused("A table with a store, a commit lock or another way to put", files.name)
    is_durable = bool(getattr(files.objects, "is_durable", False))
    return (files.root, _without_credentials(files.objects.storage_options), is_durable, None), None, version


def opened_table(address: LakeAddress, name: str | None, version: int) -> tuple[TableStorage, Snapshot]:
    """The table, opened in this process; without a name, a standalone one."""
    if name is not None:
        lake = opened_lake(address)
        files = lake.storage(lake.catalog.row(object_id(name), lake.state()))
        with about(name):
            return files, find(files, version)
    uri, options, durable, _ = address
    files = table_storage(uri, storage_options=dict(options) or None, durable=durable)
    with about(files.root):
        head = files.head()
        return files, head if head.version == version and not is_detached(version) else find(files, version)


def _without_credentials(options: Mapping[str, str] | None) -> dict[str, str]:
    """The options that may be in a pickle; an address with a user name or password may not."""
    return {
        name: value for name, value in (options or {}).items() if name.lower() in NOT_SECRET and "@" not in str(value)
    }


def _refused(what: str, table: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} cannot be pickled: its address may hold a password.",
        table=table,
        hint="Open it in the other process, with conroi.connect() or conroi.open_table() and the same arguments.",
    )
