"""Catalog entries of a lake: namespaces, registration and adoption of table folders, settings. No table is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from conroi.branches.branches import configured
from conroi.catalog.catalog import Catalog
from conroi.catalog.external_participant import make_final
from conroi.catalog.folders import found_row, releasing
from conroi.catalog.names import object_id, shown
from conroi.catalog.participant import PublishRequest
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import NAMESPACE, Row
from conroi.catalog.state import SETTINGS, CommitMetadata, LakeState
from conroi.errors import AlreadyExistsError, CorruptionError, InvalidInputError, NotFoundError
from conroi.format.naming import check_relative_path
from conroi.format.on_disk import INSERTS_SETTING, LAKE_MANIFEST
from conroi.inserts import Mode
from conroi.inserts.insert_locks import checked_mode
from conroi.snapshots.snapshot import TableStorage
from conroi.transaction import Transaction


def create_namespace(catalog: Catalog, name: str, message: str | None = None) -> None:
    """Create a namespace; `lake.create_table("sales.orders", …)` creates `sales` by itself."""
    key = object_id(name)
    _publish_new(catalog, {key: Row(key, NAMESPACE)}, message or f"create namespace {name}")


def drop_namespace(catalog: Catalog, name: str, message: str | None = None) -> None:
    """Drop an empty namespace."""
    key = object_id(name)
    state = catalog.state()
    row = state.rows.get(key)
    if row is None or row.is_table:
        raise NotFoundError(f"There is no namespace {name!r}.", hint="lake.namespaces() lists what there is.")
    _publish_rows(catalog, {key: None}, message or f"drop namespace {name}", state)


def register(catalog: Catalog, name: str, location: str, message: str | None = None) -> None:
    """Register an existing Lance table in a folder of this lake, at its newest version."""
    key = object_id(name)
    location = _checked_location(catalog, location)
    row = found_row(catalog, key, location)
    catalog.snapshot(row)  # loaded before the commit
    _publish_new(catalog, {key: row}, message or f"register {name}")


def _checked_location(catalog: Catalog, location: str) -> str:
    """A folder that no table of the lake has."""
    location = location.strip("/")
    try:
        check_relative_path(location)
    except CorruptionError:
        raise InvalidInputError(
            f"{location!r} is not a folder inside the lake.", hint="Give its name there, such as orders.lance."
        ) from None
    if location.partition("/")[0] == LAKE_MANIFEST:
        raise InvalidInputError(
            f"{LAKE_MANIFEST} is the lake's own table.", table=location, hint="Register another folder."
        )
    for row in catalog.state().tables():
        if row.location is not None and row.location.strip("/") == location:
            raise AlreadyExistsError(
                f"The folder {location!r} is that of the table {shown(row.object_id)!r}.",
                table=shown(row.object_id),
                hint="Open it by that name, or rename_table() it.",
            )
    return location


def deregister(catalog: Catalog, name: str, message: str | None = None) -> str:
    """Remove a table from the catalog and keep its folder; returns the folder's location.

    Everything that the lake has of it is finalized in the folder first, so ExpectedVersionMismatch after a
    concurrent commit. From then on expire() and gc() ignore the folder, also where older versions of the lake still
    list the table; those can read it for as long as the owner of the folder keeps its versions.
    """
    row = catalog.row(object_id(name), catalog.state())
    expected: dict[str, int] = {}
    if row.pin is not None:
        make_final(catalog, row)
        expected = {name: row.pin.version}
    with (
        releasing(catalog, [row]),
        Transaction(catalog, notes=CommitMetadata(message or f"deregister {name}"), expect=expected) as tx,
    ):
        tx.drop_table(name)
    return row.folder


def adopt_folders(catalog: Catalog, message: str | None = None) -> list[str]:
    """Register every unregistered Lance table in the lake's folder; returns their names."""
    known = {row.location for row in catalog.state().rows.values()}
    found: dict[str, Row | None] = {}
    for folder in _folders(catalog):
        if folder.endswith(".lance") and folder not in known:
            key = object_id(folder.removesuffix(".lance"))
            with contextlib.suppress(NotFoundError):  # no table, though it is called like one
                found[key] = found_row(catalog, key, folder)
    if found:
        _publish_new(catalog, found, message or f"adopt {len(found)} tables")
    return sorted(shown(key) for key in found)


def _folders(catalog: Catalog) -> list[str]:
    names = {path.partition("/")[0] for path in catalog.root.list_names("") if "/" in path}
    return sorted(names)


def _publish_new(catalog: Catalog, rows: Mapping[str, Row | None], message: str) -> None:
    """Publish names that must be free, checked here and again at the commit."""
    state = catalog.state()
    for key in rows:
        if key in state.rows:
            raise AlreadyExistsError(
                f"There is a {state.rows[key].object_type} {shown(key)!r} in the lake already.",
                table=shown(key),
                hint="Choose another name, or drop or deregister that one first.",
            )
    _publish_rows(catalog, rows, message, state)


def _publish_rows(catalog: Catalog, rows: Mapping[str, Row | None], message: str, base: LakeState) -> None:
    order = PublishRequest(base, rows=rows, notes=CommitMetadata(message))
    Publishing(catalog, order).run()


def set_locks(catalog: Catalog, manifest: TableStorage | None, mode: Mode) -> None:
    """Set the kind of insert locks of the lake: in the configuration of `__manifest`, or in a row of its store."""
    checked_mode(mode)
    if manifest is not None:
        configured(manifest, manifest.head(), {INSERTS_SETTING: mode}, f"locks: {mode}")
        catalog.state()
        return
    state = catalog.state()
    row = state.rows.get(SETTINGS) or Row(SETTINGS, "settings")
    _publish_rows(catalog, {SETTINGS: row.with_notes({INSERTS_SETTING: mode})}, f"locks: {mode}", state)
