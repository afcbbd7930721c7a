"""Key cache: the keys of the live rows of each fragment, cached by its files, with their addresses in any version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conroi.commit.deletions import load_deletions
from conroi.conflicts import vector_key
from conroi.conflicts.vectors import VectorKey
from conroi.data.arrow_types import positions
from conroi.data.pinned import Pinned
from conroi.data.stored import Column, Wanted, stored_columns, wanted
from conroi.format import lance_pb2 as pb
from conroi.stores.cache import BoundedCache

FEW_KEYS = 1000
"""Number of keys up to which they are looked up one by one in sorted parts; more are compared with all."""
_SMALL_ROWS = 4096
"""Number of rows up to which a part is compared whole."""


@dataclass(frozen=True, slots=True)
class Part:
    """The keys of one fragment's rows, in one state of the fragment."""

    vector: VectorKey | None
    """The deletion vector that they are without."""
    rows: pa.RecordBatch
    """With the offset of each, not its address: a rebase gives a fragment another id, while its files stay the same."""
    ascending: npt.NDArray[Any] | None
    """The keys as numbers, if they are numbers and in order."""


PARTS: BoundedCache[Part] = BoundedCache(64 * 1024 * 1024)
"""Cache: by table, files and fields, the newest state that was requested."""


def live_keys(
    pinned: Pinned, fragments: Sequence[pb.DataFragment], columns: Sequence[str], among: pa.Table | None = None
) -> pa.Table | None:
    """The columns, as k0, k1, …, of the live rows, with `_rowaddr`; None if only a scan can tell.

    With `among`, rows whose key is not among these may be left out.
    """
    what = wanted(pinned, columns)
    if what is None or not what.fits(fragments):
        return None
    parts = _parts(pinned, fragments, what)
    if parts is None:
        return None
    sought = _few_numbers(among, what)
    rows = [part.rows if sought is None or part.ascending is None else _narrowed(part, sought) for part in parts]
    return _addressed(pa.Table.from_batches(rows, _schema(what)), fragments, [part.num_rows for part in rows])


def _addressed(rows: pa.Table, fragments: Sequence[pb.DataFragment], counts: Sequence[int]) -> pa.Table:
    """The rows with their addresses in place of their offsets, by the ids that the fragments have now."""
    offsets = rows.column("_offset").to_numpy()
    starts = np.array([fragment.id << 32 for fragment in fragments], np.uint64)
    addresses = pa.array(offsets + np.repeat(starts, counts), pa.uint64())
    return rows.set_column(rows.num_columns - 1, "_rowaddr", cast("Any", addresses))


def _schema(what: Wanted) -> pa.Schema:
    keys = [(f"k{number}", type_) for number, type_ in enumerate(what.types)]
    return pa.schema([*keys, ("_offset", pa.uint64())])


# -------------------------------------------------------------------------------------- parts


def _parts(pinned: Pinned, fragments: Sequence[pb.DataFragment], what: Wanted) -> list[Part] | None:
    root, kinds = pinned.root, what.kinds
    places = [what.place_in(fragment) for fragment in fragments]
    vectors = [vector_key(f) if f.HasField("deletion_file") else None for f in fragments]
    parts: dict[int, Part] = {}
    for number, place in enumerate(places):
        kept = None if place is None else PARTS.get((root, place, kinds))
        if kept is not None and kept.vector == vectors[number]:
            parts[number] = kept
    missing = [number for number in range(len(fragments)) if number not in parts]
    stored = stored_columns(pinned, [fragments[number] for number in missing], what) if missing else []
    if stored is None:
        return None
    for number, columns in zip(missing, stored, strict=True):
        rows = _rows_that_are_there(pinned, fragments[number], columns, _schema(what))
        part = parts[number] = Part(vectors[number], rows, _ascending(rows))
        PARTS.put((root, places[number], kinds), part, rows.nbytes)
    return [parts[number] for number in range(len(fragments))]


def _rows_that_are_there(
    pinned: Pinned, fragment: pb.DataFragment, columns: Sequence[Column], schema: pa.Schema
) -> pa.RecordBatch:
    gone = load_deletions(pinned.files.objects, pinned.manifest, fragment)
    offsets = np.arange(fragment.physical_rows, dtype=np.uint64)
    if gone:
        is_there = np.ones(fragment.physical_rows, bool)
        is_there[np.asarray(gone.to_array())] = False
        offsets = offsets[is_there]
        there = positions(np.flatnonzero(is_there))
        columns = [column.take(there) for column in columns]
    return pa.record_batch([*columns, pa.array(offsets)], schema=schema)  # pyright: ignore[reportUnknownMemberType]


# ------------------------------------------------------------------------------ looking up a few


def _ascending(rows: pa.RecordBatch) -> npt.NDArray[Any] | None:
    key = rows.column(0)
    if rows.num_columns > 2 or rows.num_rows <= _SMALL_ROWS or not pa.types.is_integer(key.type) or key.null_count:
        return None
    numbers: npt.NDArray[Any] = key.to_numpy()
    return numbers if bool(np.all(numbers[1:] >= numbers[:-1])) else None


def _few_numbers(among: pa.Table | None, what: Wanted) -> npt.NDArray[Any] | None:
    """The keys sought, in order, if looking up each is worth it."""
    if among is None or among.num_rows > FEW_KEYS or len(what.types) != 1:
        return None
    type_ = what.types[0]
    if not pa.types.is_integer(type_) or among.schema.field(0).type != type_:
        return None
    return np.unique(among.column(0).drop_null().to_numpy())


def _narrowed(part: Part, sought: npt.NDArray[Any]) -> pa.RecordBatch:
    """The rows of the part that have one of the keys."""
    assert part.ascending is not None
    starts = np.searchsorted(part.ascending, sought, "left")
    counts = np.searchsorted(part.ascending, sought, "right") - starts
    found = np.repeat(starts, counts)  # a key that is there twice is found twice
    found += np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
    return part.rows.take(positions(found))
