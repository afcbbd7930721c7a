"""Open and create tables, and commit operations to them at the lowest level."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from conroi import operations
from conroi.arguments import checked_table_call
from conroi.catalog.branch_rows import table_of
from conroi.catalog.opening import split_inside
from conroi.commit.change import Change, CommitOptions, CommitResult
from conroi.commit.execution import checked_texts
from conroi.commit.table_commit import commit as commit_change
from conroi.conflicts import Staged
from conroi.data.incoming import Data
from conroi.data.writer import Progress
from conroi.environment import SYSTEM, Environment
from conroi.errors import AlreadyExistsError, InvalidInputError, NotFoundError, UnsupportedError, about
from conroi.format.manifest import Manifest
from conroi.format.naming import ManifestNaming
from conroi.format.transaction import COMMIT_MESSAGE_PROPERTY, Transaction
from conroi.history import find
from conroi.lake import Lake, connect
from conroi.retry_policy import COMMIT_RETRIES, checked_retries
from conroi.snapshots.deletions import affected_rows
from conroi.snapshots.table_storage import TableStorage
from conroi.storage.base_paths import allow_bases as name_bases
from conroi.storage.factory import open_objects
from conroi.table import Table
from conroi.verbs.create import DEFAULT_DATA_FORMAT, check_same_table, create
from conroi.versions.addresses import open_records, split_uri
from conroi.versions.conditional_put import CommitLock, LockedPut, Put, PutNew, RenameIfAbsent
from conroi.versions.external import ExternalVersions
from conroi.versions.folder import FolderVersions
from conroi.versions.records import RecordStore

Uri = str | os.PathLike[str]
Store = str | RecordStore
Bases = Sequence[str | os.PathLike[str]]


def table_files(
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
    inside = None if lake is None else lake[0].files_at(lake[1])
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


def _on_branch(lake: tuple[Lake, str] | None, branch: str, uri: Uri) -> tuple[Lake, str]:
    found = None if lake is None else lake[0].branch(branch)
    if lake is None or found is None or found.files_at(lake[1]) is None:
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
) -> tuple[Lake, str] | None:
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
    lake = connect(
        root,
        store=address,
        storage_options=storage_options,
        durable=durable,
        allow_bases=allow_bases,
        environment=environment,
    )
    return lake, folder


def _branch_around(uri: Uri, **settings: Any) -> tuple[Lake, str] | None:
    """The lake branch that contains a path: the folder of a table on a branch is below that of the table."""
    path = os.fspath(uri).rstrip("/")
    table = table_of(path)
    found = None if table == path else lake_around(table, **settings)
    if found is None:
        return None
    name = path.rpartition("/")[2]
    branches = {branch.lance_name: branch.name for branch in found[0].branches}
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
) -> tuple[TableStorage, tuple[Lake, tuple[str, str]] | None]:
    """The location for a clone; in the folder of a lake also the lake, and how to register it."""
    found = lake_around(uri, store=store, storage_options=storage_options, durable=durable, environment=environment)
    if found is None:
        files = table_files(
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
    if name in lake or lake.files_at(folder) is not None:
        raise AlreadyExistsError(f"The lake has a table {name!r} already.", table=name, hint="Choose another name.")
    if not deep:
        raise UnsupportedError(
            "A lake accepts no shallow clones: its garbage collection does not see which files they need.",
            table=os.fspath(uri),
            hint="Use deep=True; or lake.branches for a copy that shares files.",
        )
    refuse_lake_commit(uri, commit_lock, put)
    objects = open_objects(uri, storage_options, durable=durable)
    return TableStorage(objects, FolderVersions(objects, None, environment), environment), (lake, (name, folder))


def refuse_lake_commit(uri: Uri, commit_lock: CommitLock | None, put: Put) -> None:
    """Tables of a lake are committed by the lake, which supports neither option."""
    if commit_lock is not None or put != "conditional":
        raise InvalidInputError(
            "This table belongs to a lake, which commits for it.",
            table=os.fspath(uri),
            hint="Leave out commit_lock and put. On storage without conditional writes, give the lake a store: "
            'conroi.connect(uri, store="postgresql://…").',
        )


@checked_table_call
def open_table(
    uri: Uri,
    *,
    version: int | None = None,
    tag: str | None = None,
    store: Store | None = None,
    storage_options: Mapping[str, str] | None = None,
    durable: bool = False,
    commit_lock: CommitLock | None = None,
    put: Put = "conditional",
    branch: str | None = None,
    allow_bases: Bases | None = None,
    environment: Environment = SYSTEM,
) -> Table:
    """Open a Lance table at its newest version, or at another by number or tag; of a lake's table, also on a branch.

    `store` is the external manifest store of the table, if it has one: `sqlite:///file.db`,
    `postgresql://user:password@host/database` or `dynamodb://table?region=…`; all its writers must name it.
    `storage_options` are passed to pylance too. `durable=True` syncs to local disk before a commit returns.
    `commit_lock` (called with the version, returns a context manager) makes commits safe on storage without conditional
    writes.

    Files outside the table (or its lake) that it references are not read, unless they are below one of `allow_bases`: a
    shallow clone needs the folder of its source table.

    >>> import conroi
    >>> made = conroi.create_table("memory://open-example", [{"id": 1}])
    >>> conroi.open_table("memory://open-example").count_rows()
    1
    """
    files = table_files(
        uri,
        store=store,
        storage_options=storage_options,
        durable=durable,
        commit_lock=commit_lock,
        put=put,
        environment=environment,
        branch=branch,
        allow_bases=allow_bases,
    )
    with about(files.root):
        snapshot = files.head() if version is None and tag is None else find(files, version, tag)
    return Table(files, snapshot)


@checked_table_call
def create_table(
    uri: Uri,
    schema_or_data: pa.Schema | Data,
    *,
    key: str | Sequence[str] | None = None,
    stable_row_ids: bool = False,
    config: Mapping[str, str] | None = None,
    data_format: str = DEFAULT_DATA_FORMAT,
    naming: ManifestNaming = ManifestNaming.V2,
    schema: pa.Schema | None = None,
    exist_ok: bool = False,
    message: str | None = None,
    store: Store | None = None,
    storage_options: Mapping[str, str] | None = None,
    durable: bool = False,
    commit_lock: CommitLock | None = None,
    put: Put = "conditional",
    progress: Progress | None = None,
    environment: Environment = SYSTEM,
) -> Table:
    """Create a Lance table from a pyarrow schema (empty) or from data.

    `key` declares the primary key column or columns; they may not be null. With `stable_row_ids` rows keep their id
    when they are updated or compacted. A path inside a lake creates a table of that lake. `schema` sets the types of
    the data's columns. With `exist_ok=True` an existing table is opened and no row is written.
    """
    lake = lake_around(uri, store=store, storage_options=storage_options, durable=durable, environment=environment)
    if lake is not None:
        refuse_lake_commit(uri, commit_lock, put)
        if naming is not ManifestNaming.V2:
            raise InvalidInputError("Tables of a lake have manifest names of the newer kind.", hint="Leave out naming.")
        return lake[0].create_table(
            lake[1].removesuffix(".lance"),
            schema_or_data,
            key=key,
            stable_row_ids=stable_row_ids,
            config=config,
            data_format=data_format,
            schema=schema,
            exist_ok=exist_ok,
            message=message,
            progress=progress,
        )
    files = table_files(
        uri,
        store=store,
        storage_options=storage_options,
        durable=durable,
        commit_lock=commit_lock,
        put=put,
        environment=environment,
    )
    with about(files.root):
        if files.versions.latest() is not None:
            if exist_ok:
                return _same_table(files, schema_or_data, schema, key)
            raise AlreadyExistsError(
                f"There is a table at {files.root} already.",
                table=files.root,
                hint="Open it with conroi.open_table(uri), or choose another path.",
            )
        change = create(
            files,
            schema_or_data,
            key=key,
            stable_row_ids=stable_row_ids,
            config=checked_texts(config or {}),
            data_format=data_format,
            schema=schema,
            naming=naming,
            properties=checked_texts({} if message is None else {COMMIT_MESSAGE_PROPERTY: message}),
            progress=progress,
        )
        try:
            return Table(files, commit_change(files, change).snapshot)
        except AlreadyExistsError:
            if not exist_ok:
                raise
            return _same_table(files, schema_or_data, schema, key)  # a concurrent writer created it first


def _same_table(
    files: TableStorage, schema_or_data: pa.Schema | Data, schema: pa.Schema | None, key: str | Sequence[str] | None
) -> Table:
    found = Table(files, files.head())
    check_same_table(found.schema, found.key, schema_or_data, schema, key, table=files.root)
    return found


@checked_table_call
def commit(
    uri: Uri,
    transaction: Transaction,
    *,
    retries: int = COMMIT_RETRIES,
    store: Store | None = None,
    storage_options: Mapping[str, str] | None = None,
    durable: bool = False,
    commit_lock: CommitLock | None = None,
    put: Put = "conditional",
    detached: bool = False,
    allow_bases: Bases | None = None,
) -> CommitResult:
    """Low-level interface: commit any transaction, also a serialized one (`conroi.format.decode_transaction`).

    The files it references must be written already. It is checked for conflicts with everything committed since its
    `read_version`; a read version of 0 creates the table. The rows that a Delete or an Update removes are read from its
    deletion files, so two that remove different rows of one fragment are compatible.
    """
    files = table_files(
        uri,
        store=store,
        storage_options=storage_options,
        durable=durable,
        commit_lock=commit_lock,
        put=put,
        allow_bases=allow_bases,
    )
    with about(files.root):
        change = replace(_change_of(files, transaction), is_detached=detached)
        options = CommitOptions(retries=checked_retries(retries))
        return commit_change(files, change, options)


def _change_of(files: TableStorage, transaction: Transaction) -> Change:
    if not isinstance(transaction, Transaction):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(
            f"A transaction was expected, but this is a {type(transaction).__name__}.",
            hint="Read the bytes of one with conroi.format.decode_transaction(data).",
        )
    operation = operations.of(transaction)
    if isinstance(operation, operations.Clone):
        raise InvalidInputError(
            "A clone cannot be committed by itself.", hint="table.clone(uri) makes a new table that starts as this one."
        )
    if transaction.read_version:
        base = find(files, transaction.read_version)
        restored = find(files, operation.version) if isinstance(operation, operations.Restore) else None
        affected = affected_rows(files.objects, operation, base.manifest)
        staged = Staged(operation=operation, base=base.manifest, affected_rows=affected)
    elif isinstance(operation, operations.Overwrite):
        base, restored = None, None
        staged = Staged(operation=operation, base=Manifest(b""))
    else:
        raise NotFoundError(
            f"{operation.name} has no base version, so there is no table to commit it to.",
            hint="Set read_version to the base version of the change.",
        )
    return Change(staged=staged, base=base, uuid=transaction.uuid, properties=transaction.properties, restored=restored)
