"""Messages between the JVM and its Python processes: two lengths, JSON, and bytes that belong to it."""

from __future__ import annotations

import json
import os
import select
import struct
import sys
import threading
from collections.abc import Mapping
from typing import Any

from conroi.format.json import parse_object

PROTOCOL = 1
"""Number of the protocol between workers and tasks; the Scala side has the same."""
_LENGTHS = struct.Struct(">II")


class Frames:
    """Messages over two file descriptors. Several threads may send."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        self._lock = threading.Lock()

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """The next message; None if the other process has ended."""
        head = self._read(_LENGTHS.size)
        if head is None:
            return None
        text_length, data_length = _LENGTHS.unpack(head)
        text, data = self._read(text_length), self._read(data_length)
        return None if text is None or data is None else (parse_object(text, "A request of Spark"), data)

    def _read(self, length: int) -> bytes | None:
        parts: list[bytes] = []
        while length:
            part = os.read(self.source, min(length, 1 << 20))
            if not part:
                return None
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Send nothing more: the number of a closed descriptor may belong to another file soon."""
        with self._lock:
            self.sink = -1

    def send(self, message: Mapping[str, Any], data: bytes = b"") -> None:
        """Send a message."""
        text = json.dumps(message).encode()
        with self._lock:
            write_all(self.sink, _LENGTHS.pack(len(text), len(data)) + text + data)

    def is_readable(self) -> bool:
        """Whether a message, or the end, is there to be received."""
        return bool(select.select([self.source], [], [], 0)[0])


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes, however many the system takes at once."""
    view = memoryview(data)
    while len(view):
        view = view[os.write(descriptor, view) :]


def private_stdio() -> Frames:
    """The standard input and output of this process as a channel; what libraries print goes to the log instead."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    sys.stdout = sys.stderr
    return Frames(source, sink)
