"""Pickling of lakes and tables: an address and a version, without credentials; the other process opens them again.

A pickle never contains credentials: storage options other than region and endpoint come from the environment of the
process that opens it. Pickling fails for a lake or table that cannot be opened again without a secret, or that would
lose a lock that makes commits safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from conroi.catalog.manifest_store import ManifestStore
from conroi.catalog.replica_store import ReplicaStore
from conroi.catalog.tables import LakeTableStorage
from conroi.errors import UnsupportedError
from conroi.format.naming import is_detached
from conroi.inserts import locks_of
from conroi.versions.conditional_put import ConditionalPut
from conroi.versions.folder import FolderVersions

if TYPE_CHECKING:
    from conroi.lake import Lake
    from conroi.table import Table

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

NOT_SECRET = {
    "region", "aws_region", "default_region", "aws_default_region", "endpoint", "aws_endpoint", "endpoint_url",
    "aws_endpoint_url", "allow_http", "aws_allow_http", "client_allow_http", "virtual_hosted_style_request",
    "aws_virtual_hosted_style_request",
}  # fmt: skip
"""Storage options that hold locations, not credentials."""


def reduced_lake(lake: Lake) -> Reduced:
    """How another process opens the lake, on its branch, and at its version if it stays at one."""
    catalog = lake.catalog
    if not isinstance(catalog.heads, ManifestStore | ReplicaStore):
        raise _refused("A lake whose history is in a store", catalog.uri)
    if locks_of(catalog).has_address:
        raise _refused("A lake with the address of its insert locks", catalog.uri)
    branch = None if catalog.identity.is_main else catalog.identity.name
    version = None if lake.pinned is None else lake.pinned.version
    uri, options, durable = catalog.main.place
    return _lake, (uri, _without_credentials(options), durable, branch, version)


def _lake(uri: str, options: Mapping[str, str], durable: bool, branch: str | None, version: int | None) -> Lake:
    from conroi.lake import connect

    lake = connect(uri, storage_options=dict(options) or None, durable=durable, branch=branch, create=False)
    return lake if version is None else lake.at(version)


def reduced_table(table: Table) -> Reduced:
    """How another process opens the table at its version."""
    files = table.pinned.files
    version = table.version
    if table.pinned.snapshot.is_private:
        raise UnsupportedError(
            "A table inside a transaction cannot be pickled: other processes cannot see what is staged.",
            table=table.name,
            hint="Pickle lake[name], or hand over table.to_arrow().",
        )
    if isinstance(files, LakeTableStorage) and files.catalog is not None:
        from conroi.lake import Lake

        return _lake_table, (Lake(files.catalog), files.name, version)
    if not isinstance(files.versions, FolderVersions) or not files.versions.puts_with(ConditionalPut):
        raise _refused("A table with a store, a commit lock or another way to put", table.name)
    is_durable = bool(getattr(files.objects, "is_durable", False))
    return _alone, (files.root, _without_credentials(files.objects.storage_options), is_durable, version)


def _lake_table(lake: Lake, name: str, version: int) -> Table:
    return lake.table(name, version)


def _alone(uri: str, options: Mapping[str, str], durable: bool, version: int) -> Table:
    from conroi.opening import open_table

    table = open_table(uri, storage_options=dict(options) or None, durable=durable)
    return table if table.version == version and not is_detached(version) else table.at(version)


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
