"""Open lakes and tables, create tables, and commit operations to them at the lowest level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from conroi import operations
from conroi.arguments import checked_call, checked_table_call
from conroi.commit.change import Change, CommitResult, Plan, checked_texts
from conroi.commit.table_commit import commit as commit_change
from conroi.conflicts import Staged
from conroi.data.incoming import Data
from conroi.data.writer import Progress
from conroi.environment import SYSTEM, Environment
from conroi.errors import AlreadyExistsError, InvalidInputError, NotFoundError, about
from conroi.format.manifest import Manifest
from conroi.format.naming import ManifestNaming
from conroi.format.on_disk import COMMIT_MESSAGE_PROPERTY
from conroi.format.transaction import Transaction
from conroi.history import find
from conroi.lake import Lake
from conroi.retry_policy import COMMIT_RETRIES, checked_retries
from conroi.snapshots.deletions import affected_rows
from conroi.snapshots.snapshot import TableStorage
from conroi.table import Table
from conroi.table_location import Bases, Store, Uri, lake_around, open_lake, refuse_lake_commit, table_storage
from conroi.verbs.create import DEFAULT_DATA_FORMAT, check_same_table, create
from conroi.versions.folder import CommitLock, Put


@checked_call
def connect(
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
) -> Lake:
    """Open the lake at a path or URI, or a branch of it; an empty location becomes a new lake.

    With `create=False` a location without a lake is NotFoundError. No lake is created inside a table or another lake.
    `durable=True` syncs to local disk before a commit returns. `locks` is the address of the database for insert locks,
    `postgresql://…`. Files outside the lake that a table references are not read, unless they are below one of
    `allow_bases`.
    """
    lake = open_lake(
        uri,
        store=store,
        locks=locks,
        storage_options=storage_options,
        durable=durable,
        branch=branch,
        allow_bases=allow_bases,
        create=create,
        environment=environment,
    )
    return Lake(lake.catalog, lake.manifest)


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
    files = table_storage(
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
        return Lake(lake[0].catalog, lake[0].manifest).create_table(
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
    files = table_storage(
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
    files = table_storage(
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
        return commit_change(files, change, checked_retries(retries))


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
    plan = Plan(staged, restored=restored)
    return Change(plan, base, uuid=transaction.uuid, properties=transaction.properties)
