"""Result of a task that changes rows: the files it wrote, the rows it deletes, counts; never row data."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyroaring import BitMap

from conroi.data.files import read_columns
from conroi.data.rows import Rows
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.documents import parse_object
from conroi.spark.blobs import as_batch
from conroi.spark.parts import error_from_text, error_to_text
from conroi.stores.objects import Objects

SCHEMA = "task int, fragments binary, leaving binary, counts string, more binary, error string"
_ARROW = pa.schema(
    {
        "task": pa.int32(),
        "fragments": pa.binary(),
        "leaving": pa.binary(),
        "counts": pa.string(),
        "more": pa.binary(),
        "error": pa.string(),
    }
)


@dataclass(frozen=True)
class Answer:
    """The result of one task."""

    task: int = 0
    fragments: Sequence[pb.DataFragment] = ()
    """Written by the task, or changed by it."""
    leaving: Rows = field(default_factory=dict[int, BitMap])
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    more: bytes | None = None
    """Further results of this kind of task."""
    error: InvalidInputError | None = None
    """An error in the user's request; it would be the same if the task were retried."""

    def to_batch(self) -> pa.RecordBatch:
        """As one row."""
        row = {
            "task": self.task,
            "fragments": pb.Transaction.Append(fragments=self.fragments).SerializeToString(),
            "leaving": _rows_to_bytes(self.leaving),
            "counts": json.dumps(dict(self.counts)),
            "more": self.more,
            "error": None if self.error is None else error_to_text(self.error),
        }
        return as_batch([row], _ARROW)

    def columns(self, objects: Objects, names: Sequence[str], start: int = 0) -> list[pa.Table]:
        """Columns of the rows that were written, from this row on: read from their files."""
        found: list[pa.Table] = []
        for fragment in self.fragments:
            if start < fragment.physical_rows:
                parts = [read_columns(objects, file.path, names) for file in fragment.files]
                found += [part.slice(start) for part in parts]
            start = max(0, start - fragment.physical_rows)
        return found


def answers_of(rows: pa.Table) -> list[Answer]:
    """The results of all tasks, in their order; raises the first error among them."""
    found = sorted(rows.to_pylist(), key=lambda row: row["task"])
    for row in found:
        if row["error"] is not None:
            raise error_from_text(row["error"])
    return [
        Answer(
            task=row["task"],
            fragments=tuple(pb.Transaction.Append.FromString(row["fragments"]).fragments),
            leaving=_rows_from_bytes(row["leaving"]),
            counts=parse_object(row["counts"], "The counts of a task"),
            more=row["more"],
        )
        for row in found
    ]


def all_leaving(answers: Iterable[Answer]) -> dict[int, BitMap]:
    """The deleted rows of all tasks."""
    together: dict[int, BitMap] = {}
    for answer in answers:
        for fragment, offsets in answer.leaving.items():
            together[fragment] = together.get(fragment, BitMap()) | offsets
    return together


def total(answers: Iterable[Answer], name: str) -> int:
    """One count, of all tasks."""
    return sum(answer.counts.get(name, 0) for answer in answers)


def _rows_to_bytes(rows: Rows) -> bytes:
    parts: list[bytes] = []
    for fragment, offsets in rows.items():
        encoded = offsets.serialize()
        parts.append(struct.pack("<QQ", fragment, len(encoded)) + encoded)
    return b"".join(parts)


def _rows_from_bytes(data: bytes) -> dict[int, BitMap]:
    rows: dict[int, BitMap] = {}
    start = 0
    while start < len(data):
        fragment, length = struct.unpack_from("<QQ", data, start)
        start += 16
        rows[fragment] = BitMap.deserialize(data[start : start + length])
        start += length
    return rows
