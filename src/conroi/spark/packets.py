"""Packets: rows, errors and results between tasks and the driver, and the hash that sends equal keys to one task."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError
from pyroaring import BitMap

from conroi.data.arrow_types import positions
from conroi.data.keys import key_columns_of
from conroi.data.rows import Rows
from conroi.data.writer import WrittenFiles, read_columns
from conroi.errors import CorruptionError, DuplicateKeyError, InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.json import Document, parse_object
from conroi.format.roaring import decode_bitmap
from conroi.storage.objects import Objects

_UNREADABLE = (
    *(pa.ArrowException, DecodeError, struct.error),
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError, TypeError, ValueError),
)
"""What decoders raise for bytes that are none of ours."""

BLOB_BYTES = 1024 * 1024
"""Approximate size of a packet, in bytes."""


@contextlib.contextmanager
def whole(what: str) -> Generator[None]:
    """CorruptionError if a message between tasks, the driver and the JVM cannot be decoded."""
    try:
        yield
    except _UNREADABLE as error:
        raise CorruptionError(
            f"{what} is damaged: {str(error)[:200] or type(error).__name__}.",
            hint="Run the statement again; all processes must have the same release of conroi.",
        ) from error


def packed(rows: pa.Table) -> bytes:
    """The rows as one packet."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue().to_pybytes()


def unpacked(packet: bytes) -> pa.Table:
    """The rows of a packet."""
    with whole("A packet"):
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


def encoded(keys: pa.Table) -> bytes:
    """The keys as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(keys)
    return sink.getvalue().to_pybytes()


def error_to_text(error: InvalidInputError) -> str:
    """An error on its way to the user's process."""
    facts = {"kind": type(error).__name__, "message": error.message, "table": error.table, "hint": error.hint}
    keys = error.keys if isinstance(error, DuplicateKeyError) else None
    if keys:
        facts["keys"] = base64.b64encode(encoded(pa.Table.from_pylist([dict(key) for key in keys]))).decode()
    return json.dumps(facts)


def error_from_text(text: str) -> InvalidInputError:
    """The error, there."""
    facts = Document(parse_object(text, "The error of a task"), "The error of a task")
    kind, message = facts.text("kind"), facts.text("message")
    table, hint = facts.optional_text("table"), facts.optional_text("hint")
    if kind == DuplicateKeyError.__name__:
        packet = facts.optional_text("keys")
        with whole("The error of a task"):
            keys = [] if packet is None else unpacked(base64.b64decode(packet)).to_pylist()
        return DuplicateKeyError(message, table=table, keys=keys, hint=hint)
    return (UnsupportedError if kind == UnsupportedError.__name__ else InvalidInputError)(
        message, table=table, hint=hint
    )


# ---------------------------------------------------------------------------- which task gets a key

Numbers = npt.NDArray[np.uint64]
_STEP = 0x9E3779B97F4A7C15
_FACTOR = 0x100000001B3


def buckets_of(keys: pa.Table, count: int) -> npt.NDArray[np.int32]:
    """For each key (k0, k1, …) the number of its bucket."""
    total = np.zeros(keys.num_rows, np.uint64)
    for column in keys.columns:
        total = _mixed(total * np.uint64(31) + _numbers(column))
    return (total % np.uint64(count)).astype(np.int32)


def _numbers(column: pa.ChunkedArray[Any]) -> Numbers:
    chunks = [_hashed(chunk) for chunk in column.chunks]
    return np.concatenate(chunks) if chunks else np.empty(0, np.uint64)


