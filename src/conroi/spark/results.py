"""Task results: metadata of the files that a task wrote, deleted rows and counts, in one row; never data rows."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyroaring import BitMap

from conroi.data.keys import key_columns_of
from conroi.data.rows import Rows
from conroi.data.writer import WrittenFiles, read_columns
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.json import parse_object
from conroi.spark.packets import as_batch, encoded, error_from_text, error_to_text
from conroi.storage.objects import Objects

SCHEMA = "fragments binary, rows long, keys binary, error string"
_ARROW = pa.schema({"fragments": pa.binary(), "rows": pa.int64(), "keys": pa.binary(), "error": pa.string()})


@dataclass(frozen=True)
class Part:
    """The files that one task wrote, or the error in its rows."""

    fragments: bytes = b""
    rows: int = 0
    keys: bytes | None = None
    """The keys, as an Arrow stream; None if there is no key, or too many of them."""
    error: InvalidInputError | None = None

    @staticmethod
    def of(written: WrittenFiles, keys: pa.Table | None, most_key_bytes: int) -> Part:
        """What was written; with its keys, if they are few."""
        fragments = pb.Transaction.Append(fragments=written.fragments).SerializeToString()
        stream = None if keys is None or keys.nbytes > 8 * most_key_bytes else encoded(keys)
        is_small = stream is not None and len(stream) <= most_key_bytes
        return Part(fragments, written.rows, stream if is_small else None)

    def to_batch(self) -> pa.RecordBatch:
        """As one row."""
        error = None if self.error is None else error_to_text(self.error)
        row = {"fragments": self.fragments, "rows": self.rows, "keys": self.keys, "error": error}
        return pa.RecordBatch.from_pylist([row], schema=_ARROW)

    def files(self) -> WrittenFiles:
        """What was written."""
        return WrittenFiles(list(pb.Transaction.Append.FromString(self.fragments).fragments), self.rows)

    def key_parts(self, objects: Objects, key: Sequence[str]) -> list[pa.Table]:
        """The keys of the rows; read again from their files if they did not come along."""
        if self.keys is not None:
            return [pa.ipc.open_stream(self.keys).read_all()]
        wanted = list(dict.fromkeys(path.partition(".")[0] for path in key))
        files = [file for fragment in self.files().fragments for file in fragment.files]
        return [key_columns_of(read_columns(objects, file.path, wanted), key) for file in files]

    def by_file(self) -> Iterator[Part]:
        """The same, fragment by fragment."""
        keys = None if self.keys is None else pa.ipc.open_stream(self.keys).read_all()
        start = 0
        for fragment in self.files().fragments:
            rows = fragment.physical_rows
            mine = None if keys is None else encoded(keys.slice(start, rows))
            yield Part(pb.Transaction.Append(fragments=[fragment]).SerializeToString(), rows, mine)
            start += rows


def parts_of(rows: pa.Table) -> list[Part]:
    """The results of all tasks; raises the first error among them."""
    found: list[Part] = []
    for row in rows.to_pylist():
        if row["error"] is not None:
            raise error_from_text(row["error"])
        found.append(Part(row["fragments"], row["rows"], row["keys"]))
    return found


def joined(parts: Sequence[Part]) -> WrittenFiles:
    """All files together."""
    files = WrittenFiles()
    for part in parts:
        written = part.files()
        files.fragments.extend(written.fragments)
        files.rows += written.rows
    return files


ANSWER_SCHEMA = "task int, fragments binary, leaving binary, counts string, more binary, error string"
_ANSWER_ARROW = pa.schema(
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
        return as_batch([row], _ANSWER_ARROW)

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
