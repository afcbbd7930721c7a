"""Lake state at one version: its rows, their places in the fragments of `__manifest`, its commit metadata."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyroaring import BitMap

from conroi.catalog.rows import Row
from conroi.commit.idempotency import IDEMPOTENCY
from conroi.errors import CorruptionError
from conroi.format.json import decode_document
from conroi.format.transaction import AUTHOR_PROPERTY, COMMIT_MESSAGE_PROPERTY

Place = tuple[int, int]
"""A fragment and an offset in it."""

SMALL_ROWS = 64
MOST_FRAGMENTS = 24
MOST_DEAD = 0.5
"""Maximum fraction of deleted rows in all files; above it, everything is rewritten."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The changes of the fragments, and the rows that go into the new one, in this order."""

    kind: str
    """`small`, `new` or `all`: what is written besides the changed rows."""
    written: tuple[str, ...]
    removed: tuple[int, ...] = ()
    deleted: Mapping[int, BitMap] = field(default_factory=dict[int, BitMap])
    """Rows that are deleted in fragments that stay."""


def lay_out_rows(
    changed: Collection[str],
    added: Collection[str],
    places: Mapping[str, Place],
    small: int | None,
    physical: Mapping[int, int],
    dead: Mapping[int, BitMap],
) -> Layout:
    """The layout of a publication that changes these rows, of which those `added` are there after it."""
    in_small = {object_id for object_id, place in places.items() if place[0] == small} if small is not None else set()
    kind = "small" if len((in_small - set(changed)) | set(added)) <= SMALL_ROWS else "new"
    if _is_scattered(physical, dead):
        kind = "all"
    return laid_out(kind, changed, added, places, small, physical, dead)


def laid_out(
    kind: str,
    changed: Collection[str],
    added: Collection[str],
    places: Mapping[str, Place],
    small: int | None,
    physical: Mapping[int, int],
    dead: Mapping[int, BitMap],
) -> Layout:
    """The layout of this kind; deterministic, so that readers can derive it."""
    rewritten = set(physical) if kind == "all" else ({small} if kind == "small" and small is not None else set[int]())
    kept = {object_id for object_id, place in places.items() if place[0] in rewritten} if rewritten else set[str]()
    written = tuple(sorted((kept - set(changed)) | set(added)))
    deleted: dict[int, BitMap] = {}
    for object_id in changed:
        place = places.get(object_id)
        if place is not None and place[0] not in rewritten:
            deleted.setdefault(place[0], BitMap()).add(place[1])
    emptied = {f for f, offsets in deleted.items() if len(offsets | dead.get(f, BitMap())) >= physical[f]}
    return Layout(
        kind,
        written,
        removed=tuple(sorted(rewritten | emptied)),
        deleted={f: offsets for f, offsets in deleted.items() if f not in emptied},
    )


def _is_scattered(physical: Mapping[int, int], dead: Mapping[int, BitMap]) -> bool:
    if len(physical) > MOST_FRAGMENTS:
        return True
    gone = sum(len(offsets) for offsets in dead.values())
    return gone > SMALL_ROWS and gone > MOST_DEAD * sum(physical.values())


RECORDS = "conroi.records"
LAYOUT = "conroi.layout"
AUTHOR = AUTHOR_PROPERTY
OWN = frozenset({RECORDS, LAYOUT, AUTHOR, IDEMPOTENCY, COMMIT_MESSAGE_PROPERTY, "conroi.writer"})
MOST_RECORDS = 1000
"""Number of tables above which a publication carries no records: readers then read the rows themselves."""


@dataclass(frozen=True)
class CommitMetadata:
    """Commit metadata of a publication, besides its rows."""

    message: str | None = None
    author: str | None = None
    idempotency_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_properties(self) -> dict[str, str]:
        given = {
            COMMIT_MESSAGE_PROPERTY: self.message,
            AUTHOR: self.author,
            IDEMPOTENCY: self.idempotency_key,
        }
        return {**self.properties, **{key: value for key, value in given.items() if value is not None}}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> CommitMetadata:
        return cls(
            message=properties.get(COMMIT_MESSAGE_PROPERTY),
            author=properties.get(AUTHOR),
            idempotency_key=properties.get(IDEMPOTENCY),
            properties={key: value for key, value in properties.items() if key not in OWN},
        )


def encode_records(changes: Changes, kind: str) -> dict[str, str]:
    """The properties that record what changed."""
    if len(changes) > MOST_RECORDS:
        return {}
    records = {object_id: None if row is None else row.to_json() for object_id, row in changes.items()}
    return {RECORDS: json.dumps(records, separators=(",", ":")), LAYOUT: kind}


