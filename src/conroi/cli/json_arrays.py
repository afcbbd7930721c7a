"""Streaming filter that turns one JSON array into JSON lines, without holding it in memory."""

from __future__ import annotations

import io
import re
from typing import Any

import pyarrow as pa

CHUNK = 1 << 18
_MARKS = re.compile(rb'["\\\[\]{},\n\r]')
_BLANK = b" \t\n\r\xef\xbb\xbf"


class ArrayLines(io.RawIOBase):
    """The elements of the array in `source`, each on a line of its own. pa.ArrowInvalid if it is no whole array."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source
        self._ready = b""
        self._depth = 0
        """0 before the array and after it, 1 between its elements."""
        self._is_in_text = False
        self._is_escaped = False
        self._is_begun = False
        self._is_ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        while not self._is_ended and (size < 0 or len(self._ready) < size):
            chunk = bytes(self._source.read(CHUNK))
            if not chunk:
                self._finish()
                break
            self._ready += self._lines(chunk)
        size = len(self._ready) if size < 0 else size
        given, self._ready = self._ready[:size], self._ready[size:]
        return given

    def _finish(self) -> None:
        self._is_ended = True
        if self._depth or not self._is_begun:
            raise pa.ArrowInvalid("the array does not end")

    def _lines(self, chunk: bytes) -> bytes:
        parts: list[bytes] = []
        done = 0
        for found in _MARKS.finditer(chunk):
            at = found.start()
            self._add(parts, chunk[done:at])
            parts.append(self._letter(found.group()))
            done = at + 1
        self._add(parts, chunk[done:])
        return b"".join(parts)

    def _add(self, parts: list[bytes], text: bytes) -> None:
        if not text:
            return
        if self._depth == 0 and text.strip(_BLANK):
            raise pa.ArrowInvalid("there is more than one array in it")
        self._is_escaped = False
        parts.append(text if self._depth else b"")

    def _letter(self, letter: bytes) -> bytes:
        """What one mark becomes."""
        if self._is_in_text:
            is_escaped = self._is_escaped
            self._is_escaped = letter == b"\\" and not is_escaped
            self._is_in_text = letter != b'"' or is_escaped
            return letter
        if letter in (b"\n", b"\r"):
            return b" " if self._depth else b""
        if letter in (b"[", b"{"):
            return self._opened(letter)
        if letter in (b"]", b"}"):
            self._depth -= 1
            return b"\n" if self._depth == 0 else letter
        if self._depth == 0:
            raise pa.ArrowInvalid("there is more than one array in it")
        self._is_in_text = letter == b'"'
        return b"\n" if letter == b"," and self._depth == 1 else letter

    def _opened(self, letter: bytes) -> bytes:
        if self._depth == 0 and (self._is_begun or letter != b"["):
            raise pa.ArrowInvalid("there is more than one array in it")
        is_first = not self._is_begun
        self._is_begun = True
        self._depth += 1
        return b"" if is_first else letter
