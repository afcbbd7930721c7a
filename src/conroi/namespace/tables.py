"""Tables and namespaces of a lake as a Lance namespace lists, describes, counts and changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from lance_namespace import (
    CreateNamespaceResponse,
    CreateTableResponse,
    DeclareTableResponse,
    DeregisterTableResponse,
    DescribeNamespaceResponse,
    DescribeTableResponse,
    DropNamespaceResponse,
    DropTableResponse,
    ListNamespacesResponse,
    ListTablesResponse,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    RegisterTableResponse,
    RenameTableResponse,
)
from lance_namespace_urllib3_client.models.json_arrow_data_type import JsonArrowDataType
from lance_namespace_urllib3_client.models.json_arrow_field import JsonArrowField
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema
from lance_namespace_urllib3_client.models.table_basic_stats import TableBasicStats

from conroi.catalog.external_participant import current_version
from conroi.catalog.folders import found_row, mark_created, new_location, releasing
from conroi.catalog.names import SEPARATOR, shown
from conroi.catalog.participant import TableChange
from conroi.catalog.preconditions import Expectation
from conroi.catalog.rows import NAMESPACE, TABLE, Row, new_table_row
from conroi.catalog.state import LakeState
from conroi.data.pylance import pylance_errors
from conroi.data.table_version import TableVersion
from conroi.errors import AlreadyExistsError, CorruptionError, InvalidInputError
from conroi.format.naming import check_relative_path
from conroi.format.on_disk import LAKE_MANIFEST, OWN_PREFIX, ROW_INCARNATION
from conroi.format.schema import schema_from_fields
from conroi.namespace.requests import Request, joined, no_namespace, no_version, paged
from conroi.namespace.view import View, is_namespace, located
from conroi.snapshots.snapshot import load_snapshot
from conroi.verbs.create import create


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
    return {key: value for key, value in row.notes.items() if not key.startswith(OWN_PREFIX)}


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


RESERVED = ".lance-reserved"
"""Marker file in the folder of a declared table without a version; pylance's namespaces use the same."""

# ---------------------------------------------------------------------------- coming


def declared_row(view: View, request: Request, base: LakeState) -> Row:
    """The row of a table that is declared: it has a folder and no version yet."""
    key = request.object_id()
    view.check_parents(key, base)
    _refuse_taken(key, base)
    wanted = request.text("location")
    location = new_location(view.catalog, key) if wanted is None else _inside(view, wanted, base)
    if wanted is not None and view.catalog.folder_of(Row(key, TABLE, location)).latest() is not None:
        raise AlreadyExistsError(
            f"The folder {location} has a table in it already.",
            table=shown(key),
            hint="register_table() brings it into the lake.",
        )
    return _new_row(view, key, location, request.texts("properties"))


def _refuse_taken(key: str, base: LakeState) -> None:
    if key in base.rows:
        raise AlreadyExistsError(
            f"There is a {base.rows[key].object_type} {shown(key)!r} in the lake already.",
            table=shown(key),
            hint="Open it, or choose another name.",
        )


def _new_row(view: View, key: str, location: str, properties: Mapping[str, str]) -> Row:
    environment = view.catalog.environment
    row = new_table_row(key, location, environment)
    return row.with_notes({**properties, ROW_INCARNATION: str(environment.new_uuid())})


def reserve(view: View, row: Row) -> None:
    """Write a marker into the folder, so that no other table ever gets it: the client may write there late."""
    objects = view.catalog.objects_of(row)
    if next(iter(objects.list_names("")), None) is None:  # else the client chose a folder that has files of its own
        mark_created(view.catalog, row)
    objects.put(RESERVED, b"")


def _inside(view: View, location: str, base: LakeState) -> str:
    """A folder as it is called inside the lake, which no other table has."""
    inside = location.removeprefix("file://").removeprefix(f"{view.catalog.uri}/").rstrip("/")
    try:
        check_relative_path(inside)
    except CorruptionError as error:
        raise InvalidInputError(
            "The folder of a table must be inside the lake.", hint="Give it as it is called there: orders.lance."
        ) from error
    if inside.partition("/")[0] == LAKE_MANIFEST or any(row.location == inside for row in base.rows.values()):
        raise AlreadyExistsError(f"The folder {inside} of the lake is taken.", hint="Choose another one.")
    return inside


