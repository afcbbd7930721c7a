"""Object storage protocol: the files of one table by their path below its root, wherever they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from conroi.errors import StoreError


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says about one file; `path` is relative to the table's root."""

    path: str
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Reach:
    """The roots that files of a table may be in: `root`, and the bases that the caller allowed.

    For a table of a lake the root is that of the lake. On a local disk only the root itself may be a symbolic link.
    """

    root: str
    bases: set[str] = field(default_factory=set[str])
    """Roots of other folders that manifests may reference."""


class UnsupportedByStorage(StoreError):
    """The storage cannot do this at all, such as write under a condition."""


class ObjectExists(Exception):
    """Internal: the name to be created already exists. It is a result, not a failure."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} exists already")
        self.path = path

    def __reduce__(self) -> tuple[type[ObjectExists], tuple[str]]:
        return ObjectExists, (self.path,)


class Objects(Protocol):
    """The files of one table. All paths are relative to its root, with `/` between folders.

    A file is visible as a whole or not at all. Every method may be called from any thread.
    A `StoreUnavailable` from a method that writes means that its outcome is unknown.
    """

    @property
    def root(self) -> str:
        """The table's location: an absolute local path, or a URI without a trailing slash and without credentials."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether the files are in a folder of this machine."""
        ...

    @property
    def is_listing_ordered(self) -> bool:
        """Whether `list` yields paths in the order of their names."""
        ...

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What pylance needs besides the URI; a dict whose repr hides the values."""
        ...

    def get(self, path: str) -> bytes:
        """The whole file; NotFoundError if there is none."""
        ...

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to and without `end`; fewer if the file ends before."""
        ...

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes (or all there are) and the size of the file, in one request."""
        ...

    def head(self, path: str) -> ObjectInfo | None:
        """Size and time of a file, or None if there is none."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file, replacing what was there."""
        ...

    def put_best_effort(self, path: str, data: bytes) -> None:
        """Best-effort write of a small file whose readers tolerate a torn or stale one: no rename, no sync."""
        ...

    def put_unique(self, path: str, data: bytes) -> None:
        """Write a file under a unique name that no other process reads before this call returns."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Put-if-absent: create a file, or raise ObjectExists; of concurrent callers exactly one succeeds."""
        ...

    def rename_if_absent(self, source: str, target: str) -> None:
        """Give a file a new name, or raise ObjectExists."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy a file within the store, replacing what was there."""
        ...

    def copy_if_absent(self, source: str, target: str) -> None:
        """Copy a file, or raise ObjectExists."""
        ...

    def copy_from(self, source: Objects, path: str, there: str | None = None) -> None:
        """Copy a file of another table to this path, within the store where that can be done; `there` it is called so,
        by default the same."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; one that does not exist is ignored."""
        ...

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """All files below a folder ("" is the root), subfolders included, only paths greater than `after`; lazily."""
        ...

    def list_names(self, prefix: str, *, after: str | None = None) -> Iterator[str]:
        """The paths that `list` would yield, without asking for size and time where that costs extra."""
        ...

    def sync(self, paths: Sequence[str]) -> None:
        """Make files that another library wrote survive a power cut; does nothing unless durable and local."""
        ...

    def pylance_uri(self, path: str = "") -> str:
        """What to hand to pylance for this table, or for one file of it."""
        ...


def plain_objects(objects: Objects) -> Objects:
    """The files themselves, so that a store that can copy within itself sees that it can."""
    inner: Objects | None = getattr(objects, "inner", None)
    return objects if inner is None else plain_objects(inner)


def reach_of(objects: Objects) -> Reach:
    """The reach of these files."""
    found = getattr(cast("Any", plain_objects(objects)), "reach", None)
    return found if isinstance(found, Reach) else Reach(objects.root)


def own_reach(root: str, bases: Iterable[str] = ()) -> Reach:
    """The reach of a standalone table or lake; a branch of a table has the reach of the table.

    >>> own_reach("/data/t.lance/tree/dev").root
    '/data/t.lance'
    """
    table, found, branch = root.rpartition("/tree/")
    return Reach(table if found and table and "/" not in branch else root, set(bases))


PIECE_BYTES = 16 * 1024 * 1024


def pieces(objects: Objects, path: str, *, start: int = 0) -> Iterator[bytes]:
    """The file in pieces, each one request; a small file, and an empty one, is one piece."""
    while True:
        piece = objects.get_range(path, start, start + PIECE_BYTES)
        yield piece
        start += len(piece)
        if len(piece) < PIECE_BYTES:
            return
