"""Stream offset: the version that a stream has read up to, and a number of rows into what that version added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from conroi.errors import ConroiError, CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.spark.streaming_versions import Arrivals, FollowedVersions

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
        except (KeyError, TypeError, ValueError) as error:
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