def _hashed(values: pa.Array[Any]) -> Numbers:
    """Equal values have equal numbers; null is 0."""
    type_ = values.type
    if pa.types.is_null(type_) or not len(values):
        return np.zeros(len(values), np.uint64)
    if pa.types.is_boolean(type_):
        values = values.cast(pa.uint8())
    found = _of_texts(values) if _is_text(type_) else _of_fixed(values)
    found[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def _is_text(type_: pa.DataType) -> bool:
    is_large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    return is_large or pa.types.is_string(type_) or pa.types.is_binary(type_)


def _of_fixed(values: pa.Array[Any]) -> Numbers:
    """Values of one width: their bytes."""
    width = values.type.bit_width // 8
    data = _buffer(values, 1)[values.offset * width : (values.offset + len(values)) * width]
    if width in (1, 2, 4, 8):
        return _mixed(data.view(f"u{width}").astype(np.uint64))
    weights = _powers(width)
    return _mixed((data.reshape(-1, width).astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64))


def _of_texts(values: pa.Array[Any]) -> Numbers:
    """Values of any length: the sum of their bytes, each weighted by its place."""
    is_large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    offsets = _buffer(values, 1).view(np.int64 if is_large else np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    data = _buffer(values, 2)[offsets[0] : offsets[-1]].astype(np.uint64)
    starts = offsets[:-1] - offsets[0]
    places = np.arange(len(data)) - np.repeat(starts, lengths)
    weighted = data * _powers(int(lengths.max(initial=0)))[places]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weighted, dtype=np.uint64)])
    return _mixed(sums[starts + lengths] - sums[starts] + lengths.astype(np.uint64))


def _buffer(values: pa.Array[Any], number: int) -> npt.NDArray[np.uint8]:
    buffer = values.buffers()[number]
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(memoryview(buffer), np.uint8)


def _powers(count: int) -> Numbers:
    factors = np.full(count, _FACTOR, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _mixed(numbers: Numbers) -> Numbers:
    """Spread, so that numbers in a row are not in a row any more."""
    numbers = numbers + np.uint64(_STEP)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


# ---------------------------------------------------------------------------- rows for other tasks

PACKET_SCHEMA = "place int, kind int, packet binary"
_PACKET_ARROW = pa.schema({"place": pa.int32(), "kind": pa.int32(), "packet": pa.binary()})
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
            yield as_batch([{"place": place, "kind": kind, "packet": packed(part)}], _PACKET_ARROW)
        start = end


def sent_error(error: InvalidInputError) -> pa.RecordBatch:
    """What is wrong, on its way to the user."""
    return as_batch([{"place": 0, "kind": _ERROR, "packet": error_to_text(error).encode()}], _PACKET_ARROW)


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


# ------------------------------------------------------------------------------ task results

PART_SCHEMA = "fragments binary, rows long, keys binary, error string"
_PART_ARROW = pa.schema({"fragments": pa.binary(), "rows": pa.int64(), "keys": pa.binary(), "error": pa.string()})


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
        return pa.RecordBatch.from_pylist([row], schema=_PART_ARROW)

    def files(self) -> WrittenFiles:
        """What was written."""
        return WrittenFiles(list(_fragments_of(self.fragments)), self.rows)

    def key_parts(self, objects: Objects, key: Sequence[str]) -> list[pa.Table]:
        """The keys of the rows; read again from their files if they did not come along."""
        if self.keys is not None:
            return [unpacked(self.keys)]
        wanted = list(dict.fromkeys(path.partition(".")[0] for path in key))
        files = [file for fragment in self.files().fragments for file in fragment.files]
        return [key_columns_of(read_columns(objects, file.path, wanted), key) for file in files]

    def by_file(self) -> Iterator[Part]:
        """The same, fragment by fragment."""
        keys = None if self.keys is None else unpacked(self.keys)
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
            fragments=tuple(_fragments_of(row["fragments"])),
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


def _fragments_of(data: bytes) -> Iterable[pb.DataFragment]:
    with whole("What a task wrote"):
        return pb.Transaction.Append.FromString(data).fragments


def _rows_to_bytes(rows: Rows) -> bytes:
    parts: list[bytes] = []
    for fragment, offsets in rows.items():
        encoded = offsets.serialize()
        parts.append(struct.pack("<QQ", fragment, len(encoded)) + encoded)
    return b"".join(parts)


def _rows_from_bytes(data: bytes) -> dict[int, BitMap]:
    rows: dict[int, BitMap] = {}
    start = 0
    with whole("The deleted rows of a task"):
        while start < len(data):
            fragment, length = struct.unpack_from("<QQ", data, start)
            start += 16
            rows[fragment] = decode_bitmap(data[start : start + length], what="The deleted rows of a task")
            start += length
    return rows