def declare_table(view: View, request: Request) -> DeclareTableResponse:
    base = view.newest()
    row = declared_row(view, request, base)
    reserve(view, row)
    view.publish(base, f"declare {shown(row.object_id)}", rows={row.object_id: row})
    return declared(view, row)


def declared(view: View, row: Row) -> DeclareTableResponse:
    return DeclareTableResponse(
        location=view.uri(row),
        storage_options=view.storage_options(row),
        properties=properties_of(row),
        managed_versioning=True,
    )


def create_table(view: View, request: Request, data: bytes) -> CreateTableResponse:
    """A table with these rows (an Arrow IPC stream), as its version 1."""
    key, base = request.object_id(), view.newest()
    mode = request.mode("create", ("create", "existok", "overwrite"))
    there = base.table(key)
    if there is not None and mode == "existok":
        return _created(view, there, current_version(view.catalog, there))
    view.check_parents(key, base)
    row = _new_row(view, key, new_location(view.catalog, key), request.texts("properties"))
    files = view.files(row)
    change = create(files, _table(data), claim=lambda: mark_created(view.catalog, row))
    leaving: dict[str, Row | None] = {key: None} if there is not None and mode == "overwrite" else {}
    view.publish(base, f"create {shown(key)}", rows=leaving, tables=[TableChange(key, None, files, change, row)])
    return _created(view, row, 1)


def _created(view: View, row: Row, version: int) -> CreateTableResponse:
    return CreateTableResponse(
        location=view.uri(row),
        version=version,
        storage_options=view.storage_options(row),
        properties=properties_of(row),
    )


def _table(data: bytes) -> pa.Table:
    try:
        return pa.ipc.open_stream(data).read_all()
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"The data is not an Arrow IPC stream: {error}", hint="Write it with pyarrow.ipc.new_stream()."
        ) from error


def register_table(view: View, request: Request) -> RegisterTableResponse:
    """Register a Lance table in a folder of the lake; with mode overwrite, in place of the table of that name."""
    key, base = request.object_id(), view.newest()
    mode = request.mode("create", ("create", "overwrite"))
    view.check_parents(key, base)
    there = base.table(key)
    if there is None or mode == "create":
        _refuse_taken(key, base)
    location = _inside(view, request.text("location") or "", base)
    properties = request.texts("properties")
    row = found_row(view.catalog, key, location, properties)
    expects = (
        [] if there is None else [Expectation(key, current_version(view.catalog, there), there.incarnation, seen=there)]
    )
    view.publish(base, f"register {shown(key)}", rows={key: row}, expects=expects)
    return RegisterTableResponse(location=view.uri(row), properties=properties)


# ---------------------------------------------------------------------------- leaving


def drop_table(view: View, request: Request) -> DropTableResponse:
    """Remove a table from the lake; older versions of the lake still have it, so its folder stays."""
    key, base = request.object_id(), view.newest()
    row = view.row(key, base)
    view.publish(base, f"drop {shown(key)}", rows={key: None})
    return DropTableResponse(id=request.parts(), location=view.uri(row), properties=properties_of(row))


def deregister_table(view: View, request: Request) -> DeregisterTableResponse:
    key, base = request.object_id(), view.newest()
    row = view.row(key, base)
    with releasing(view.catalog, [row]):
        view.publish(base, f"deregister {shown(key)}", rows={key: None})
    return deregistered(view, row)


def deregistered(view: View, row: Row) -> DeregisterTableResponse:
    return DeregisterTableResponse(
        id=row.object_id.split(SEPARATOR), location=view.uri(row), properties=properties_of(row)
    )


def rename_table(view: View, request: Request) -> RenameTableResponse:
    """Rename a table, possibly into another namespace; the data stay where they are."""
    key, base = request.object_id(), view.newest()
    row = view.row(key, base)
    namespace = request.parts("new_namespace_id") if request.get("new_namespace_id") else key.split(SEPARATOR)[:-1]
    new = joined([*namespace, request.text("new_table_name") or ""])
    view.check_parents(new, base)
    _refuse_taken(new, base)
    view.publish(base, f"rename {shown(key)} to {shown(new)}", rows={new: row.renamed(new), key: None})
    return RenameTableResponse()
