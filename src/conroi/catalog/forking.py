"""Tables on a lake branch: their catalog rows, and the overlay that the first write to one creates."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace

from conroi.catalog.catalog import Catalog, location_of
from conroi.catalog.names import shown
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.commit.forked import TREE, branch_folder, write_fork
from conroi.commit.snapshot import Snapshot
from conroi.errors import NotFoundError, StoreError, UnsupportedError
from conroi.refs.lance_branches import write_lance_ref

_log = logging.getLogger(__name__)

DELETED = "conroi.deleted"
"""The setting of a branch's `__manifest` that marks it as deleted: a writer that reads it, or loses a race to it,
stops.
"""
LINEAGE = "conroi.lineage"
"""The setting that is stored with it: where the branch started, which its name no longer tells."""
_ON_BRANCH = re.compile(rf"(?P<table>.+)/{TREE}/(?P<branch>[^/]+-[0-9a-f]{{8}})")


def table_of(location: str) -> str:
    """The folder of the table itself, of which this may be the folder on a branch."""
    found = _ON_BRANCH.fullmatch(location)
    return location if found is None else found["table"]


def seen_on(branch: str, row: Row) -> Row:
    """A row as the branch has it: in the branch's own folder, with the earlier versions at their origin."""
    if not row.is_table or row.pin is None or row.location is None:
        return row
    location = branch_folder(table_of(row.location), branch)
    if location == row.location:
        return row
    # One that was never written on the branch it comes from has its versions where that one has them.
    here = () if row.is_inherited else ((row.location, row.pin.version),)
    return row.moved(location, (*here, *row.lineage))


def state_on(branch: str, began_ns: Callable[[], int], state: LakeState) -> LakeState:
    """The state as the branch has it; NotFoundError if the branch was deleted."""
    if DELETED in state.config:
        raise NotFoundError(
            f"The branch {branch.rpartition('-')[0]!r} of the lake was deleted; nothing is published there any more.",
            hint="lake.branches lists what there is. One of the same name that was created since is another branch.",
        )
    rows = {key: seen_on(branch, row) for key, row in state.rows.items()}
    inherited = [key for key in state.unpinned if not _is_own(branch, rows[key])]
    if inherited:  # tables that no version was pinned of when the branch began: those of that time
        moment_ns = began_ns()
        rows |= {key: replace(rows[key], moment_ns=moment_ns) for key in inherited}
    return replace(state, rows=rows)


def _is_own(branch: str, row: Row) -> bool:
    return row.location is not None and row.location.endswith(f"/{TREE}/{branch}")


def fork_to_read(catalog: Catalog, row: Row, seen: Snapshot) -> None:
    """Create the branch folder of a table with indices at its first read: pylance looks for them in the manifest file.

    Best effort, since a reader may lack write permission: then it is read without its indices.
    """
    try:
        fork(catalog, row, seen)
    except StoreError as error:
        _log.debug("%s is not forked: %s", row.location, error)


def fork(catalog: Catalog, row: Row, seen: Snapshot) -> None:
    """Before the first version of a table on a branch: make the branch's folder a Lance branch of the table."""
    assert catalog.branch is not None
    if row.pin is None and not _is_own(catalog.branch, row):
        raise UnsupportedError(
            f"The lake does not manage table {shown(row.object_id)!r} yet, so no branch can write it.",
            table=shown(row.object_id),
            hint="Change it once on the main branch, and make the branch again.",
        )
    if not row.lineage or seen.version > row.lineage[0][1]:
        return
    if seen.is_final:  # otherwise its finalization does it
        write_fork(catalog.objects_of(row), seen.located.path)
    table, parent = table_of(location_of(row)), row.lineage[0][0]
    is_branch = parent != table and table_of(parent) == table
    parent_branch = parent.rpartition("/")[2] if is_branch else None
    write_lance_ref(catalog.objects(table), catalog.branch, parent_branch, seen.version, catalog.environment)
