"""Tables and namespaces of a lake as a Lance namespace lists, describes and counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from lance_namespace import (
    CreateNamespaceResponse,
    DescribeNamespaceResponse,
    DescribeTableResponse,
    DropNamespaceResponse,
    ListNamespacesResponse,
    ListTablesResponse,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
)
from lance_namespace_urllib3_client.models.json_arrow_data_type import JsonArrowDataType
from lance_namespace_urllib3_client.models.json_arrow_field import JsonArrowField
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema
from lance_namespace_urllib3_client.models.table_basic_stats import TableBasicStats

from conroi.catalog.external_participant import current_version
from conroi.catalog.names import SEPARATOR, shown
from conroi.catalog.rows import NAMESPACE, Row
from conroi.catalog.state import LakeState
from conroi.data.pylance import pylance_errors
from conroi.data.table_version import TableVersion
from conroi.errors import AlreadyExistsError, InvalidInputError
from conroi.format.schema import schema_from_fields
from conroi.namespace.requests import Request, joined, no_namespace, no_version, paged
from conroi.namespace.versions import located
from conroi.namespace.view import View, is_namespace
from conroi.snapshots.snapshot import load_snapshot


def children(parts: Sequence[str], state: LakeState, *, tables: bool) -> list[str]:
    """The names of the tables, or of the namespaces, right inside this namespace."""
    parent = joined(parts) if parts else ""
    if parent and not is_namespace(parent, state):
        raise no_namespace(parent)
    prefix = f"{parent}{SEPARATOR}" if parent else ""
    inside = (row for key, row in state.rows.items() if key.startswith(prefix) and SEPARATOR not in key[len(prefix) :])
    names = sorted(row.object_id[len(prefix) :] for row in inside if row.is_table == tables)
    return [name for name in names if not name.startswith("__")]  # those are the lake's own


def list_namespaces(view: View, request: Request) -> ListNamespacesResponse:
    page, token = paged(children(request.parts(), view.state(), tables=False), request)
    return ListNamespacesResponse(namespaces=page, page_token=token)


def describe_namespace(view: View, request: Request) -> DescribeNamespaceResponse:
    """Its properties; NamespaceNotFoundError if it does not exist. The lake itself has none."""
    if not request.parts():
        return DescribeNamespaceResponse(properties={})
    key, state = request.object_id(), view.state()
    if not is_namespace(key, state):
        raise no_namespace(key)
    return DescribeNamespaceResponse(properties=dict(state.rows[key].notes))


def create_namespace(view: View, request: Request) -> CreateNamespaceResponse:
    key, base = request.object_id(), view.newest()
    mode = request.mode("create", ("create", "existok", "overwrite"))
    properties = request.texts("properties")
    view.check_parents(key, base)
    there = base.rows.get(key)
    if there is not None and not there.is_table and mode == "existok":
        return CreateNamespaceResponse(properties=dict(there.notes))
    if there is not None and (there.is_table or mode == "create"):
        raise _taken(key)
    row = Row(key, NAMESPACE).with_notes(properties) if properties else Row(key, NAMESPACE)
    try:
        view.publish(base, f"create namespace {shown(key)}", rows={key: row})
    except AlreadyExistsError as error:
        if mode == "create":
            raise _taken(key) from error
    return CreateNamespaceResponse(properties=properties)


def _taken(key: str) -> NamespaceAlreadyExistsError:
    return NamespaceAlreadyExistsError(
        f"The lake has something called {shown(key)!r} already. Hint: choose another name, or mode exist_ok."
    )


def drop_namespace(view: View, request: Request) -> DropNamespaceResponse:
    """Drop a namespace; with behavior cascade also everything inside, in the same commit."""
    if not request.parts():
        raise InvalidInputError("The lake itself cannot be dropped.", hint="Delete its folder if you must.")
    key, base = request.object_id(), view.newest()
    mode = request.mode("fail", ("fail", "skip"))
    behavior = request.mode("restrict", ("restrict", "cascade"), "behavior")
    if not is_namespace(key, base):
        if mode == "skip":
            return DropNamespaceResponse()
        raise no_namespace(key)
    inside = [each for each in base.rows if each.startswith(key + SEPARATOR)]
    if inside and behavior == "restrict":
        raise NamespaceNotEmptyError(
            f"The namespace {shown(key)!r} has {len(inside)} tables and namespaces in it. "
            "Hint: drop those first, or give behavior cascade."
        )
    view.publish(base, f"drop namespace {shown(key)}", rows=dict.fromkeys([*inside, key]))
    return DropNamespaceResponse(properties=dict(base.rows[key].notes))


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
    pinned = TableVersion(view.files(row), load_snapshot(objects, located(view, row, request.number("version"))))
    with pylance_errors(objects.root):
        return pinned.dataset.count_rows(request.text("predicate"))


_NAMES = {
    "string": "utf8",
    "large_string": "large_utf8",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
}


def json_schema(schema: pa.Schema) -> JsonArrowSchema:
    """All columns, with what is inside them."""
    return JsonArrowSchema(fields=[_field(field) for field in schema])


def _field(field: pa.Field[Any]) -> JsonArrowField:
    return JsonArrowField(name=field.name, nullable=field.nullable, type=_type(field.type))


def _type(type_: pa.DataType) -> JsonArrowDataType:
    if isinstance(type_, pa.BaseExtensionType):
        return _type(type_.storage_type)
    if isinstance(type_, pa.DictionaryType):
        return _type(type_.value_type)
    name = str(type_).partition("[")[0].partition("<")[0].partition("(")[0]
    if pa.types.is_fixed_size_list(type_):
        name = "fixed_size_list"
    inside = [_field(type_.field(number)) for number in range(type_.num_fields)]
    return JsonArrowDataType(type=_NAMES.get(name, name), length=_length(type_), fields=inside or None)


def _length(type_: pa.DataType) -> int | None:
    if isinstance(type_, pa.FixedSizeListType):
        return type_.list_size
    if isinstance(type_, pa.FixedSizeBinaryType) and not pa.types.is_decimal(type_):
        return type_.byte_width
    if isinstance(type_, pa.Decimal128Type | pa.Decimal256Type):
        return type_.precision * 1000 + type_.scale
    return None
