"""Version store interface, and its default: the manifests in `_versions/` of the table's own folder.

A version's final name is created by put-if-absent, in one of three ways: conditional put, atomic rename, commit lock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast, runtime_checkable

from conroi.environment import LONG_AGO, SYSTEM, Environment, Moment, moment, seconds_since
from conroi.errors import ConroiError, CorruptionError, InvalidInputError, NotFoundError, StoreUnavailable
from conroi.format.json import decode_document, encode_document
from conroi.format.naming import ManifestNaming, is_detached, parse_manifest_name, staged_name
from conroi.format.on_disk import VERSION_HINT_PATH, VERSIONS_DIR
from conroi.storage.cloud import require_conditions
from conroi.storage.local import LocalObjects
from conroi.storage.objects import ObjectExists, Objects
from conroi.versions.retention import Retention, VersionCollected, ages, is_recent_for_versions, retention_of, watermark

_log = logging.getLogger(__name__)

STEPS_BEFORE_SEARCH = 4
"""Number of versions above the last known one that are probed one by one."""
STEPS_ON_LOCAL_DISK = 32
"""The same on local disk, where a probe is one system call."""
STEPS_BEFORE_LISTING = 2
"""The same where one listing finds the newest version."""
HINT_IS_GOOD_FOR_NS = 1_000_000_000
"""Nanoseconds. A hint on local disk that is older than its folder by more than this is not trusted."""


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A version and the manifest file that holds it."""

    version: int
    path: str
    naming: ManifestNaming
    stamp: tuple[int, int] | None = field(default=None, compare=False, repr=False)
    """On local disk, where known: inode and modification time of the file, which tell it from one of a table that was
    created again under the same path. Not the change time: that changes when its writer removes the temporary name.
    """


class VersionStore(Protocol):
    """Where versions are committed, by put-if-absent."""

    def latest(self) -> ManifestRef | None:
        """The newest version, or None if there is no table."""
        ...

    def locate(self, version: int) -> ManifestRef | None:
        """The manifest of this version, or None if it never existed or was collected."""
        ...

    def all(self) -> list[ManifestRef]:
        """Every version that can still be opened, ascending."""
        ...

    def require_conditions(self, path: str, data: bytes) -> None:
        """UnsupportedError if `put` relies on conditional writes and the storage ignores them.

        `path` is an existing file of ours with this data.
        """
        ...

    def put(self, version: int, naming: ManifestNaming, data: bytes) -> ManifestRef:
        """Commit the version; ObjectExists if it already exists."""
        ...

    def confirm(self, located: ManifestRef, since: Moment) -> None:
        """VersionCollected if our version, put not before `since`, has a number that was collected before."""
        ...

    def saw(self, located: ManifestRef, at: Moment = LONG_AGO) -> None:
        """Cache this version as the newest at that time."""
        ...


