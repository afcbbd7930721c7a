"""A lake as a Lance namespace: pylance and lancedb read and write its tables through the lake's commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import lance_namespace as ln
from lance_namespace import (
    CommitTableResult,
    CreateTableVersionResponse,
    DeclareTableResponse,
    DeregisterTableResponse,
)

from conroi.catalog.external_participant import current_version
from conroi.catalog.folders import releasing
from conroi.catalog.opening import open_catalog
from conroi.catalog.participant import TableChange
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.catalog.store import Published
from conroi.environment import SYSTEM, Environment
from conroi.errors import InvalidInputError, NotFoundError, UnsupportedError
from conroi.namespace import tables, versions
from conroi.namespace.requests import Request, answered
from conroi.namespace.tables import declared, declared_row, deregistered, reserve
from conroi.namespace.versions import (
    Entry,
    adopt_out_of_band,
    publish_versions,
    published_version,
    refuse_twice,
    version_in,
)
from conroi.namespace.view import LakeLike, View, published_before

KINDS = ("declare_table", "create_table_version", "delete_table_versions", "deregister_table")


@dataclass
class Batch:
    """The operations of a batch."""

    view: View
    base: LakeState
    declared: dict[str, Row] = field(default_factory=dict[str, Row])
    leaving: dict[str, Row] = field(default_factory=dict[str, Row])
    versions: dict[str, TableChange] = field(default_factory=dict[str, TableChange])

    def add(self, kind: str, request: Request) -> None:
        if kind == "delete_table_versions":
            raise UnsupportedError(
                "Versions cannot be deleted as part of a batch.", hint="Use batch_delete_table_versions() for that."
            )
        if kind == "declare_table":
            row = declared_row(self.view, request, self.base)
            refuse_twice([row.object_id, *self.declared, *self.versions, *self.leaving])
            self.declared[row.object_id] = row
        elif kind == "deregister_table":
            row = self.view.row(request.object_id(), self.base)
            refuse_twice([row.object_id, *self.declared, *self.versions, *self.leaving])
            self.leaving[row.object_id] = row
        else:
            self._add_version(Entry.of(request))

    def _add_version(self, entry: Entry) -> None:
        refuse_twice([entry.object_id, *self.versions, *self.leaving])
        new = self.declared.get(entry.object_id)
        row = self.view.row(entry.object_id, self.base) if new is None else new
        self.versions[entry.object_id] = entry.wanted(self.view, row, is_new=new is not None)

    def publish(self) -> None:
        """All of it, in one commit."""
        rows: dict[str, Row | None] = dict.fromkeys(self.leaving)
        rows |= {key: row for key, row in self.declared.items() if key not in self.versions}
        for row in self.declared.values():
            reserve(self.view, row)
        with releasing(self.view.catalog, list(self.leaving.values())):
            publish_versions(self.view, self.base, list(self.versions.values()), rows)

    def result(self, kind: str, request: Request) -> CommitTableResult:
        """What became of one operation."""
        key = request.object_id()
        if kind == "declare_table":
            return CommitTableResult(declare_table=declared(self.view, self.declared[key]))
        if kind == "deregister_table":
            return CommitTableResult(deregister_table=deregistered(self.view, self.leaving[key]))
        version = published_version(self.view, self.versions[key])
        return CommitTableResult(create_table_version=CreateTableVersionResponse(version=version))


def commit_tables(view: View, request: Request) -> list[CommitTableResult]:
    """Execute all operations of the request in one commit; returns their results, in its order."""
    operations = [_kind_and_request(each) for each in request.many("operations")]
    if not operations:
        raise InvalidInputError("The batch is empty.", hint="Give at least one operation.")
    entries = [Entry.of(each) for kind, each in operations if kind == "create_table_version"]
    earlier = published_before(view, view.newest(), entries)
    if earlier is not None:
        return [_result_in(view, earlier, kind, each) for kind, each in operations]
    with view.in_next_place([entry.object_id for entry in entries]):
        return _commit(view, operations, entries)


def _commit(view: View, operations: Sequence[tuple[str, Request]], entries: list[Entry]) -> list[CommitTableResult]:
    _adopt_first(view, entries)
    batch = Batch(view, view.newest())
    for kind, each in operations:
        batch.add(kind, each)
    batch.publish()
    return [batch.result(kind, each) for kind, each in operations]


def _result_in(view: View, earlier: Published, kind: str, request: Request) -> CommitTableResult:
    """What became of one operation of a batch that an earlier request committed."""
    if kind == "create_table_version":
        version = version_in(view, earlier, Entry.of(request))
        return CommitTableResult(create_table_version=CreateTableVersionResponse(version=version))
    key = request.object_id()
    if kind == "declare_table":
        row = (earlier.changes or {}).get(key)
        return CommitTableResult(declare_table=DeclareTableResponse() if row is None else declared(view, row))
    try:
        row = view.catalog.heads.at(earlier.version - 1).table(key)
    except NotFoundError:  # that version of the lake was collected
        row = None
    answer = DeregisterTableResponse(id=request.parts()) if row is None else deregistered(view, row)
    return CommitTableResult(deregister_table=answer)


def _kind_and_request(operation: Request) -> tuple[str, Request]:
    given = [(kind, Request(operation.get(kind))) for kind in KINDS if operation.get(kind) is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"An operation of a batch is one of {', '.join(KINDS)}; this one is {len(given)} of them.",
            hint="Give each operation by itself.",
        )
    return given[0]


def _adopt_first(view: View, entries: list[Entry]) -> None:
    """Adopt the out-of-band versions on which these are built."""
    state = view.newest()
    for entry in entries:
        row = state.table(entry.object_id)
        if row is not None and entry.version > current_version(view.catalog, row) + 1:
            adopt_out_of_band(view, entry.object_id, entry.version - 1)


KNOWN = ("root", "uri", "version", "store")
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
        return ln.BatchCommitTablesResponse(results=commit_tables(self._view, Request(request)))

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
