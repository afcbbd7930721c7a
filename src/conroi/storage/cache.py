"""LRU caches in memory for immutable files.

A file of a Lance table is written once, and its name is never reused. So a cached value never becomes stale. Each cache
has a limit in bytes and evicts the least recently used entries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from conroi.storage.parallel import ProcessLock

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """Thread-safe LRU cache, bounded in bytes."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = ProcessLock()

    def get(self, key: Hashable) -> V | None:
        """The value, which becomes the most recently used; None if it is not cached."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Cache a value of this many bytes, replacing an older one; a value larger than the cache is not cached."""
        with self._lock:
            self._drop(key)
            if size > self.most_bytes:
                return
            self._values[key] = value, size
            self._bytes += size
            while self._bytes > self.most_bytes:
                self._drop(next(iter(self._values)))

    def drop(self, key: Hashable) -> None:
        """Remove a value."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._bytes = 0

    def _drop(self, key: Hashable) -> None:
        _, size = self._values.pop(key, (None, 0))
        self._bytes -= size

    @property
    def bytes(self) -> int:
        """Number of bytes cached."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._values)
