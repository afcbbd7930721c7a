"""Chunked reads: a file of any size, without holding all of it in memory."""

from __future__ import annotations

from collections.abc import Iterator

from conroi.stores.objects import Objects

PIECE_BYTES = 16 * 1024 * 1024


def pieces(objects: Objects, path: str, *, start: int = 0) -> Iterator[bytes]:
    """The file in pieces, each one request; a small file, and an empty one, is one piece."""
    while True:
        piece = objects.get_range(path, start, start + PIECE_BYTES)
        yield piece
        start += len(piece)
        if len(piece) < PIECE_BYTES:
            return
