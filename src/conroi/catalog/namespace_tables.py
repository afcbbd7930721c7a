"""Namespace requests that list, describe and count tables."""

from __future__ import annotations

from lance_namespace import DescribeTableResponse, ListTablesResponse
from lance_namespace_urllib3_client.models.table_basic_stats import TableBasicStats

from conroi.catalog.names import SEPARATOR
from conroi.catalog.namespace_errors import no_version
from conroi.catalog.namespace_folders import children
from conroi.catalog.namespace_requests import Request, paged
from conroi.catalog.namespace_schema import json_schema
from conroi.catalog.namespace_versions import located
from conroi.catalog.namespace_view import View
from conroi.catalog.prebuilt import current_version
from conroi.catalog.rows import Row
from conroi.commit.snapshot import load_snapshot
from conroi.data.pinned import Pinned
from conroi.data.pylance import pylance_errors
from conroi.format.schema import schema_from_fields


def list_tables(view: View, request: Request) -> ListTablesResponse:
    """The tables right inside a namespace."""
    state = view.state()
    parts = request.parts()
    names = children(parts, state, tables=True)
    if request.get("include_declared") is False:
        prefix = "".join(part + SEPARATOR for part in parts)
        names = [name for name in names if current_version(view.catalog, state.rows[prefix + name])]
    page, token = paged(names, request)
    return ListTablesResponse(tables=page, page_token=token)


def list_all_tables(view: View, request: Request) -> ListTablesResponse:
    """All tables, in whatever namespace, by their full ids."""
    page, token = paged([row.object_id for row in view.state().tables()], request)
    return ListTablesResponse(tables=page, page_token=token)


def describe_table(view: View, request: Request) -> DescribeTableResponse:
    """The location of the table, and that its versions are managed by this namespace."""
    request.refuse_branch()
    key, state = request.object_id(), view.state()
    row = view.row(key, state)
    version, wants_all = request.number("version"), bool(request.get("load_detailed_metadata"))
    if version is not None:
        located(view, row, version)
    is_declared = None
    if wants_all or request.get("check_declared"):
        is_declared = not current_version(view.catalog, row)
    response = DescribeTableResponse(
        location=view.uri(row),
        table_uri=view.uri(row) if request.get("with_table_uri") else None,
        storage_options=view.storage_options(row),
        properties=properties_of(row),
        managed_versioning=True,
        version=version,
        is_only_declared=is_declared,
    )
    if wants_all:
        _describe_all(view, row, version, response)
    return response


def _describe_all(view: View, row: Row, version: int | None, response: DescribeTableResponse) -> None:
    *namespace, table = row.object_id.split(SEPARATOR)
    response.table, response.namespace = table, namespace
    if response.is_only_declared:
        return
    found = located(view, row, version)
    snapshot = load_snapshot(view.catalog.objects_of(row), found)
    head = snapshot.manifest.head
    response.version = snapshot.version
    response.var_schema = json_schema(schema_from_fields(head.fields, head.schema_metadata))
    fragments = snapshot.manifest.fragments
    response.stats = TableBasicStats(
        num_deleted_rows=sum(fragment.deletion_file.num_deleted_rows for fragment in fragments),
        num_fragments=len(fragments),
    )


def properties_of(row: Row) -> dict[str, str]:
    """The properties given by users, without those of the lake."""
    return {key: value for key, value in row.notes.items() if not key.startswith("conroi.")}


def check_exists(view: View, request: Request) -> None:
    """TableNotFoundError, or TableVersionNotFoundError."""
    row = view.row(request.object_id(), view.state())
    version = request.number("version")
    if version is not None:
        located(view, row, version)


def count_rows(view: View, request: Request) -> int:
    """How many rows a version has, or how many of them fit a predicate."""
    request.refuse_branch()
    row = view.row(request.object_id(), view.state())
    if not current_version(view.catalog, row):
        raise no_version(row.object_id, None)
    objects = view.catalog.objects_of(row)
    pinned = Pinned(view.files(row), load_snapshot(objects, located(view, row, request.number("version"))))
    with pylance_errors(objects.root):
        return pinned.dataset.count_rows(request.text("predicate"))
