"""Row address translation through a compaction that keeps the order of rows.

Such a compaction concatenates the live rows of the old fragments in order, and splits that sequence into the new
fragments. So a row that was deleted concurrently in an old fragment has exactly one address in a new one, which is
computed without reading any data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from conroi.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Source:
    """One old fragment of a compaction."""

    physical_rows: int
    deleted_before: BitMap
    """The offsets that were deleted when the compaction read the fragment; these rows were not copied."""
    deleted_since: BitMap
    """The offsets that were deleted or moved while it was copying."""

    @property
    def copied_rows(self) -> int:
        return self.physical_rows - len(self.deleted_before)


def translate_deletions(sources: Sequence[Source], new_rows: Sequence[int]) -> tuple[BitMap, ...]:
    """For each new fragment, given by its number of rows, the offsets of the rows that were deleted meanwhile.

    >>> translate_deletions([Source(4, BitMap([0]), BitMap([2])), Source(2, BitMap(), BitMap([1]))], [3, 2])
    (BitMap([1]), BitMap([1]))
    """
    copied = sum(source.copied_rows for source in sources)
    if copied != sum(new_rows):
        raise InvalidInputError(
            f"The compaction says that it keeps every row, but it read {copied} and wrote {sum(new_rows)}.",
            hint="Stage it without rewrite_keeps_order; then it is run again when it meets a deletion.",
        )
    places = _places_in_run(sources)
    ends = np.cumsum(np.asarray(new_rows, np.int64))
    cuts = np.searchsorted(places, ends)
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    pieces = np.split(places, cuts[:-1]) if len(ends) else []
    return tuple(
        BitMap((piece - start).astype(np.uint32)) for piece, start in zip(pieces, starts.tolist(), strict=True)
    )


def _places_in_run(sources: Sequence[Source]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The rows deleted meanwhile, by their place in the run of all copied rows, ascending."""
    places: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = [np.empty(0, np.int64)]
    start = 0
    for source in sources:
        before = np.asarray(source.deleted_before.to_array(), np.int64)
        since = np.asarray((source.deleted_since - source.deleted_before).to_array(), np.int64)
        # Rows that were not copied do not count: a row moves up by as many as lie before it.
        places.append(start + since - np.searchsorted(before, since))
        start += source.copied_rows
    return np.concatenate(places)
