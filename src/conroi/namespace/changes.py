"""Namespace requests that declare, create, register, drop and deregister tables."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from lance_namespace import (
    CreateTableResponse,
    DeclareTableResponse,
    DeregisterTableResponse,
    DropTableResponse,
    RegisterTableResponse,
    RenameTableResponse,
)

from conroi.catalog.external_participant import current_version
from conroi.catalog.folder_kinds import MANIFEST
from conroi.catalog.folders import found_row, mark_created, new_location, releasing
from conroi.catalog.names import SEPARATOR, shown
from conroi.catalog.participant import TableChange
from conroi.catalog.preconditions import Expectation
from conroi.catalog.rows import TABLE, Row, new_table_row
from conroi.catalog.state import LakeState
from conroi.errors import AlreadyExistsError, CorruptionError, InvalidInputError
from conroi.format.naming import check_relative_path
from conroi.namespace.requests import Request, joined
from conroi.namespace.tables import properties_of
from conroi.namespace.view import View
from conroi.verbs.create import create

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
    return row.with_notes({**properties, "conroi.incarnation": str(environment.new_uuid())})


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
    if inside.partition("/")[0] == MANIFEST or any(row.location == inside for row in base.rows.values()):
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
