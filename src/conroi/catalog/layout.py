"""Write amplification of `__manifest`: how a publication changes its fragments. Pure.

A row that changes often must be cheap to change, and ten thousand unchanged rows must not be rewritten. So one small
fragment is rewritten with every publication. When it is full it is left unchanged and a new one is started. A row that
changes in a full fragment is deleted there and moves to the small one. When full fragments become many or mostly
deleted, one publication rewrites everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyroaring import BitMap

Place = tuple[int, int]
"""A fragment and an offset in it."""

SMALL_ROWS = 64
MOST_FRAGMENTS = 24
MOST_DEAD = 0.5
"""Maximum fraction of deleted rows in all files; above it, everything is rewritten."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The changes of the fragments, and the rows that go into the new one, in this order."""

    kind: str
    """`small`, `new` or `all`: what is written besides the changed rows."""
    written: tuple[str, ...]
    removed: tuple[int, ...] = ()
    deleted: Mapping[int, BitMap] = field(default_factory=dict[int, BitMap])
    """Rows that are deleted in fragments that stay."""


def lay_out_rows(
    changed: Collection[str],
    added: Collection[str],
    places: Mapping[str, Place],
    small: int | None,
    physical: Mapping[int, int],
    dead: Mapping[int, BitMap],
) -> Layout:
    """The layout of a publication that changes these rows, of which those `added` are there after it."""
    in_small = {object_id for object_id, place in places.items() if place[0] == small} if small is not None else set()
    kind = "small" if len((in_small - set(changed)) | set(added)) <= SMALL_ROWS else "new"
    if _is_scattered(physical, dead):
        kind = "all"
    return laid_out(kind, changed, added, places, small, physical, dead)


def laid_out(
    kind: str,
    changed: Collection[str],
    added: Collection[str],
    places: Mapping[str, Place],
    small: int | None,
    physical: Mapping[int, int],
    dead: Mapping[int, BitMap],
) -> Layout:
    """The layout of this kind; deterministic, so that readers can derive it."""
    rewritten = set(physical) if kind == "all" else ({small} if kind == "small" and small is not None else set[int]())
    kept = {object_id for object_id, place in places.items() if place[0] in rewritten} if rewritten else set[str]()
    written = tuple(sorted((kept - set(changed)) | set(added)))
    deleted: dict[int, BitMap] = {}
    for object_id in changed:
        place = places.get(object_id)
        if place is not None and place[0] not in rewritten:
            deleted.setdefault(place[0], BitMap()).add(place[1])
    emptied = {f for f, offsets in deleted.items() if len(offsets | dead.get(f, BitMap())) >= physical[f]}
    return Layout(
        kind,
        written,
        removed=tuple(sorted(rewritten | emptied)),
        deleted={f: offsets for f, offsets in deleted.items() if f not in emptied},
    )


def _is_scattered(physical: Mapping[int, int], dead: Mapping[int, BitMap]) -> bool:
    if len(physical) > MOST_FRAGMENTS:
        return True
    gone = sum(len(offsets) for offsets in dead.values())
    return gone > SMALL_ROWS and gone > MOST_DEAD * sum(physical.values())
