"""Rows of a lake as a branch has them: each table in the branch's own folder, its earlier versions at their origin."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.errors import NotFoundError
from conroi.snapshots.branch_storage import TREE, branch_folder

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
    inherited = [key for key in state.unpinned if not is_own(branch, rows[key])]
    if inherited:  # tables that no version was pinned of when the branch began: those of that time
        moment_ns = began_ns()
        rows |= {key: replace(rows[key], moment_ns=moment_ns) for key in inherited}
    return replace(state, rows=rows)


def is_own(branch: str, row: Row) -> bool:
    """Whether the table has a folder of its own on the branch."""
    return row.location is not None and row.location.endswith(f"/{TREE}/{branch}")
