"""A lake as a Lance namespace: pylance and lancedb read and write its tables through the lake's commits."""

from __future__ import annotations

import lance_namespace as ln

from conroi.catalog.opening import open_catalog
from conroi.environment import SYSTEM, Environment
from conroi.errors import InvalidInputError
from conroi.namespace import tables, versions
from conroi.namespace.requests import Request, answered
from conroi.namespace.view import LakeLike, View

__all__ = ["ConroiNamespace"]

STORAGE = "storage."
"""Properties that begin so are storage options, as in pylance's own namespaces."""


class ConroiNamespace(ln.LanceNamespace):
    """The tables of a lake, for pylance and lancedb.

    Give it a lake, or a lake at a version. By its name it can be made from properties alone:
    `lance_namespace.connect("conroi.namespace.ConroiNamespace", {"root": uri})`, with `version` for a lake as
    it was and `storage.*` for storage options.

    >>> import conroi, lance_namespace
    >>> lake = conroi.connect("memory://namespace-example")
    >>> table = lake.create_table("orders", [{"id": 1}])
    >>> ConroiNamespace(lake).list_tables(lance_namespace.ListTablesRequest()).tables
    ['orders']
    """

    def __init__(self, lake: LakeLike | None = None, *, environment: Environment = SYSTEM, **properties: str) -> None:
        self._view = _opened(properties, environment) if lake is None else View(lake.catalog, lake.pinned)

    def namespace_id(self) -> str:
        pinned = self._view.pinned
        version = "" if pinned is None else f", version: {pinned.version}"
        return f"ConroiNamespace {{ root: {self._view.catalog.uri!r}{version} }}"

    def __repr__(self) -> str:
        return self.namespace_id()

    # ------------------------------------------------------------------------ namespaces

    @answered
    def list_namespaces(self, request: ln.ListNamespacesRequest) -> ln.ListNamespacesResponse:
        return tables.list_namespaces(self._view, Request(request))

    @answered
    def describe_namespace(self, request: ln.DescribeNamespaceRequest) -> ln.DescribeNamespaceResponse:
        return tables.describe_namespace(self._view, Request(request))

    @answered
    def namespace_exists(self, request: ln.NamespaceExistsRequest) -> ln.NamespaceExistsResponse:
        tables.describe_namespace(self._view, Request(request))
        return ln.NamespaceExistsResponse()

    @answered
    def create_namespace(self, request: ln.CreateNamespaceRequest) -> ln.CreateNamespaceResponse:
        return tables.create_namespace(self._view, Request(request))

    @answered
    def drop_namespace(self, request: ln.DropNamespaceRequest) -> ln.DropNamespaceResponse:
        return tables.drop_namespace(self._view, Request(request))

    # ------------------------------------------------------------------------ tables

    @answered
    def list_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        return tables.list_tables(self._view, Request(request))

    @answered
    def list_all_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        return tables.list_all_tables(self._view, Request(request))

    @answered
    def describe_table(self, request: ln.DescribeTableRequest) -> ln.DescribeTableResponse:
        return tables.describe_table(self._view, Request(request))

    @answered
    def table_exists(self, request: ln.TableExistsRequest) -> ln.TableExistsResponse:
        tables.check_exists(self._view, Request(request))
        return ln.TableExistsResponse()

    @answered
    def count_table_rows(self, request: ln.CountTableRowsRequest) -> ln.CountTableRowsResponse:
        return ln.CountTableRowsResponse(count=tables.count_rows(self._view, Request(request)))

    @answered
    def declare_table(self, request: ln.DeclareTableRequest) -> ln.DeclareTableResponse:
        return tables.declare_table(self._view, Request(request))

    @answered
    def create_table(self, request: ln.CreateTableRequest, request_data: bytes) -> ln.CreateTableResponse:
        return tables.create_table(self._view, Request(request), request_data)

    @answered
    def register_table(self, request: ln.RegisterTableRequest) -> ln.RegisterTableResponse:
        return tables.register_table(self._view, Request(request))

    @answered
    def drop_table(self, request: ln.DropTableRequest) -> ln.DropTableResponse:
        return tables.drop_table(self._view, Request(request))

    @answered
    def deregister_table(self, request: ln.DeregisterTableRequest) -> ln.DeregisterTableResponse:
        return tables.deregister_table(self._view, Request(request))

    @answered
    def rename_table(self, request: ln.RenameTableRequest) -> ln.RenameTableResponse:
        return tables.rename_table(self._view, Request(request))

    # ------------------------------------------------------------------------ versions

    @answered
    def list_table_versions(self, request: ln.ListTableVersionsRequest) -> ln.ListTableVersionsResponse:
        found, token = versions.list_versions(self._view, Request(request))
        return ln.ListTableVersionsResponse(versions=found, page_token=token)

    @answered
    def describe_table_version(self, request: ln.DescribeTableVersionRequest) -> ln.DescribeTableVersionResponse:
        return ln.DescribeTableVersionResponse(version=versions.describe_version(self._view, Request(request)))

    @answered
    def create_table_version(self, request: ln.CreateTableVersionRequest) -> ln.CreateTableVersionResponse:
        """Publish a staged manifest as the table's next version; it is finalized when this returns."""
        made = versions.create_versions(self._view, [versions.Entry.of(Request(request))])
        return ln.CreateTableVersionResponse(version=made[0])

    @answered
    def batch_create_table_versions(
        self, request: ln.BatchCreateTableVersionsRequest
    ) -> ln.BatchCreateTableVersionsResponse:
        """Publish staged manifests of many tables in one commit: all or none."""
        entries = [versions.Entry.of(each) for each in Request(request).many("entries")]
        return ln.BatchCreateTableVersionsResponse(versions=versions.create_versions(self._view, entries))

    @answered
    def batch_commit_tables(self, request: ln.BatchCommitTablesRequest) -> ln.BatchCommitTablesResponse:
        """Declare, publish and deregister many tables in one commit: all or none."""
        return ln.BatchCommitTablesResponse(results=versions.commit_tables(self._view, Request(request)))

    @answered
    def batch_delete_table_versions(
        self, request: ln.BatchDeleteTableVersionsRequest
    ) -> ln.BatchDeleteTableVersionsResponse:
        """Delete versions from before the lake had the table; those that the lake pins are refused."""
        return ln.BatchDeleteTableVersionsResponse(deleted_count=versions.delete_versions(self._view, Request(request)))


def _opened(properties: dict[str, str], environment: Environment) -> View:
    """The lake that these properties name."""
    root = properties.get("root") or properties.get("uri")
    unknown = sorted(
        key for key in properties if key not in ("root", "uri", "version", "store") and not key.startswith(STORAGE)
    )
    if root is None or unknown:
        what = f"Properties that are not known: {', '.join(unknown)}." if unknown else "No lake was named."
        raise InvalidInputError(what, hint="Give root, and maybe version, store and storage.*.")
    options = {key.removeprefix(STORAGE): value for key, value in properties.items() if key.startswith(STORAGE)}
    catalog, _ = open_catalog(
        root, store=properties.get("store"), storage_options=options or None, durable=False, environment=environment
    )
    version = properties.get("version")
    return View(catalog, None if version is None else catalog.at(_number(version)))


def _number(text: str) -> int:
    if not text.isdecimal():
        raise InvalidInputError(f"{text!r} is not a version of a lake.", hint="They count from 1.")
    return int(text)
