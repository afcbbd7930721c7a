"""Readers of what Spark carries and writes down: packets and parts of tasks, pinned versions, offsets, the helper's
messages."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping

import pyarrow as pa
from pyroaring import BitMap

from conroi.errors import DuplicateKeyError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.json import parse_object
from conroi.spark.connector.tasks import part_from_text, part_to_text, struct_from_text, write_task_from_text
from conroi.spark.connector.wire import Frames
from conroi.spark.packets import Answer, Part, answers_of, encoded, error_from_text, error_to_text, packed, unpacked
from conroi.spark.pins import PinnedVersion
from conroi.spark.table_stream import Offset
from conroi.storage import open_objects
from tests.fuzz.target import Target, text_of

_KEYS = pa.table({"id": [1, 2, 3]})
_FRAGMENTS = pb.Transaction.Append(fragments=[pb.DataFragment(id=0, physical_rows=3)]).SerializeToString()
_PART = Part(_FRAGMENTS, 3, encoded(_KEYS))
_ANSWER = Answer(1, leaving={0: BitMap([1, 2])}, counts={"rows_deleted": 2}).to_batch()
_PLACE = {"uri": "memory://x", "storage_options": {}, "durable": False, "reach": ["memory://x"]}
_PINNED = {**_PLACE, "path": "_versions/1.manifest", "naming": "V1", "is_final": True, "is_private": False}
_MANIFEST = pb.Manifest(version=1, fields=[pb.Field(id=0, parent_id=-1, name="id", logical_type="int64")])
_TASK = {
    **_PLACE,
    "fields": [""],
    "schema": "",
    "data_format": "2.0",
    "rows_per_file": 5,
    "key": ["id"],
    "key_bytes": 1,
}
_COLUMNS = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
_OFFSET = {"table": "t.lance", "first": 1, "snapshot": True, "version": 3, "position": 2}


def _answer(column: str) -> Target:
    """One column of a task's answer is the input."""
    row = _ANSWER.to_pylist()[0]

    def read(data: bytes) -> None:
        value = text_of(data) if isinstance(row[column], str) else data
        answers_of(pa.Table.from_pylist([{**row, column: value}], schema=_ANSWER.schema))

    seed = row[column]
    return Target(read, (seed.encode() if isinstance(seed, str) else seed,))


_ERROR = DuplicateKeyError("m", table="t", keys=[{"id": 1}], hint="h")


def _part(part: Part) -> None:
    part.files()
    part.key_parts(open_objects("memory://fuzz"), ["id"])
    list(part.by_file())


def _part_text(data: bytes) -> None:
    _part(part_from_text(text_of(data)))


def _pinned(data: bytes) -> None:
    front, _, manifest = data.partition(b"\n")
    text = base64.b64encode(zlib.compress(front + b"\n" + manifest, 1)).decode()
    PinnedVersion.from_text(text).opened()


def _frames(data: bytes) -> None:
    source, sink = os.pipe()
    try:
        os.write(sink, data[:4096])
        os.close(sink)
        while Frames(source, -1).receive() is not None:
            continue
    finally:
        os.close(source)


def _message(text: Mapping[str, object], data: bytes) -> bytes:
    body = json.dumps(text).encode()
    return len(body).to_bytes(4, "big") + len(data).to_bytes(4, "big") + body + data


TARGETS: Mapping[str, Target] = {
    "packet": Target(unpacked, (packed(_KEYS),)),
    "error of a task": Target(
        lambda data: error_from_text(text_of(data)),
        (error_to_text(_ERROR).encode(), error_to_text(InvalidInputError("m", hint="h")).encode()),
    ),
    "fragments of a part": Target(lambda data: _part(Part(data, 3, encoded(_KEYS))), (_FRAGMENTS,)),
    "keys of a part": Target(lambda data: _part(Part(_FRAGMENTS, 3, data)), (encoded(_KEYS),)),
    "part as text": Target(_part_text, (part_to_text(_PART).encode(),)),
    "fragments of an answer": _answer("fragments"),
    "deleted rows of an answer": _answer("leaving"),
    "counts of an answer": _answer("counts"),
    "pinned version": Target(_pinned, (json.dumps(_PINNED).encode() + b"\n" + _MANIFEST.SerializeToString(),)),
    "pinned version as text": Target(
        lambda data: PinnedVersion.from_text(text_of(data)),
        (base64.b64encode(zlib.compress(json.dumps(_PINNED).encode() + b"\n")),),
    ),
    "task of a write": Target(lambda data: write_task_from_text(text_of(data)), (json.dumps(_TASK).encode(),)),
    "columns of a statement": Target(lambda data: struct_from_text(text_of(data)), (json.dumps(_COLUMNS).encode(),)),
    "offset of a stream": Target(
        lambda data: Offset.of(parse_object(data, "an offset")), (json.dumps(_OFFSET).encode(),)
    ),
    "message of the helper": Target(_frames, (_message({"call": "x"}, b"data"), _message({}, b""))),
}