def decode_records(properties: Mapping[str, str]) -> tuple[dict[str, Row | None], str] | None:
    """What changed, and the kind of its layout; None if the commit does not record it."""
    if RECORDS not in properties or LAYOUT not in properties:
        return None
    records = decode_document(properties[RECORDS], "The list of changes in a commit of the lake").content
    rows = {key: None if fields is None else Row.from_json(key, fields) for key, fields in records.items()}
    return rows, properties[LAYOUT]


Changes = Mapping[str, Row | None]
"""New rows by object id; None removes one."""
SETTINGS = "__settings"
"""The row of the lake's settings, in a database; a lake in its own folder has them in the config of `__manifest`."""


@dataclass(frozen=True)
class LakeState:
    """All rows of one version of `__manifest`."""

    version: int
    timestamp_ns: int
    rows: Mapping[str, Row]
    places: Mapping[str, Place] = field(default_factory=dict[str, Place])
    dead: Mapping[int, BitMap] = field(default_factory=dict[int, BitMap])
    """The deleted rows of each other fragment."""
    physical: Mapping[int, int] = field(default_factory=dict[int, int])
    """How many rows each fragment has, deleted ones included."""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """The settings of `__manifest`."""

    def setting(self, name: str) -> str | None:
        """A setting that the lake has stored about itself."""
        row = self.rows.get(SETTINGS)
        return self.config.get(name) if row is None else row.notes.get(name)

    @property
    def small(self) -> int | None:
        """The fragment that is written anew with every publication, as long as it is small: the newest one.

        All readers of the same fragments must choose the same one, whether they read incrementally or in full.
        """
        return max(self.physical, default=None)

    def table(self, object_id: str) -> Row | None:
        """The row of a table of this id."""
        row = self.rows.get(object_id)
        return row if row is not None and row.is_table else None

    def tables(self) -> list[Row]:
        """All tables, by id."""
        return [self.rows[key] for key in sorted(self.rows) if self.rows[key].is_table]

    @cached_property
    def unpinned(self) -> frozenset[str]:
        """Tables that other software listed and the lake never published: their rows pin no version."""
        return frozenset(key for key, row in self.rows.items() if _is_unpinned(row))

    def seen_at(self, moment_ns: int) -> LakeState:
        """The state as a snapshot: tables without a pin are read as of this time."""
        if not self.unpinned:
            return self
        seen = {key: replace(self.rows[key], moment_ns=moment_ns) for key in self.unpinned}
        return replace(self, rows={**self.rows, **seen})

    def with_rows(self, rows: Mapping[str, Row]) -> LakeState:
        """The state with these rows in place of its own of the same ids."""
        return replace(self, rows={**self.rows, **rows}) if rows else self

    def changed(self, changes: Changes) -> dict[str, Row]:
        """The rows after these changes."""
        rows = dict(self.rows)
        for object_id, row in changes.items():
            if row is None:
                rows.pop(object_id, None)
            else:
                rows[object_id] = row
        return rows

    def following(
        self, version: int, timestamp_ns: int, changes: Changes, layout: Layout, new_fragment: int
    ) -> LakeState:
        """The state after a publication with this layout; its rows are in `new_fragment`."""
        rows = self.changed(changes)
        places = dict(self.places)
        physical = dict(self.physical)
        dead = dict(self.dead)
        for object_id in changes:
            places.pop(object_id, None)
        for fragment in layout.removed:
            physical.pop(fragment, None)
            dead.pop(fragment, None)
        for fragment, offsets in layout.deleted.items():
            dead[fragment] = dead.get(fragment, BitMap()) | offsets
        places.update(written_places(layout.written, new_fragment))
        if layout.written:
            physical[new_fragment] = len(layout.written)
        state = LakeState(version, timestamp_ns, rows, places, dead, physical, self.config)
        if "unpinned" in self.__dict__:  # follows from what changed, so that 10,000 rows are looked at once
            new = {key for key, row in changes.items() if row is not None and _is_unpinned(row)}
            state.__dict__["unpinned"] = (self.unpinned - changes.keys()) | new
        return state


def _is_unpinned(row: Row) -> bool:
    try:
        return row.is_table and row.pin is None
    except CorruptionError:  # raised when that table is opened; the others are fine
        return False


def written_places(object_ids: Iterable[str], fragment: int) -> dict[str, Place]:
    """The positions of rows in a fragment of ours: in the order of their ids."""
    return {object_id: (fragment, offset) for offset, object_id in enumerate(object_ids)}
