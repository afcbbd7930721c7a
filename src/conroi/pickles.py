"""Pickling of lakes and tables: an address and a version, without credentials; the other process opens them again.

A pickle never contains credentials: storage options other than region and endpoint come from the environment of the
process that opens it. Pickling fails for a lake or table that cannot be opened again without a secret, or that would
lose a lock that makes commits safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from conroi.branches.lake_ref import LakeRef
from conroi.catalog.catalog import Catalog
from conroi.catalog.manifest_store import ManifestStore
from conroi.catalog.names import object_id
from conroi.catalog.replica_store import ReplicaStore
from conroi.catalog.tables import LakeTableStorage
from conroi.errors import UnsupportedError, about
from conroi.format.naming import is_detached
from conroi.history import find
from conroi.inserts import locks_of
from conroi.snapshots.snapshot import Snapshot
from conroi.snapshots.table_storage import TableStorage
from conroi.table_location import open_lake, table_storage
from conroi.versions.conditional_put import ConditionalPut
from conroi.versions.folder import FolderVersions

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
