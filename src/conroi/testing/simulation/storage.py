"""Simulated object store: a bucket in memory that is as bad as an object store is allowed to be.

Requests take virtual time, may lose their answer, land late or twice; listings are answered page by page. Writes are
atomic, conditional writes are honoured, and what was answered is durable: that is what conroi asks of a store.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from conroi.errors import NotFoundError, StoreError, StoreUnavailable
from conroi.format.naming import check_path, parse_manifest_name
from conroi.storage.cloud_options import StorageOptions, read_options
from conroi.storage.location import CloudLocation
from conroi.storage.objects import ObjectExists, ObjectInfo, Objects, Reach, own_reach

if TYPE_CHECKING:
    from conroi.testing.simulation.data_files import StandIn
    from conroi.testing.simulation.world import World

T = TypeVar("T")
PAGE = 7
"""Names in one answer to a listing."""


class Bucket:
    """All objects by key, with the time of their last write."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.keys: list[str] = []
        """In order."""

    def put(self, key: str, data: bytes, now_ns: int) -> None:
        if key not in self.objects:
            bisect.insort(self.keys, key)
        self.objects[key] = (data, now_ns)

    def create(self, key: str, data: bytes, now_ns: int, path: str) -> None:
        if key in self.objects:
            raise ObjectExists(path)
        self.put(key, data, now_ns)

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self.keys[bisect.bisect_left(self.keys, key)]

    def below(self, prefix: str, after: str, most: int) -> list[str]:
        """The first keys with this prefix that are greater than `after`."""
        start = bisect.bisect_right(self.keys, after) if after >= prefix else bisect.bisect_left(self.keys, prefix)
        found = self.keys[start : start + most]
        return [key for key in found if key.startswith(prefix)]


class SimulatedObjects:
    """The files of one table in the bucket of a simulation."""

    is_local = False

    def __init__(
        self, world: World, location: CloudLocation, reach: Reach | None, bucket: Bucket | None = None
    ) -> None:
        self._world = world
        self._location = location
        self.root = location.uri()
        self.reach = reach or own_reach(self.root)
        self.is_listing_ordered = world.is_listing_ordered
        self.storage_options: StorageOptions = read_options({})
        self._is_quiet = bucket is not None
        self._bucket = world.bucket if bucket is None else bucket
        self._prefix = f"{location.key}/" if location.key else ""

    def __repr__(self) -> str:
        return f"SimulatedObjects({self.root!r})"

    @property
    def data_files(self) -> StandIn:
        """Data files in memory: see conroi.data.pylance."""
        return self._world.data_files

    # ------------------------------------------------------------------------ reading

    def get(self, path: str) -> bytes:
        return self._ask("get", path, lambda: self.found(path)[0])

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self._ask("get", path, lambda: self.found(path)[0][start:end])

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        def tail() -> tuple[bytes, int]:
            data = self.found(path)[0]
            return data[max(0, len(data) - length) :], len(data)

        return self._ask("get", path, tail)

    def head(self, path: str) -> ObjectInfo | None:
        return self._ask("head", path, lambda: self._info(path))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        start = len(self._prefix)
        for key, (data, modified_ns) in self._listed(prefix, after):
            yield ObjectInfo(key[start:], len(data), modified_ns)

    def list_names(self, prefix: str, *, after: str | None = None) -> Iterator[str]:
        start = len(self._prefix)
        return (key[start:] for key, _ in self._listed(prefix, after))

    def _listed(self, prefix: str, after: str | None) -> Iterator[tuple[str, tuple[bytes, int]]]:
        folder = prefix.strip("/")
        whole = f"{self._prefix}{folder}/" if folder else self._prefix
        at = f"{self._prefix}{after}" if after is not None else ""

        def page() -> Sequence[tuple[str, tuple[bytes, int]]]:
            return [(key, self._bucket.objects[key]) for key in self._bucket.below(whole, at, PAGE)]

        pages: list[tuple[str, tuple[bytes, int]]] = []
        while True:
            found = self._ask("list", folder or ".", page)
            if self.is_listing_ordered:
                yield from found
            else:
                pages += found
            if len(found) < PAGE:
                break
            at = found[-1][0]
        if not self.is_listing_ordered:
            self._world.shuffle(pages)
            yield from pages

    def found(self, path: str) -> tuple[bytes, int]:
        """The file and the time of its last write, at once; NotFoundError if there is none."""
        found = self._bucket.objects.get(self._prefix + path)
        if found is None:
            raise NotFoundError(f"{path} does not exist.", table=self.root, hint="It was deleted, or never written.")
        return found

    def _info(self, path: str) -> ObjectInfo | None:
        found = self._bucket.objects.get(self._prefix + path)
        return None if found is None else ObjectInfo(path, len(found[0]), found[1])

    # ------------------------------------------------------------------------ writing

    def put(self, path: str, data: bytes) -> None:
        self._write("put", path, lambda: self._put(path, data), len(data), may_repeat=True)

    def put_best_effort(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def put_unique(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def _put(self, path: str, data: bytes) -> None:
        self._bucket.put(self._prefix + path, data, self._world.now_ns())

    def put_if_absent(self, path: str, data: bytes) -> None:
        key = self._prefix + path
        create = self._bucket.create
        self._write("create", path, lambda: create(key, data, self._world.now_ns(), path), len(data))

    def rename_if_absent(self, source: str, target: str) -> None:
        self.copy_if_absent(source, target)
        self.delete([source])

    def copy(self, source: str, target: str) -> None:
        self._write("copy", target, lambda: self._put(target, self.found(source)[0]))

    def copy_if_absent(self, source: str, target: str) -> None:
        self.put_if_absent(target, self.get(source))

    def copy_from(self, source: Objects, path: str, there: str | None = None) -> None:
        if isinstance(source, SimulatedObjects):
            self._write("copy", path, lambda: self._put(path, source.found(there or path)[0]))
        else:
            self.put(path, source.get(there or path))

    def delete(self, paths: Sequence[str]) -> None:
        if not paths:
            return

        def delete() -> None:
            for path in paths:
                self._bucket.delete(self._prefix + path)

        self._write("delete", paths[0], delete, len(paths), may_repeat=True)

    def sync(self, paths: Sequence[str]) -> None:
        """No-op: what was answered is durable."""

    def pylance_uri(self, path: str = "") -> str:
        return self._location.uri(path)

    # ------------------------------------------------------------------------ requests

    def _ask(self, verb: str, path: str, effect: Callable[[], T]) -> T:
        check_path(path)
        if self._is_quiet:
            return effect()
        return self._world.request(verb, self._prefix + path, self.root, effect)

    def _write(
        self, verb: str, path: str, effect: Callable[[], None], size: int = 0, *, may_repeat: bool = False
    ) -> None:
        check_path(path)
        if self._is_quiet:
            return effect()
        return self._world.request(
            verb,
            self._prefix + path,
            self.root,
            effect,
            size=size,
            is_write=True,
            may_repeat=may_repeat,
            decides=parse_manifest_name(path.rpartition("/")[2]) is not None,
        )


def no_answer(verb: str, key: str, table: str) -> StoreUnavailable:
    """The error of a request without an answer."""
    return StoreUnavailable(f"The answer to {verb} {key} was lost (simulated).", table=table, hint="Try again.")


def refusal(verb: str, key: str, table: str) -> StoreError:
    """The error of a write that the storage refused."""
    return StoreError(f"The storage is full: {verb} {key} (simulated).", table=table, hint="Make room.")
