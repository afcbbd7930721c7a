"""Idempotency of namespace requests: a request that is repeated after a lost response returns the first result.

A staged manifest has a unique name, and the lake's history records under which name each version was published. So a
request for a version that the lake already has is looked up there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from conroi.catalog.heads import Published
from conroi.catalog.names import shown
from conroi.catalog.namespace_view import View
from conroi.catalog.prebuilt import current_version
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.errors import CommitStateUnknown


class Asked(Protocol):
    """A version that a client asks for, and the key of the manifest that it staged."""

    @property
    def object_id(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def key(self) -> str: ...


def published_before(view: View, state: LakeState, entries: Sequence[Asked]) -> Published | None:
    """The publication of these very manifests, all of them; None if there was none.

    CommitStateUnknown if the lake's history does not go back far enough to tell.
    """
    if not any(_may_be_published(view, state, entry) for entry in entries):
        return None
    oldest = state.version + 1
    for published in view.catalog.heads.history(state.version, None):
        oldest = published.version
        rows = [row for row in (published.changes or {}).values() if row is not None]
        if all(any(is_published_as(row, entry) for row in rows) for entry in entries):
            return published
        if any(_is_at_or_before(row, entry) for row in rows for entry in entries):
            return None  # another manifest became that version
    if oldest <= 1:
        return None
    first = entries[0]
    raise CommitStateUnknown(
        f"Version {first.version} of table {shown(first.object_id)!r} was published before version {oldest} of the "
        "lake, the oldest that is there; it cannot be told whether it was this one.",
        table=shown(first.object_id),
        version=first.version,
        hint="Look for the rows in the table before you write them again.",
    )


def _may_be_published(view: View, state: LakeState, entry: Asked) -> bool:
    """Whether the table has that version, or is another one now; else the request is new."""
    row = state.table(entry.object_id)
    if row is None:
        return entry.version > 1  # only declared in the same batch, or dropped
    is_here = row.location is not None and f"/{row.location}/" in f"/{entry.key.lstrip('/')}"
    return not is_here or current_version(view.catalog, row) >= entry.version


def is_published_as(row: Row, entry: Asked) -> bool:
    """Whether the row has the manifest that is asked for."""
    pin, key = row.pin, f"/{entry.key.lstrip('/')}"
    return pin is not None and pin.version == entry.version and key.endswith(f"/{row.location}/{pin.manifest}")


def _is_at_or_before(row: Row, entry: Asked) -> bool:
    """Whether this publication is of the same folder, and not after the version that is asked for."""
    is_same = row.location is not None and f"/{row.location}/" in f"/{entry.key.lstrip('/')}"
    return is_same and row.pin is not None and row.pin.version <= entry.version
