"""Arrow rows serialized as binary columns of Spark.

Spark splits columns into rows and reassembles them at every hand-over. Rows that Spark need not look at travel
serialized: that is faster, and every type is preserved, also those that Spark does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

BLOB_BYTES = 1024 * 1024
"""Approximate size of a packet, in bytes."""


def packed(rows: pa.Table) -> bytes:
    """The rows as one packet."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue().to_pybytes()


def unpacked(packet: bytes) -> pa.Table:
    """The rows of a packet."""
    return pa.ipc.open_stream(packet).read_all()


def in_packets(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in parts, each big enough for one packet."""
    if not rows.num_rows:
        return
    per_packet = max(1, rows.num_rows * BLOB_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, per_packet):
        yield rows.slice(start, per_packet)


def collected(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together until they are enough for a packet."""
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            kept.append(batch)
            size += batch.nbytes
        if size >= BLOB_BYTES:
            yield from in_packets(pa.Table.from_batches(kept))
            kept, size = [], 0
    if kept:
        yield from in_packets(pa.Table.from_batches(kept))


def as_batch(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as Spark takes them from a function over batches."""
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)
