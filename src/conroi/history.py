"""Version history of a table: its versions, their authors, and time travel."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice

from conroi.environment import utc_time
from conroi.errors import InvalidInputError, NotFoundError
from conroi.format.naming import is_detached
from conroi.snapshots.snapshot import Snapshot, TableStorage, expired, load_snapshot, load_transaction
from conroi.snapshots.tags import Tags
from conroi.storage.objects import Objects
from conroi.versions.folder import ManifestRef
from conroi.versions.retention import Retention, is_left_over, retention_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a table, as history() lists it."""

    version: int
    timestamp: datetime
    operation: str
    """`Append`, `Delete`, …; `Unknown` if its transaction does not exist any more."""
    message: str | None
    writer: str
    """The software that wrote it, such as `lance 14.0.2`."""
    transaction_uuid: str | None
    read_version: int | None
    """The base version of its author."""
    rows: int
    """Live rows in that version."""
    properties: dict[str, str] = field(default_factory=dict[str, str])


def history(files: TableStorage, limit: int | None = None, newest: int | None = None) -> Iterator[Commit]:
    """The commits, newest first, read lazily."""
    for snapshot in snapshots(files, limit, newest):
        yield _commit(files, snapshot)


def snapshots(files: TableStorage, limit: int | None = None, newest: int | None = None) -> Iterator[Snapshot]:
    """The versions themselves, newest first, read lazily."""
    if limit is not None and limit < 0:
        raise InvalidInputError(f"{limit} versions cannot be listed.", table=files.root, hint="Give 0 or more.")
    yield from islice(_line(files, newest), limit if limit is None else min(limit, sys.maxsize))


def _line(files: TableStorage, newest: int | None) -> Iterator[Snapshot]:
    """The version and its ancestors: of a detached one its base, of the others all lower numbers."""
    while newest is not None and is_detached(newest):
        snapshot = _by_number(files, newest)
        yield snapshot
        transaction = load_transaction(files.objects, snapshot)
        newest = 0 if transaction is None else transaction.read_version
    for located in reversed(files.versions.all()):
        if newest is None or located.version <= newest:
            yield load_snapshot(files.objects, located)


def _commit(files: TableStorage, snapshot: Snapshot) -> Commit:
    transaction = load_transaction(files.objects, snapshot)
    fragments = snapshot.manifest.fragments
    return Commit(
        version=snapshot.version,
        timestamp=utc_time(snapshot.timestamp_ns),
        operation="Unknown" if transaction is None else transaction.operation_name,
        message=None if transaction is None else transaction.message,
        writer=snapshot.writer,
        transaction_uuid=None if transaction is None else transaction.uuid,
        read_version=None if transaction is None else transaction.read_version,
        rows=sum(f.physical_rows - f.deletion_file.num_deleted_rows for f in fragments),
        properties={} if transaction is None else dict(transaction.properties),
    )


def find(
    files: TableStorage, version: int | None = None, tag: str | None = None, as_of: datetime | str | None = None
) -> Snapshot:
    """The version with this number, with this tag, or the newest one as of this time."""
    given = [name for name, value in (("version", version), ("tag", tag), ("as_of", as_of)) if value is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"{' and '.join(given) or 'Nothing'} was given to say which version.",
            table=files.root,
            hint="Give one of version, tag and as_of; latest() gives the newest.",
        )
    if as_of is not None:
        return _as_of(files, moment_ns(as_of, files.root))
    wanted = Tags(files, 0).get(tag).version if tag is not None else version
    assert wanted is not None
    return _by_number(files, wanted)


def _by_number(files: TableStorage, version: int) -> Snapshot:
    if isinstance(version, bool) or not isinstance(version, int) or not 0 < version < 1 << 64:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"{version!r} is not a version number.", table=files.root, hint="They count from 1.")
    located = files.versions.locate(version)
    if located is None and retention_of(files.objects, version) is not Retention.RETAINED:
        raise expired(files.objects, version)
    if located is not None and files.objects.is_local:  # there it costs no request
        refuse_reused(files, located)
    if located is None:
        raise NotFoundError(
            f"There is no version {version}.",
            table=files.root,
            version=version,
            hint="It never existed, or it expired and was collected; versions() lists all.",
        )
    return load_snapshot(files.objects, located)


def refuse_reused(files: TableStorage, located: ManifestRef) -> None:
    """VersionExpired if the version was collected, and a paused writer put a manifest under its name and died."""
    if is_left_over(files.objects, located.version, located.path):
        raise expired(files.objects, located.version)


def moment_ns(as_of: datetime | str, table: str) -> int:
    """A time in nanoseconds since 1970: the end of its microsecond, so that the displayed time of a version finds
    it.
    """
    try:
        when = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
        return (when.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000 + 999
    except (ValueError, AttributeError, TypeError, OverflowError) as error:
        raise InvalidInputError(
            f"{as_of!r} is not a moment.",
            table=table,
            hint="Give a datetime, or text such as 2026-11-15T12:00:00+00:00.",
        ) from error


def newest_at(objects: Objects, found: Sequence[ManifestRef], moment_ns: int) -> tuple[int, Snapshot | None]:
    """How many of these versions, oldest first, are not newer than a time, and the last of those, loaded.

    By binary search: later versions have later times.
    """
    best: Snapshot | None = None
    low, high = 0, len(found)
    while low < high:
        middle = (low + high) // 2
        snapshot = load_snapshot(objects, found[middle])
        if snapshot.timestamp_ns <= moment_ns:
            best, low = snapshot, middle + 1
        else:
            high = middle
    return low, best


def _as_of(files: TableStorage, moment_ns: int) -> Snapshot:
    _, best = newest_at(files.objects, files.versions.all(), moment_ns)
    if best is None:
        raise NotFoundError(
            "The table has no version that old.",
            table=files.root,
            hint="It was created later, or its oldest versions were collected.",
        )
    return best


class TableHistory:
    """The versions of one table that a handle shows: all of them, or those of a transaction's snapshot."""

    def __init__(self, files: TableStorage, version: int) -> None:
        self._files = files
        self._version = version

    @property
    def files(self) -> TableStorage:
        """The storage of the table, with these versions."""
        return self._files

    def numbers(self) -> list[int]:
        """The numbers of all versions, ascending."""
        return [located.version for located in self.files.versions.all()]

    def commits(self, limit: int | None, newest: int) -> Iterator[Commit]:
        """The commits up to a version, newest first."""
        return history(self.files, limit, newest=newest)

    def tags(self) -> Tags:
        """The tags of the table; a new one names the version of the handle."""
        return Tags(self.files, self._version)

    def find(self, version: int | None, tag: str | None, as_of: datetime | str | None) -> Snapshot:
        """The version with this number, with this tag, or the newest one as of this time."""
        return find(self.files, version, tag, as_of)
