"""Adoption of out-of-band commits: versions written by a table's path, after the version that the lake has."""

from __future__ import annotations

import contextlib

from conroi.catalog.catalog import Catalog, table_files
from conroi.catalog.foreign_keys import refuse_duplicate_keys
from conroi.catalog.names import shown
from conroi.catalog.part import Wanted
from conroi.catalog.publishing import LakePublisher, Order, Publishing
from conroi.catalog.records import Notes
from conroi.commit.foreign import read_final
from conroi.errors import ExpectedVersionMismatch, TooMuchContention

MOST_VERSIONS = 1000
"""Maximum number of versions that are adopted in one call."""


def adopt(catalog: Catalog, object_id: str) -> int:
    """Publish out-of-band versions, one by one, as the next commit to the table would; returns how many."""
    publisher = LakePublisher(catalog)
    for count in range(MOST_VERSIONS):
        state = catalog.state()
        row = catalog.row(object_id, state)
        files = table_files(catalog, row, publisher)
        foreign = read_final(files.objects, catalog.version_of(row) + 1, catalog.naming(row))
        if foreign is None:
            return count
        refuse_duplicate_keys(files, catalog.snapshot(row), foreign)
        notes = Notes(f"adopt version {foreign.version} of {shown(object_id)}, which was written past the lake")
        wanted = Wanted(object_id, object_id, files, None, row, foreign)
        with contextlib.suppress(ExpectedVersionMismatch):  # concurrent publication: look again
            Publishing(catalog, Order(state, [wanted], notes=notes)).run()
    raise TooMuchContention(
        f"The table {shown(object_id)!r} is written by its path faster than that can be taken over.",
        table=shown(object_id),
        hint="Stop the writers by path, and try again.",
    )
