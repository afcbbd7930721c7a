"""Creation and registration of tables: the folder of a new table, the catalog row of a folder that already exists."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from conroi.catalog.catalog import Catalog
from conroi.catalog.names import folder_name, shown
from conroi.catalog.rows import TABLE, Row, new_table_row
from conroi.commit.forked import branch_folder
from conroi.errors import NotFoundError


def new_location(catalog: Catalog, object_id: str) -> str:
    """The folder for a new table: named after it if that is free, else one that was never used.

    A table that is dropped and created again gets another folder, so that a paused writer of the old one cannot touch
    the new one.
    """
    plain = f"{object_id}.lance"
    if catalog.branch is not None:  # no other branch may choose the same name
        return branch_folder(_unused(catalog, object_id), catalog.branch)
    # Of names that are not fit for a folder, two could get the same one.
    if folder_name(object_id) == object_id and next(iter(catalog.objects(plain).list_names("")), None) is None:
        return plain
    return _unused(catalog, object_id)


def new_row(catalog: Catalog, object_id: str) -> Row:
    """The row of a table to be created, with a folder and a table id of its own."""
    row = new_table_row(object_id, new_location(catalog, object_id), catalog.environment)
    return row.with_notes({"conroi.incarnation": str(catalog.environment.new_uuid())})


def found_row(catalog: Catalog, object_id: str, location: str, properties: Mapping[str, str] | None = None) -> Row:
    """The row of an existing table that other software created in this folder, pinned at its newest version.

    It is another table than one that the lake had in the same folder before.
    """
    incarnation = {"conroi.incarnation": str(catalog.environment.new_uuid())}
    row = catalog.pinned(Row(object_id, TABLE, location).with_notes({**(properties or {}), **incarnation}))
    if row.pin is None:
        raise NotFoundError(
            f"There is no Lance table in the folder {location!r} of the lake.",
            table=shown(object_id),
            hint="Give the folder as it is called inside the lake, such as orders.lance.",
        )
    return row


def _unused(catalog: Catalog, object_id: str) -> str:
    uuid = catalog.environment.new_uuid()
    digest = hashlib.sha256(uuid.bytes).hexdigest()[:8]
    return f"{digest}_{folder_name(object_id)}"
