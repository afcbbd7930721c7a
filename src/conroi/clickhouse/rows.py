"""Row encoding of an export: numbered, and serialized in a format that ClickHouse reads."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from conroi.errors import InvalidInputError

ROW = "conroi_row"
"""The column with the row's number: each export's are one unbroken run."""
ARROW, LINES = "ArrowStream", "JSONEachRow"


class Numbered:
    """The batches of many sources in one schema, with a number for each row."""

    def __init__(self, readers: Sequence[pa.RecordBatchReader], first: int) -> None:
        self._readers = readers
        schema = readers[0].schema.remove_metadata()
        self._names = schema.names
        self.schema: pa.Schema = schema.append(pa.field(ROW, pa.uint64(), nullable=False))
        self.first = first
        self.next: int = first
        """Behind the last number that was given."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for reader in self._readers:
            for batch in reader:
                if batch.num_rows:
                    yield self._numbered(batch)

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        end = self.next + batch.num_rows
        numbers = pa.array(np.arange(self.next, end, dtype=np.uint64))
        self.next = end
        return pa.RecordBatch.from_arrays([*batch.select(self._names).columns, numbers], names=self.schema.names).cast(
            self.schema
        )


def alike(readers: Sequence[pa.RecordBatchReader]) -> None:
    """Sources that become one run have the same columns."""
    first = set(readers[0].schema.names)
    for reader in readers[1:]:
        if set(reader.schema.names) != first:
            raise InvalidInputError(
                f"The sources have different columns: {sorted(first ^ set(reader.schema.names))}.",
                hint="Give sources with the same columns.",
            )


def as_arrow(rows: Numbered) -> Iterator[bytes]:
    """An Arrow stream, batch by batch."""
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file that hands over what was written since it was asked last."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def as_lines(rows: Numbered) -> Iterator[bytes]:
    """A JSON object for each row, for servers that do not read Arrow."""
    for batch in rows:
        yield "".join(json.dumps(row, default=_in_json) + "\n" for row in batch.to_pylist()).encode()


def _in_json(value: object) -> str:
    assert isinstance(value, date), "no other type is let in for such servers"
    return value.isoformat()
