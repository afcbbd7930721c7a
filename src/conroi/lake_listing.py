"""Lake methods for the catalog: namespaces, registration and adoption of table folders. No table is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from conroi.arguments import checked_calls
from conroi.catalog.catalog import Catalog, location_of
from conroi.catalog.external_participant import make_final
from conroi.catalog.folder_kinds import MANIFEST
from conroi.catalog.folders import found_row, releasing
from conroi.catalog.names import object_id, shown
from conroi.catalog.publication import Publishing, PublishRequest
from conroi.catalog.rows import NAMESPACE, Row
from conroi.catalog.state import CommitMetadata, LakeState
from conroi.errors import AlreadyExistsError, CorruptionError, InvalidInputError, NotFoundError
from conroi.format.naming import check_relative_path
from conroi.table import Table

if TYPE_CHECKING:
    from conroi.lake import Lake


@checked_calls
class LakeListing:
    """Namespaces and registration of tables."""

    _catalog: Catalog

    if TYPE_CHECKING:

        def _published(self, name: str) -> Table: ...
        def _state(self) -> LakeState: ...
        def _refuse_pinned(self) -> None: ...

    def create_namespace(self, name: str, *, message: str | None = None) -> None:
        """Create a namespace; `lake.create_table("sales.orders", …)` creates `sales` by itself."""
        key = object_id(name)
        self._publish_new({key: Row(key, NAMESPACE)}, message or f"create namespace {name}")

    def drop_namespace(self, name: str, *, message: str | None = None) -> None:
        """Drop an empty namespace."""
        key = object_id(name)
        state = self._state()
        row = state.rows.get(key)
        if row is None or row.is_table:
            raise NotFoundError(f"There is no namespace {name!r}.", hint="lake.namespaces() lists what there is.")
        self._publish_rows({key: None}, message or f"drop namespace {name}", state)

    def register(self, name: str, location: str, *, message: str | None = None) -> Table:
        """Register an existing Lance table in a folder of this lake, at its newest version."""
        key = object_id(name)
        location = self._checked_location(location)
        row = found_row(self._catalog, key, location)
        self._catalog.snapshot(row)  # loaded before the commit
        self._publish_new({key: row}, message or f"register {name}")
        return self._published(name)

    def _checked_location(self, location: str) -> str:
        """A folder that no table of the lake has."""
        location = location.strip("/")
        try:
            check_relative_path(location)
        except CorruptionError:
            raise InvalidInputError(
                f"{location!r} is not a folder inside the lake.", hint="Give its name there, such as orders.lance."
            ) from None
        if location.partition("/")[0] == MANIFEST:
            raise InvalidInputError(
                f"{MANIFEST} is the lake's own table.", table=location, hint="Register another folder."
            )
        for row in self._state().tables():
            if row.location is not None and row.location.strip("/") == location:
                raise AlreadyExistsError(
                    f"The folder {location!r} is that of the table {shown(row.object_id)!r}.",
                    table=shown(row.object_id),
                    hint="Open it by that name, or rename_table() it.",
                )
        return location

    def deregister(self, name: str, *, message: str | None = None) -> str:
        """Remove a table from the catalog and keep its folder; returns the folder's location.

        Everything that the lake has of it is finalized in the folder first, so ExpectedVersionMismatch after a
        concurrent commit. From then on expire() and gc() ignore the folder, also where older versions of the lake still
        list the table; those can read it for as long as the owner of the folder keeps its versions.
        """
        row = self._catalog.row(object_id(name), self._state())
        expected: dict[str, int] = {}
        if row.pin is not None:
            make_final(self._catalog, row)
            expected = {name: row.pin.version}
        with (
            releasing(self._catalog, [row]),
            cast("Lake", self).begin(message or f"deregister {name}", expect=expected) as tx,
        ):
            tx.drop_table(name)
        return location_of(row)

    def adopt(self, message: str | None = None) -> list[str]:
        """Register every unregistered Lance table in the lake's folder; returns their names."""
        known = {row.location for row in self._state().rows.values()}
        found: dict[str, Row | None] = {}
        for folder in self._folders():
            if folder.endswith(".lance") and folder not in known:
                key = object_id(folder.removesuffix(".lance"))
                with contextlib.suppress(NotFoundError):  # no table, though it is called like one
                    found[key] = found_row(self._catalog, key, folder)
        if found:
            self._publish_new(found, message or f"adopt {len(found)} tables")
        return sorted(shown(key) for key in found)

    def _folders(self) -> list[str]:
        names = {path.partition("/")[0] for path in self._catalog.root.list_names("") if "/" in path}
        return sorted(names)

    def _publish_new(self, rows: Mapping[str, Row | None], message: str) -> None:
        """Publish names that must be free, checked here and again at the commit."""
        state = self._catalog.state()
        for key in rows:
            if key in state.rows:
                raise AlreadyExistsError(
                    f"There is a {state.rows[key].object_type} {shown(key)!r} in the lake already.",
                    table=shown(key),
                    hint="Choose another name, or drop or deregister that one first.",
                )
        self._publish_rows(rows, message, state)

    def _publish_rows(self, rows: Mapping[str, Row | None], message: str, base: LakeState) -> None:
        self._refuse_pinned()
        order = PublishRequest(base, rows=rows, notes=CommitMetadata(message))
        Publishing(self._catalog, order).run()
