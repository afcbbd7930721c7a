"""Namespace requests about nested namespaces: `sales` of `sales.orders`."""

from __future__ import annotations

from collections.abc import Sequence

from lance_namespace import (
    CreateNamespaceResponse,
    DescribeNamespaceResponse,
    DropNamespaceResponse,
    ListNamespacesResponse,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
)

from conroi.catalog.names import SEPARATOR, shown
from conroi.catalog.namespace_errors import no_namespace
from conroi.catalog.namespace_requests import Request, joined, paged
from conroi.catalog.namespace_view import View, is_namespace
from conroi.catalog.rows import NAMESPACE, Row
from conroi.catalog.state import LakeState
from conroi.errors import AlreadyExistsError, InvalidInputError


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
