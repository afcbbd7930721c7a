"""Put-if-absent strategies for a version's final name: conditional put, atomic rename, or a commit lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast, runtime_checkable

from conroi.environment import SYSTEM, Environment
from conroi.errors import InvalidInputError
from conroi.format.naming import parse_manifest_name, staged_name
from conroi.stores.objects import NameTaken, Objects

Put = Literal["conditional", "rename"]
"""How a version gets its final name, where the storage decides."""
CommitLock = Callable[[int], AbstractContextManager[object]]
"""Called with the version to be created, gives a context manager that only one holder is inside of.

The same shape as pylance's `commit_lock`, so that one lock can serve both. If what is entered has a method
`confirm()`, it is called right before the write, and raises if the lock was lost meanwhile."""


@runtime_checkable
class HeldLock(Protocol):
    """A lock that can be lost while it is held, and knows."""

    def confirm(self) -> None:
        """StoreUnavailable if it may be somebody else's by now."""
        ...


class PutNew(Protocol):
    """Creates a file that must not be there yet: of all who try the same path, one succeeds."""

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        """Create the file whole, or raise NameTaken and leave what is there."""
        ...


@dataclass(frozen=True, slots=True)
class ConditionalPut:
    """The storage itself refuses to create what exists (all but a few do)."""

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        objects.put_if_absent(path, data)


@dataclass(frozen=True, slots=True)
class RenameIfAbsent:
    """Write under a name of one's own, then rename: for storage that can rename but not put under a condition.

    The staged name is `{final name}-{uuid}`, which no reader takes for a version.
    """

    environment: Environment = field(default=SYSTEM)

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        staged = staged_name(path, self.environment.new_uuid())
        objects.put(staged, data)
        try:
            objects.rename_if_absent(staged, path)
        except NameTaken:
            objects.delete([staged])
            raise


@dataclass(frozen=True, slots=True)
class LockedPut:
    """Look and write while holding a lock: for storage that knows no conditions at all.

    Safe only if every writer of the table, pylance included, takes the same lock. `lock` is any factory of context
    managers, as in pylance's `commit_lock=`; what it gives is left again whatever happens.
    """

    lock: CommitLock

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        with self._of(_version_of(path)) as held:
            if objects.head(path) is not None:
                raise NameTaken(path)
            if isinstance(held, HeldLock):
                held.confirm()
            objects.put(path, data)

    def _of(self, version: int) -> AbstractContextManager[object]:
        lock: object = self.lock(version)
        if not isinstance(lock, AbstractContextManager):
            raise InvalidInputError(
                f"commit_lock({version}) returned {type(lock).__name__}, which is not a context manager.",
                hint="Give a function that takes the version and returns a lock for a with statement.",
            )
        return cast("AbstractContextManager[object]", lock)


def _version_of(path: str) -> int:
    name = parse_manifest_name(path.rpartition("/")[2])
    return name.version if name is not None else 0
