"""Input size estimate from metadata alone, and the partitioning of the input among tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from conroi.data.rows import count_rows
from conroi.data.width import row_width
from conroi.format import lance_pb2 as pb

if TYPE_CHECKING:
    from conroi.table import Table

BYTES_PER_TASK = 64 * 1024 * 1024
"""Approximate number of bytes of the requested columns that a task reads."""
_BYTES_PER_BATCH = 2 * 1024 * 1024
_FEWEST_ROWS, _MOST_ROWS = 1024, 32_768


@dataclass(frozen=True)
class Statistics:
    """Table statistics from metadata; no row is read."""

    rows: int
    fragments: int
    file_bytes: int
    """What its data files take on disk, with all columns and with rows that were deleted since."""


def statistics(table: Table) -> Statistics:
    """How big a table is. Spark knows no sizes of sources that are written in Python: use this to choose a join.

    `table.count_rows()` is the count that Spark would read the whole table for.
    """
    fragments = table.pinned.manifest.fragments
    file_bytes = sum(file.file_size_bytes for fragment in fragments for file in fragment.files)
    return Statistics(count_rows(fragments), len(fragments), file_bytes)


def shared_out(fragments: Sequence[pb.DataFragment], columns: pa.Schema, bytes_per_task: int) -> list[list[int]]:
    """The ids of the fragments that each task reads: neighbours together, until there is enough for a task."""
    width = max(1, row_width(columns))
    tasks: list[list[int]] = []
    room = 0
    for fragment in fragments:
        size = max(1, count_rows([fragment]) * width)
        if not tasks or size > room:
            tasks.append([])
            room = bytes_per_task
        tasks[-1].append(fragment.id)
        room -= size
    return tasks


def batch_rows(columns: pa.Schema) -> int:
    """How many rows of these columns to hand over at once."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _BYTES_PER_BATCH // max(1, row_width(columns))))
