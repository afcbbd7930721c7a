"""A table as a stream: offsets, and the rows of the table followed by those of its new versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from conroi import operations
from conroi.data.arrow_types import row_width
from conroi.data.table_version import TableVersion
from conroi.errors import ConroiError, CorruptionError, InvalidInputError, NotFoundError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.on_disk import FOLDED_PROPERTY
from conroi.format.transaction import Transaction
from conroi.history import find
from conroi.snapshots.snapshot import Snapshot, load_transaction
from conroi.spark.options import (
    AS_OF,
    FOLLOW,
    IF_MOVED,
    KEY,
    MESSAGE,
    MOST_ROWS,
    MOST_VERSIONS,
    SKIP_CHANGES,
    START,
    TAG,
    VERSION,
    WHERE,
    Options,
)
from conroi.spark.pins import PinnedVersion
from conroi.table import Table

_QUIET = frozenset(
    {"CreateIndex", "Project", "ReserveFragments", "Rewrite", "UpdateBases", "UpdateConfig", "UpdateMemWalState"}
)
"""What leaves all rows as they were."""
_HARMLESS = (_QUIET - {"Rewrite"}) | {"Append", "Merge"}
"""What may be together in one version, of which the fragments that were not there before have new rows."""


@dataclass(frozen=True)
class Arrivals:
    """The fragments that a version brought in, whole."""

    snapshot: Snapshot
    fragments: tuple[pb.DataFragment, ...]

    @property
    def rows(self) -> int:
        """How many rows they have room for; deleted ones count, so that a position stays what it is."""
        return sum(fragment.physical_rows for fragment in self.fragments)


class FollowedVersions:
    """The versions of one table, each read once."""

    def __init__(self, table: Table, *, skip_changes: bool) -> None:
        self._table = table
        self._skip_changes = skip_changes
        self._known: dict[int, Arrivals] = {}
        self._whole: Arrivals | None = None

    def newest(self) -> int:
        """The number of the newest version."""
        self._table = self._table.latest()
        return self._table.version

    def whole(self, version: int) -> Arrivals:
        """All rows that the table had at a version."""
        if self._whole is None or self._whole.snapshot.version != version:
            snapshot = self._snapshot(version)
            self._whole = Arrivals(snapshot, snapshot.manifest.fragments)
        return self._whole

    def arrivals(self, version: int) -> Arrivals:
        """The rows that this version added; UnsupportedError if it changed others, unless those are skipped."""
        if version not in self._known:
            self._known[version] = self._looked_up(version)
        return self._known[version]

    def forget_before(self, version: int) -> None:
        """These are not asked for again."""
        self._whole = None if self._whole is None or self._whole.snapshot.version < version else self._whole
        self._known = {known: arrivals for known, arrivals in self._known.items() if known >= version}

    def _looked_up(self, version: int) -> Arrivals:
        snapshot = self._snapshot(version)
        transaction = load_transaction(self._table.pinned.files.objects, snapshot)
        added = None if transaction is None else added_fragments(snapshot, transaction, self._snapshot)
        if added is not None:
            return Arrivals(snapshot, tuple(added))
        if self._skip_changes:
            return Arrivals(snapshot, ())
        name = "an operation that is not known" if transaction is None else transaction.operation_name
        raise UnsupportedError(
            f"Version {version} changed rows that were there before ({name}). A stream hands on new rows only.",
            table=self._table.uri,
            version=version,
            hint=f'option("{SKIP_CHANGES}", "true") leaves such versions out, with all they did; or begin a new query '
            "with a new checkpoint, which starts with all rows as they are now.",
        )

    def _snapshot(self, version: int) -> Snapshot:
        if version == self._table.version:
            return self._table.pinned.snapshot
        try:
            return find(self._table.pinned.files, version)
        except NotFoundError:
            raise NotFoundError(
                f"The stream must continue at version {version}, which expired and was collected before it was "
                "read: rows would be missing.",
                table=self._table.uri,
                version=version,
                hint="Begin a new query with a new checkpoint, which starts with all rows as they are now; or choose "
                f'the version with option("{START}", …). Keep versions for longer than a query may stand still.',
            ) from None


def added_fragments(
    snapshot: Snapshot, transaction: Transaction, load: Callable[[int], Snapshot]
) -> Sequence[pb.DataFragment] | None:
    """The fragments with new rows, if this version did nothing else to rows; None if it did."""
    fragments = snapshot.manifest.fragments
    operation = operations.of(transaction)
    if operation.name in _QUIET:
        return ()
    if snapshot.version == 1 or operation.name == "Clone":
        return fragments
    if isinstance(operation, operations.Append):
        return _last(fragments, len(operation.fragments))
    if isinstance(operation, operations.Update):  # a merge that only inserted
        is_insert = not (operation.removed_fragment_ids or operation.updated_fragments)
        return _last(fragments, len(operation.new_fragments)) if is_insert else None
    if isinstance(operation, operations.Merge):  # columns came in, and maybe rows with them
        names = transaction.properties.get(FOLDED_PROPERTY, "").split(",")
        if not _HARMLESS.issuperset(name.strip() for name in names if name):
            return None
        before = load(snapshot.version - 1).manifest.fragments_by_id
        return [fragment for fragment in fragments if fragment.id not in before]
    return None


def _last(fragments: Sequence[pb.DataFragment], count: int) -> Sequence[pb.DataFragment]:
    """New fragments get the highest ids, and stand last."""
    return fragments[len(fragments) - count :]


NOTHING_YET: dict[str, Any] = {}
"""Where a new query is before its first batch. It says nothing, since Spark asks for it again at every restart until a
batch is through: where the query began must come from what was written down with its first batch."""


@dataclass(frozen=True)
class Offset:
    """All before `version` was read, and so many rows of what `version` itself brought."""

    table: str
    """The folder of the table: another one under the same name is another table."""
    first: int
    """The version that the stream began with."""
    with_snapshot: bool
    """Whether it began with all rows that the table had at `first`, or only with those that `first` added."""
    version: int
    position: int = 0

    def to_json(self) -> dict[str, Any]:
        """As Spark writes it down."""
        return {
            "table": self.table,
            "first": self.first,
            "snapshot": self.with_snapshot,
            "version": self.version,
            "position": self.position,
        }

    @staticmethod
    def of(written: dict[str, Any]) -> Offset:
        """As it was written down."""
        try:
            table, first, with_snapshot = str(written["table"]), int(written["first"]), bool(written["snapshot"])
            return Offset(table, first, with_snapshot, int(written["version"]), int(written["position"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptionError(
                f"The checkpoint has an offset that is none of conroi's: {written}.",
                hint="It belongs to another source. Use a new checkpoint for a query that reads from conroi.",
            ) from error

    @property
    def beginning(self) -> Offset:
        """Where the stream began."""
        return replace(self, version=self.first, position=0)

    @property
    def next_version(self) -> Offset:
        """After all that this version brought."""
        return replace(self, version=self.version + 1, position=0)


@dataclass(frozen=True)
class Limits:
    """How much one batch may take; None is no limit."""

    rows: int | None = None
    versions: int | None = None


def arrivals_at(versions: FollowedVersions, at: Offset) -> Arrivals:
    """What the version of this offset brought to the stream."""
    if at.with_snapshot and at.version == at.first:
        return versions.whole(at.version)
    return versions.arrivals(at.version)


def advanced(versions: FollowedVersions, start: Offset, newest: int, limits: Limits) -> Offset:
    """The end of the next batch. A version that cannot be handed on ends it, and fails when it would be the first."""
    at, rows_left, versions_left = start, limits.rows, limits.versions
    while at.version <= newest and versions_left != 0:
        try:
            left = arrivals_at(versions, at).rows - at.position
        except ConroiError:
            if at == start:
                raise
            return at
        if left and rows_left is not None:
            if rows_left < left:
                return replace(at, position=at.position + rows_left)
            rows_left -= left
        if left and versions_left is not None:
            versions_left -= 1
        at = at.next_version
    return at


@dataclass(frozen=True)
class RowRange:
    """Rows of one fragment, from one place up to and without another."""

    arrivals: Arrivals
    fragment: pb.DataFragment
    begin: int
    end: int

    @property
    def is_whole(self) -> bool:
        return self.begin == 0 and self.end == self.fragment.physical_rows


def ranges_between(versions: FollowedVersions, start: Offset, end: Offset) -> Iterator[RowRange]:
    """All rows from one offset to another, in the order in which they arrived."""
    at = start
    while (at.version, at.position) < (end.version, end.position):
        arrivals = arrivals_at(versions, at)
        until = end.position if at.version == end.version else arrivals.rows
        yield from _ranges(arrivals, at.position, until)
        at = at.next_version if at.version < end.version else end


def _ranges(arrivals: Arrivals, begin: int, end: int) -> Iterator[RowRange]:
    before = 0
    for fragment in arrivals.fragments:
        first, last = max(begin - before, 0), min(end - before, fragment.physical_rows)
        if first < last:
            yield RowRange(arrivals, fragment, first, last)
        before += fragment.physical_rows


EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True)
class Slice:
    """Some rows of one fragment, with all that a task must know to read them."""

    version: PinnedVersion
    """The table as it was when the rows came in, with this fragment alone: a manifest of all would be big."""
    fragment: int
    where: str | None
    """Which rows, if not all."""


class TableStream:
    """Plans the batches of one query. A new one goes on from the offsets of another."""

    def __init__(self, head: Callable[[], Table], options: Options) -> None:
        options.refuse(
            {VERSION, TAG, AS_OF, FOLLOW, WHERE, MESSAGE, KEY, IF_MOVED},
            "a stream that reads",
            f'option("{START}", …) says where it begins: "{EARLIEST}", "{LATEST}" or a version of the table.',
        )
        self._head = head
        self._start = _checked_start(options.get(START) or EARLIEST)
        self._skip_changes = options.flag(SKIP_CHANGES)
        self.limits = Limits(options.count(MOST_ROWS), options.count(MOST_VERSIONS))

    def newest(self) -> int:
        """The newest version."""
        return self._versions.newest()

    def next(self, start: dict[str, Any], *, is_limited: bool, until: int | None) -> dict[str, Any]:
        """The end of the batch that begins there; versions after `until` are for later."""
        newest = self.newest() if until is None else min(self.newest(), until)
        begun = self._begun(newest) if start == NOTHING_YET else self._checked(Offset.of(start), newest)
        return advanced(self._versions, begun, newest, self.limits if is_limited else Limits()).to_json()

    def forget_before(self, end: dict[str, Any]) -> None:
        """All before this offset is done."""
        self._versions.forget_before(Offset.of(end).version)

    def _begun(self, newest: int) -> Offset:
        """Where a new query begins."""
        if isinstance(self._start, int) and self._start > newest + 1:
            raise InvalidInputError(
                f"{START}={self._start}, but the table's newest version is {newest}.",
                table=self._table.uri,
                hint=f'Give a version of the table that is there, {newest + 1} for the next one, or "{LATEST}".',
            )
        firsts = {EARLIEST: newest, LATEST: newest + 1}
        first = self._start if isinstance(self._start, int) else firsts[self._start]
        return Offset(self._folder, first, self._start == EARLIEST, first)

    def _checked(self, offset: Offset, newest: int) -> Offset:
        """The offset, if it is one of this table."""
        if offset.table != self._folder or offset.version > newest + 1:
            raise NotFoundError(
                f"The checkpoint is of a table {offset.table!r} with version {offset.version - 1}; this is "
                f"{self._folder!r}, whose newest version is {newest}.",
                table=self._table.uri,
                version=offset.version - 1,
                hint="It was dropped and created again, or the path is another one. Use a new checkpoint.",
            )
        return offset

    @cached_property
    def _table(self) -> Table:
        return self._head()

    @cached_property
    def _versions(self) -> FollowedVersions:
        return FollowedVersions(self._table, skip_changes=self._skip_changes)

    @property
    def _folder(self) -> str:
        return self._table.uri.rpartition("/")[2]

    def tasks(
        self, start: dict[str, Any], end: dict[str, Any], columns: pa.Schema, where: str | None, bytes_per_task: int
    ) -> list[list[Slice]]:
        """What each task reads: rows that arrived one after the other, together about as big as one task should be."""
        until = self._checked(Offset.of(end), self.newest())
        begin = until.beginning if start == NOTHING_YET else Offset.of(start)
        width = max(1, row_width(columns))
        tasks: list[list[Slice]] = []
        room = 0
        for rows in ranges_between(self._versions, begin, until):
            size = max(1, (rows.end - rows.begin) * width)
            if not tasks or size > room:
                tasks.append([])
                room = bytes_per_task
            tasks[-1].append(self._slice(rows, where))
            room -= size
        return tasks

    def _slice(self, rows: RowRange, where: str | None) -> Slice:
        snapshot = rows.arrivals.snapshot
        alone = replace(
            snapshot,
            manifest=snapshot.manifest.changed(fragments=[rows.fragment], indices=()),
            is_final=False,  # it has no file
            is_private=True,
        )
        version = PinnedVersion.of(TableVersion(self._table.pinned.files, alone))
        return Slice(version, rows.fragment.id, _where(rows, where))


def _where(rows: RowRange, where: str | None) -> str | None:
    if rows.is_whole:
        return where
    address = rows.fragment.id << 32
    chosen = f"_rowaddr >= {address + rows.begin} AND _rowaddr < {address + rows.end}"
    return chosen if where is None else f"({where}) AND {chosen}"


def _checked_start(text: str) -> str | int:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.isdecimal() and int(text):
        return int(text)
    raise InvalidInputError(
        f"{START}={text!r} is not known.", hint=f'Give "{EARLIEST}", "{LATEST}" or a version of the table.'
    )
