"""Put-if-absent strategies for a version's final name: conditional put, atomic rename, or a commit lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast, runtime_checkable

from conroi.environment import SYSTEM, Environment
from conroi.errors import InvalidInputError
from conroi.format.naming import parse_manifest_name, staged_name
from conroi.storage.objects import ObjectExists, Objects

Put = Literal["conditional", "rename"]
"""Put-if-absent strategy, where the storage decides."""
CommitLock = Callable[[int], AbstractContextManager[object]]
"""Called with the version to be created, returns a context manager that provides mutual exclusion.

The same shape as pylance's `commit_lock`, so that one lock can serve both. If what is entered has a method
`confirm()`, it is called right before the write, and raises if the lock was lost meanwhile.
"""


@runtime_checkable
class HeldLock(Protocol):
    """A lock that can be lost while it is held, and detects it."""

    def confirm(self) -> None:
        """Raise StoreUnavailable if another process may hold the lock by now."""
        ...


class PutNew(Protocol):
    """Creates a file that must not exist yet: of concurrent callers with the same path exactly one succeeds."""

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        """Create the file whole, or raise ObjectExists and leave the existing one."""
        ...


@dataclass(frozen=True, slots=True)
class ConditionalPut:
    """The storage itself refuses to create an existing name (most do)."""

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        objects.put_if_absent(path, data)


@dataclass(frozen=True, slots=True)
class RenameIfAbsent:
    """Write under a unique name, then rename: for storage with atomic rename but without conditional puts.

    The staged name is `{final name}-{uuid}`, which no reader takes for a version.
    """

    environment: Environment = field(default=SYSTEM)

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        staged = staged_name(path, self.environment.new_uuid())
        objects.put(staged, data)
        try:
            objects.rename_if_absent(staged, path)
        except ObjectExists:
            objects.delete([staged])
            raise


@dataclass(frozen=True, slots=True)
class LockedPut:
    """Check and write while holding a lock: for storage without any conditional writes.

    Safe only if every writer of the table, pylance included, takes the same lock. `lock` is any factory of context
    managers, as in pylance's `commit_lock=`; its context manager is exited in any case.
    """

    lock: CommitLock

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        with self._of(_version_of(path)) as held:
            if objects.head(path) is not None:
                raise ObjectExists(path)
            if isinstance(held, HeldLock):
                held.confirm()
            objects.put(path, data)

    def _of(self, version: int) -> AbstractContextManager[object]:
        lock = cast("object", self.lock(version))
        if not isinstance(lock, AbstractContextManager):
            raise InvalidInputError(
                f"commit_lock({version}) returned {type(lock).__name__}, which is not a context manager.",
                hint="Give a function that takes the version and returns a lock for a with statement.",
            )
        return cast("AbstractContextManager[object]", lock)


def _version_of(path: str) -> int:
    name = parse_manifest_name(path.rpartition("/")[2])
    return name.version if name is not None else 0
