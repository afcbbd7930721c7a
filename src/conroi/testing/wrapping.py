"""Wrapper of an `Objects` through which every request passes in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from conroi.stores.objects import ObjectInfo, Objects

T = TypeVar("T")
PAGE = 1000
"""How many names an object store gives in one answer to a listing, and takes in one request to delete."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the storage: the name of the method, the (target) path, and how many bytes go along."""

    verb: str
    path: str
    bytes_sent: int = 0


class WrappedObjects:
    """Hands everything on to `inner`; a subclass overrides `around` to see, delay or refuse requests."""

    def __init__(self, inner: Objects) -> None:
        self.inner = inner

    def around(self, request: Request, call: Callable[[], T]) -> T:  # noqa: ARG002  # for subclasses
        """Do the request; a listing comes here once for each page of it."""
        return call()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def is_local(self) -> bool:
        return self.inner.is_local

    @property
    def is_listing_ordered(self) -> bool:
        return self.inner.is_listing_ordered

    @property
    def storage_options(self) -> Mapping[str, str]:
        return self.inner.storage_options

    def get(self, path: str) -> bytes:
        return self.around(Request("get", path), lambda: self.inner.get(path))

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self.around(Request("get_range", path), lambda: self.inner.get_range(path, start, end))

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        return self.around(Request("get_tail", path), lambda: self.inner.get_tail(path, length))

    def head(self, path: str) -> ObjectInfo | None:
        return self.around(Request("head", path), lambda: self.inner.head(path))

    def put(self, path: str, data: bytes) -> None:
        self.around(Request("put", path, len(data)), lambda: self.inner.put(path, data))

    def jot(self, path: str, data: bytes) -> None:
        self.around(Request("jot", path, len(data)), lambda: self.inner.jot(path, data))

    def put_unseen(self, path: str, data: bytes) -> None:
        self.around(Request("put", path, len(data)), lambda: self.inner.put_unseen(path, data))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.around(Request("put_if_absent", path, len(data)), lambda: self.inner.put_if_absent(path, data))

    def rename_if_absent(self, source: str, target: str) -> None:
        self.around(Request("rename_if_absent", target), lambda: self.inner.rename_if_absent(source, target))

    def copy(self, source: str, target: str) -> None:
        self.around(Request("copy", target), lambda: self.inner.copy(source, target))

    def copy_if_absent(self, source: str, target: str) -> None:
        self.around(Request("copy_if_absent", target), lambda: self.inner.copy_if_absent(source, target))

    def copy_from(self, source: Objects, path: str, there: str | None = None) -> None:
        self.around(Request("copy_from", path), lambda: self.inner.copy_from(source, path, there))

    def delete(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), PAGE):
            page = paths[start : start + PAGE]
            self.around(Request("delete", page[0]), lambda page=page: self.inner.delete(page))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        return self._paged(Request("list", prefix), self.inner.list(prefix, after=after))

    def list_names(self, prefix: str, *, after: str | None = None) -> Iterator[str]:
        return self._paged(Request("list", prefix), self.inner.list_names(prefix, after=after))

    def sync(self, paths: Sequence[str]) -> None:
        self.inner.sync(paths)

    def pylance_uri(self, path: str = "") -> str:
        return self.inner.pylance_uri(path)

    def _paged(self, request: Request, items: Iterator[T]) -> Iterator[T]:
        item = self.around(request, lambda: next(items, None))
        yielded = 0
        while item is not None:
            yield item
            yielded += 1
            item = next(items, None)
            if yielded % PAGE == 0 and item is not None:
                self.around(request, lambda: None)
