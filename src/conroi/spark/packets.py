"""Shuffle packets: serialized rows that tasks send to other tasks, each with its destination."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conroi.data.arrow_types import positions
from conroi.errors import InvalidInputError
from conroi.spark.blobs import as_batch, in_packets, packed, unpacked
from conroi.spark.parts import error_from_text, error_to_text

SCHEMA = "place int, kind int, packet binary"
_ARROW = pa.schema({"place": pa.int32(), "kind": pa.int32(), "packet": pa.binary()})
_ERROR = -1
_AT_A_TIME_BYTES = 32 * 1024 * 1024


def sent(rows: pa.Table, places: npt.NDArray[Any], kind: int) -> Iterator[pa.RecordBatch]:
    """The rows on their way, each to its place."""
    order = np.argsort(places, kind="stable")
    ends = np.flatnonzero(np.diff(places[order], append=-1)) + 1
    start = 0
    for end in ends:
        here = rows.take(positions(order[start:end]))
        place = int(places[order[start]])
        for part in in_packets(here):
            yield as_batch([{"place": place, "kind": kind, "packet": packed(part)}], _ARROW)
        start = end


def sent_error(error: InvalidInputError) -> pa.RecordBatch:
    """What is wrong, on its way to the user."""
    return as_batch([{"place": 0, "kind": _ERROR, "packet": error_to_text(error).encode()}], _ARROW)


class Received:
    """All packets of one place."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.place = 0
        self._rows: dict[int, list[pa.Table]] = {}
        self._error: InvalidInputError | None = None
        for batch in batches:
            for row in batch.to_pylist():
                self._add(row["place"], row["kind"], row["packet"])

    def _add(self, place: int, kind: int, packet: bytes) -> None:
        self.place = place
        if kind == _ERROR:
            self._error = error_from_text(packet.decode())
        else:
            self._rows.setdefault(kind, []).append(unpacked(packet))

    def __bool__(self) -> bool:
        return bool(self._rows) or self._error is not None

    def rows(self, kind: int, schema: pa.Schema) -> pa.Table:
        """The rows of one kind; raises the error, if one was sent."""
        if self._error is not None:
            raise self._error
        return pa.concat_tables([schema.empty_table(), *self._rows.get(kind, [])])


def portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of packets (in a column of that name), in portions that are worth sharing out."""
    kept: list[pa.Table] = []
    for batch in batches:
        for packet in batch.column("packet"):
            kept.append(unpacked(packet.as_py()))
            if sum(part.nbytes for part in kept) >= _AT_A_TIME_BYTES:
                yield pa.concat_tables(kept)
                kept = []
    if kept:
        yield pa.concat_tables(kept)
