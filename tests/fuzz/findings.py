"""Inputs that once led to an untyped error."""

from __future__ import annotations

from tests.fuzz.spark_messages import TARGETS as SPARK
from tests.fuzz.stored import TARGETS as STORED

_COPY = STORED["copy of a commit"].seeds[0]
_OFFSET = SPARK["offset of a stream"].seeds[0]
_PART = SPARK["part as text"].seeds[0]
_TASK = SPARK["task of a write"].seeds[0]
_ERROR = SPARK["error of a task"].seeds[0]
_PINNED = SPARK["pinned version"].seeds[0]
_PACKET = SPARK["packet"].seeds[0]
_HUGE = bytes([*_PACKET[:4], 0, 0, 0, 0x30, *_PACKET[8:]])

FINDINGS: list[tuple[str, bytes]] = [
    ("copy of a commit", _COPY.replace(b'"timestamp_ns": 1', b'"timestamp_ns": 1e999')),
    ("offset of a stream", _OFFSET.replace(b'"version": 3', b'"version": 1e999')),
    ("packet", b""),
    ("packet", _HUGE),
    ("packet", _PACKET[:40]),
    ("keys of a part", _PACKET[:40]),
    ("fragments of a part", b"Q\xb3"),
    ("fragments of an answer", b"Q\xb3"),
    ("deleted rows of an answer", bytes(8)),
    ("deleted rows of an answer", bytes(16)),
    ("deleted rows of an answer", bytes(8) + (20).to_bytes(8, "little") + bytes(20)),
    ("part as text", b"{}"),
    ("part as text", _PART.replace(b'"fragments": "', b'"fragments": "A')),
    ("error of a task", b"{}"),
    ("error of a task", _ERROR.replace(b'"keys": "', b'"keys": "A')),
    ("error of a task", _ERROR.replace(b'"message": "m"', b'"message": 7')),
    ("task of a write", b"{}"),
    ("task of a write", _TASK.replace(b'"rows_per_file": 5', b'"rows_per_file": 1e999')),
    ("columns of a statement", b'{"type": "struct", "fields": [{"name": "id", "type": "lon[g"}]}'),
    ("columns of a statement", b"{}"),
    (
        "columns of a statement",
        b'{"type": "struct", "fields": [{"name": 9, "type": "long", "nullable": true, "metadata": {}}]}',
    ),
    ("pinned version", _PINNED.replace(b'"V1"', b'"V9"')),
]
"""Target and input; each must be a typed error."""
