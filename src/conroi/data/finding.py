"""Row lookup: the addresses of the rows that match a predicate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from conroi.commit.deletions import load_deletions
from conroi.data.comparisons import Comparison, comparisons, where_all_hold
from conroi.data.pinned import Pinned
from conroi.data.predicates import Predicate
from conroi.data.pylance import pylance_errors
from conroi.data.rows import addresses_of, offsets_by_fragment
from conroi.data.stored import stored_columns, wanted


def find_rows(pinned: Pinned, where: Predicate | None) -> dict[int, BitMap]:
    """The offsets of the rows that match the condition, by fragment."""
    simple = comparisons(where) if isinstance(where, str) else None
    found = None if simple is None else _among_kept(pinned, simple)
    return scan_rows(pinned, where) if found is None else found


def scan_rows(pinned: Pinned, where: Predicate | None, fragment_ids: Sequence[int] | None = None) -> dict[int, BitMap]:
    """The same by a scan, of the whole table or of some fragments."""
    with pylance_errors(pinned.root):
        chosen = None if fragment_ids is None else [pinned.dataset.get_fragment(number) for number in fragment_ids]
        found = pinned.dataset.scanner(columns=[], filter=where, with_row_address=True, fragments=chosen).to_table()
    return offsets_by_fragment(addresses_of(found["_rowaddr"]))


def _among_kept(pinned: Pinned, simple: list[Comparison]) -> dict[int, BitMap] | None:
    """From cached columns, or columns small enough to be cached; None if that is impossible."""
    names = list(dict.fromkeys(comparison.column for comparison in simple))  # one may be compared twice
    what = wanted(pinned, names)
    fragments = pinned.manifest.fragments
    if what is None or not what.fits(fragments) or _has_index(pinned, what.ids):
        return None
    types = dict(zip(names, what.types, strict=True))
    if not all(comparison.fits(types[comparison.column]) for comparison in simple):
        return None
    stored = stored_columns(pinned, fragments, what)
    if not stored:
        return None
    whole = [pa.chunked_array(list(parts)) for parts in zip(*stored, strict=True)]
    columns = dict(zip(names, whole, strict=True))
    found = where_all_hold(simple, [columns[comparison.column] for comparison in simple]).astype(np.int64)
    starts = np.cumsum([0, *(fragment.physical_rows for fragment in fragments)])
    rows: dict[int, BitMap] = {}
    for number in np.unique(np.searchsorted(starts, found, "right") - 1):
        fragment = fragments[number]
        here = found[np.searchsorted(found, starts[number]) : np.searchsorted(found, starts[number + 1])]
        alive = BitMap((here - starts[number]).astype(np.uint32))
        alive -= load_deletions(pinned.files.objects, pinned.manifest, fragment)
        if alive:
            rows[fragment.id] = alive
    return rows


def _has_index(pinned: Pinned, field_ids: tuple[int, ...]) -> bool:
    """Whether pylance need not look at every row."""
    return any(not set(field_ids).isdisjoint(index.fields) for index in pinned.manifest.indices)
