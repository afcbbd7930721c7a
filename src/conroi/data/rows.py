"""Row addresses: group them by fragment, and delete them by deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.snapshots.deletions import load_deletions, write_deletions
from conroi.snapshots.snapshot import TableStorage

Rows = Mapping[int, BitMap]
"""Physical offsets by fragment id."""


def offsets_by_fragment(addresses: npt.NDArray[np.uint64]) -> dict[int, BitMap]:
    """Row addresses (`fragment << 32 | offset`) as offsets by fragment."""
    if not len(addresses):
        return {}
    ordered = np.sort(addresses)
    fragments = (ordered >> np.uint64(32)).astype(np.uint32)
    starts = np.flatnonzero(np.diff(fragments, prepend=fragments[0] + 1))
    offsets = (ordered & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    pieces = np.split(offsets, starts[1:])
    return {int(fragments[start]): BitMap(piece) for start, piece in zip(starts, pieces, strict=True)}


def addresses_of(column: pa.ChunkedArray[Any] | pa.Array[Any]) -> npt.NDArray[np.uint64]:
    """The `_rowaddr` column as numbers."""
    return column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()


def addresses_in(rows: Rows) -> pa.ChunkedArray[Any]:
    """Offsets by fragment as row addresses."""
    parts = [np.asarray(offsets, np.uint64) + np.uint64(fragment << 32) for fragment, offsets in rows.items()]
    return pa.chunked_array([pa.array(part) for part in parts], pa.uint64())


@dataclass(frozen=True)
class TakenOut:
    """Fragments after the deletion of rows."""

    updated: tuple[pb.DataFragment, ...]
    """Fragments with a new deletion vector."""
    removed: tuple[int, ...]
    """Fragments without live rows."""
    unwritten: frozenset[int] = frozenset()
    """Of those with a new deletion vector, the ones for which it is still to be written."""


def take_out(files: TableStorage, manifest: Manifest, version: int, rows: Rows, *, later: bool = False) -> TakenOut:
    """Write the deletion vectors that delete these rows; `later` leaves that to the commit."""
    unions = {fragment: _union(files, manifest, fragment, gone) for fragment, gone in rows.items() if gone}
    removed = [f for f, gone in unions.items() if len(gone) >= manifest.fragments_by_id[f].physical_rows]
    left = {fragment: gone for fragment, gone in unions.items() if fragment not in set(removed)}
    if later:
        unchanged = [manifest.fragments_by_id[fragment] for fragment in sorted(left)]
        return TakenOut(tuple(unchanged), tuple(sorted(removed)), frozenset(left))
    written = write_deletions(files, left, version)
    updated = [with_deletions(manifest.fragments_by_id[f], file) for f, (file, _) in sorted(written.items())]
    return TakenOut(tuple(updated), tuple(sorted(removed)))


def _union(files: TableStorage, manifest: Manifest, fragment_id: int, gone: BitMap) -> BitMap:
    fragment = manifest.fragments_by_id.get(fragment_id)
    if fragment is None or gone.max() >= fragment.physical_rows:
        raise CorruptionError(
            f"Fragment {fragment_id} does not have the rows that a scan of it returned.",
            table=files.root,
            hint="A data file is not the one that the manifest names; open an older version.",
        )
    return load_deletions(files.objects, manifest, fragment) | gone


def with_deletions(fragment: pb.DataFragment, file: pb.DeletionFile) -> pb.DataFragment:
    """The fragment with this deletion vector in place of the one it had."""
    changed = pb.DataFragment()
    changed.CopyFrom(fragment)
    changed.deletion_file.CopyFrom(file)
    return changed