class FolderVersions:
    """Version store in the table's own folder."""

    def __init__(self, objects: Objects, putter: PutNew | None = None, environment: Environment = SYSTEM) -> None:
        self._objects = objects
        self._putter = putter or ConditionalPut()
        self._environment = environment
        self._seen: tuple[ManifestRef, Moment] | None = None
        """The newest known version, and a time at which it was the newest."""
        self._was_empty_at = LONG_AGO
        self._unanswered: int | None = None
        """The version whose last put had no response."""

    def puts_with(self, kind: type) -> bool:
        """Whether versions are committed with this put strategy."""
        return isinstance(self._putter, kind)

    def latest(self) -> ManifestRef | None:
        asked_at = moment(self._environment)
        located = self._from_seen() or self._from_hint() or self._newest_listed()
        if located is None:
            self._was_empty_at = asked_at
            return None
        if not located.stamp:
            located = self._stamped(located)
        self.saw(located, asked_at)
        return located

    def locate(self, version: int) -> ManifestRef | None:
        for naming in (ManifestNaming.V2, ManifestNaming.V1):
            path = naming.path(version)
            if self._objects.head(path) is not None:
                return ManifestRef(version, path, naming)
        return None

    def all(self) -> list[ManifestRef]:
        found = sorted(self._listed(), key=lambda located: located.version)
        if len({located.naming for located in found}) > 1:
            raise CorruptionError(
                "The table has manifests under both naming schemes.",
                table=self._objects.root,
                hint="A migration of the manifest names was interrupted; run migrate_manifest_names() again, alone.",
            )
        return found

    def require_conditions(self, path: str, data: bytes) -> None:
        if not self._objects.is_local and not self.puts_with(LockedPut):
            require_conditions(self._objects, path, data)

    def put(self, version: int, naming: ManifestNaming, data: bytes) -> ManifestRef:
        located = ManifestRef(version, naming.path(version), naming)
        sent_at = moment(self._environment)
        try:
            self._putter.put_new(self._objects, located.path, data)
        except StoreUnavailable:
            self._unanswered = version
            raise
        if is_detached(version):
            return located
        try:
            self.confirm(located, sent_at)
        except StoreUnavailable:
            raise
        except ConroiError as error:  # it is written, so a refusal here is no answer to "was it committed?"
            raise StoreUnavailable(
                f"Version {located.version} is written, but could not be confirmed: {error.message}",
                table=self._objects.root,
                version=located.version,
                hint=error.hint,
            ) from error
        located = self._stamped(located)
        self.saw(located, sent_at)
        if not self._objects.is_listing_ordered and is_recent_for_versions(self._environment, sent_at):
            self.write_hint(version)
        return located

    def confirm(self, located: ManifestRef, since: Moment) -> None:
        # On local disk to look costs no request, so there no clock is trusted.
        if not self._objects.is_local and self._was_free(located.version):
            return
        became = retention_of(self._objects, located.version)
        if became is Retention.RETAINED:
            return
        # It was free because a collector had deleted what was there; or it was ours, and a collector took it since.
        is_young = seconds_since(self._environment, since) < ages().version_s
        is_certain = is_young or (became is Retention.COLLECTED and self._objects.head(located.path) is not None)
        if is_certain:  # no other writer uses it, since the newest version is far above
            self._objects.delete([located.path])
        self._seen = None  # whatever we took for the newest version was not
        raise VersionCollected(located.path, is_certain=is_certain)

    def _was_free(self, version: int) -> bool:
        """Whether this version was known not to exist a moment ago: so it cannot have been collected.

        Not if a put of it had no response: that one may have succeeded, and its version may have been collected.
        """
        if version == self._unanswered:
            return False
        seen = self._seen
        if seen is not None and seen[0].version == version - 1:
            return is_recent_for_versions(self._environment, seen[1])
        return version == 1 and is_recent_for_versions(self._environment, self._was_empty_at)

    def saw(self, located: ManifestRef, at: Moment = LONG_AGO) -> None:
        seen = self._seen
        if is_detached(located.version) or (seen is not None and located.version < seen[0].version):
            return
        if seen is not None and located == seen[0]:
            at = max(at, seen[1])
        self._seen = (located, at)

    # -------------------------------------------------------------- finding the newest

    def _from_seen(self) -> ManifestRef | None:
        """The newest version above the one that we saw last; after a while, the folder is listed again.

        Probing upwards is wrong only if the version we start from was kept (by a tag) while all newer ones but the
        newest were collected meanwhile; for a while no collector does that. The clock is asked after the storage. On
        local disk, where it costs no request, the watermark is asked too, and whether the file is still the same.
        """
        if self._seen is None:
            return None
        seen, at = self._seen
        top = self._climb(seen) if is_recent_for_versions(self._environment, at) else None
        if top is None or not is_recent_for_versions(self._environment, at):
            return None
        if self._objects.is_local:
            if watermark(self._objects) >= top.version:
                return None
            if seen.stamp and self._stamped(seen).stamp != seen.stamp:  # the table was deleted, or created again
                self._seen = None
                return None
        return top

    def _from_hint(self) -> ManifestRef | None:
        """The newest version above the hinted one; ignored if versions above it were collected."""
        top = self._climb(self._hinted())
        return None if top is None or watermark(self._objects) >= top.version else top

    def _stamped(self, located: ManifestRef) -> ManifestRef:
        """The same with its stamp; on local disk, where that costs no request."""
        if not self._objects.is_local:
            return located
        try:
            found = os.stat(self._objects.pylance_uri(located.path))
        except OSError:
            return ManifestRef(located.version, located.path, located.naming)
        return ManifestRef(located.version, located.path, located.naming, (found.st_ino, found.st_mtime_ns))

    def _hinted(self) -> ManifestRef | None:
        if self._objects.is_listing_ordered or self._is_hint_old():
            return None
        try:
            version = decode_document(self._objects.get(VERSION_HINT_PATH), VERSION_HINT_PATH).integer("version")
        except (NotFoundError, CorruptionError):
            return None  # the folder is listed instead
        return self.locate(version) if 0 < version < 1 << 63 else None

    def _is_hint_old(self) -> bool:
        """Whether the folder changed well after its hint: a writer that leaves no hints was there, or a collector.

        Climbing from an old hint could end at a version that a tag kept while all others up to the head were collected.
        """
        if not self._objects.is_local:
            return False
        try:
            folder = os.stat(self._objects.pylance_uri(VERSIONS_DIR)).st_mtime_ns
            return folder - os.stat(self._objects.pylance_uri(VERSION_HINT_PATH)).st_mtime_ns > HINT_IS_GOOD_FOR_NS
        except OSError:
            return True

    def _climb(self, start: ManifestRef | None) -> ManifestRef | None:
        """The newest version above one that was there; versions above a known one are contiguous.

        The number of requests is bounded, so that a reader that is slower than the writers does not follow them for
        ever: after a few steps, one listing where its first name is the newest version, else a search by doubling.
        """
        if start is None:
            return None
        top = start
        if isinstance(self._objects, LocalObjects) and start.naming is ManifestNaming.V2:
            top = _climbed(self._objects, start)
            if top.version < start.version + STEPS_ON_LOCAL_DISK:
                return top
        is_newest_first = self._objects.is_listing_ordered and start.naming is ManifestNaming.V2
        for _ in range(STEPS_BEFORE_LISTING if is_newest_first else STEPS_BEFORE_SEARCH):
            above = self._at(top, top.version + 1)
            if above is None and top.naming is ManifestNaming.V1:
                above = self._renamed(top)
            if above is None:
                return top
            top = above
        if is_newest_first:
            return self._newest_listed()
        found = self._search(top)
        return found if found.naming is ManifestNaming.V2 else self._climb(found)

    def _search(self, low: ManifestRef) -> ManifestRef:
        """The newest version at or above this one, in about twice log2 requests.

        A version that was absent and its predecessor that was there bound it, in whichever order they were looked at:
        between those two moments the predecessor was the newest.
        """
        step = 1
        while (found := self._at(low, low.version + step)) is not None:
            low, step = found, 2 * step
        high = low.version + step
        while high - low.version > 1:
            middle = (low.version + high) // 2
            found = self._at(low, middle)
            low, high = (found, high) if found is not None else (low, middle)
        return low

    def _at(self, like: ManifestRef, version: int) -> ManifestRef | None:
        located = ManifestRef(version, like.naming.path(version), like.naming)
        return None if self._objects.head(located.path) is None else located

    def _renamed(self, top: ManifestRef) -> ManifestRef | None:
        """The version above this one, or this one, under the newer naming scheme, which the table may have got."""
        for version in (top.version + 1, top.version):
            renamed = ManifestRef(version, ManifestNaming.V2.path(version), ManifestNaming.V2)
            if self._objects.head(renamed.path) is not None:
                return renamed
        return None

    def _newest_listed(self) -> ManifestRef | None:
        newest: ManifestRef | None = None
        for located in self._listed():
            if self._objects.is_listing_ordered and located.naming is ManifestNaming.V2:
                return located  # names are inverted, so the first key is the newest version
            if newest is None or located.version > newest.version:
                newest = located
        return newest

    def _listed(self) -> Iterator[ManifestRef]:
        for path in self._objects.list_names(VERSIONS_DIR):
            parsed = parse_manifest_name(path.rpartition("/")[2])
            if parsed is not None and not parsed.is_detached:
                yield ManifestRef(parsed.version, path, parsed.naming)

    def write_hint(self, version: int) -> None:
        """Write the version hint for readers of the folder. Best effort: without a good hint they list it."""
        try:
            self._objects.put_best_effort(VERSION_HINT_PATH, encode_document({"version": version}))
        except ConroiError as error:
            _log.debug("version hint of %s not written: %s", self._objects.root, error)


def _climbed(objects: LocalObjects, start: ManifestRef) -> ManifestRef:
    """The newest version above this one, at most so many steps: their folder is opened once for all probes."""
    naming, first = start.naming, start.version + 1
    found = objects.run_of(VERSIONS_DIR, map(naming.file_name, range(first, first + STEPS_ON_LOCAL_DISK)))
    if not found:
        return start
    version, facts = start.version + len(found), found[-1]
    return ManifestRef(version, naming.path(version), naming, (facts.st_ino, facts.st_mtime_ns))


# ---------------------------------------------------------------------------- put-if-absent strategies

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
