"""Lake state at one version: its rows, their places in the fragments of `__manifest`, its commit metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyroaring import BitMap

from conroi.catalog.rows import Row
from conroi.errors import CorruptionError
from conroi.format.json import damaged, decode_document
from conroi.format.on_disk import (
    AUTHOR_PROPERTY,
    COMMIT_MESSAGE_PROPERTY,
    IDEMPOTENCY_PROPERTY,
    LAYOUT_PROPERTY,
    MEMBERS_PROPERTY,
    RECORDS_PROPERTY,
    WRITER_PROPERTY,
)

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


def lay_out_rows(state: LakeState, changes: Changes, kind: str | None = None) -> Layout:
    """The layout of a publication of these changes. `kind` is what the publication records of it: a reader derives the
    same layout, because all the rest is deterministic.
    """
    written: set[str] = set()
    replaced: dict[int, BitMap] = {}
    for object_id, row in changes.items():
        if row is not None:
            written.add(object_id)
        place = state.places.get(object_id)
        if place is not None:
            replaced.setdefault(place[0], BitMap()).add(place[1])
    kind = kind or _kind(state, replaced, len(written))
    newest = () if state.small is None else (state.small,)
    removed = set(state.physical if kind == "all" else newest if kind == "small" else ())
    if removed:
        for object_id, place in state.places.items():
            if place[0] in removed and object_id not in changes:
                written.add(object_id)
    deleted: dict[int, BitMap] = {}
    for fragment in sorted(replaced.keys() - removed):
        gone = replaced[fragment] | state.dead.get(fragment, BitMap())
        if len(gone) < state.physical[fragment]:
            deleted[fragment] = replaced[fragment]
        else:
            removed.add(fragment)
    return Layout(kind, tuple(sorted(written)), tuple(sorted(removed)), deleted)


def _kind(state: LakeState, replaced: Mapping[int, BitMap], added: int) -> str:
    """Everything is written anew if too many rows are dead; the newest fragment as long as it is small."""
    dead = sum(map(len, state.dead.values()))
    is_scattered = dead > SMALL_ROWS and dead > MOST_DEAD * sum(state.physical.values())
    if is_scattered or len(state.physical) > MOST_FRAGMENTS:
        return "all"
    small = state.small
    if small is not None:
        added += state.physical[small] - len(state.dead.get(small, ())) - len(replaced.get(small, ()))
    return "small" if added <= SMALL_ROWS else "new"


OWN = frozenset(
    {
        RECORDS_PROPERTY,
        LAYOUT_PROPERTY,
        MEMBERS_PROPERTY,
        AUTHOR_PROPERTY,
        IDEMPOTENCY_PROPERTY,
        COMMIT_MESSAGE_PROPERTY,
        WRITER_PROPERTY,
    }
)
MOST_MESSAGES = 5
"""Number of messages that stand in the message of a version with several commits."""
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
        properties = dict(self.properties)
        if self.message is not None:
            properties[COMMIT_MESSAGE_PROPERTY] = self.message
        if self.author is not None:
            properties[AUTHOR_PROPERTY] = self.author
        if self.idempotency_key is not None:
            properties[IDEMPOTENCY_PROPERTY] = self.idempotency_key
        return properties

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> CommitMetadata:
        return cls(
            message=properties.get(COMMIT_MESSAGE_PROPERTY),
            author=properties.get(AUTHOR_PROPERTY),
            idempotency_key=properties.get(IDEMPOTENCY_PROPERTY),
            properties={key: value for key, value in properties.items() if key not in OWN},
        )


@dataclass(frozen=True)
class Member:
    """One commit of a version that may have several: what it changes, with its own id and metadata."""

    uuid: str
    notes: CommitMetadata
    changes: Changes


def encode_members(members: Sequence[Member]) -> dict[str, str]:
    """The properties of a version that has several commits."""
    listed = [
        {"id": each.uuid, "properties": each.notes.to_properties(), "rows": sorted(each.changes)} for each in members
    ]
    return {
        COMMIT_MESSAGE_PROPERTY: joined_messages([each.notes.message for each in members]),
        MEMBERS_PROPERTY: json.dumps({"members": listed}, separators=(",", ":")),
    }


def joined_properties(properties: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The properties of one operation for several commits: what they have in common, a message, and those of each."""
    first = properties[0]
    if all(each == first for each in properties):
        return dict(first)
    common = {key: value for key, value in first.items() if all(each.get(key) == value for each in properties)}
    listed = [dict(each) for each in properties]
    return {
        **common,
        COMMIT_MESSAGE_PROPERTY: joined_messages([each.get(COMMIT_MESSAGE_PROPERTY) for each in properties]),
        MEMBERS_PROPERTY: json.dumps({"members": listed}, separators=(",", ":")),
    }


def joined_messages(messages: Sequence[str | None]) -> str:
    """One message for several commits, for readers that know only of one."""
    distinct = list(dict.fromkeys(message for message in messages if message is not None))
    more = f" and {len(distinct) - MOST_MESSAGES} more" if len(distinct) > MOST_MESSAGES else ""
    return f"{len(messages)} commits{': ' if distinct else ''}{'; '.join(distinct[:MOST_MESSAGES])}{more}"


def decode_members(properties: Mapping[str, str], changes: Changes | None) -> list[Member] | None:
    """The commits of a version that has several, in their order; None if it is one commit."""
    text = properties.get(MEMBERS_PROPERTY)
    if text is None:
        return None
    found: list[Member] = []
    for each in decode_document(text, _MEMBERS).documents("members"):
        rows = each.texts("rows")
        if changes is not None and not changes.keys() >= set(rows):
            raise damaged(_MEMBERS, "it names rows that the version did not change")
        notes = CommitMetadata.of(each.text_map("properties"))
        found.append(Member(each.text("id"), notes, {} if changes is None else {key: changes[key] for key in rows}))
    return found


_MEMBERS = "The list of commits in a version of the lake"


def encode_records(changes: Changes, kind: str) -> dict[str, str]:
    """The properties that record what changed."""
    if len(changes) > MOST_RECORDS:
        return {}
    records: dict[str, list[Any] | None] = {}
    for object_id, row in changes.items():
        records[object_id] = None if row is None else row.to_json()
    return {RECORDS_PROPERTY: json.dumps(records, separators=(",", ":")), LAYOUT_PROPERTY: kind}


def decode_records(properties: Mapping[str, str]) -> tuple[dict[str, Row | None], str] | None:
    """What changed, and the kind of its layout; None if the commit does not record it."""
    if RECORDS_PROPERTY not in properties or LAYOUT_PROPERTY not in properties:
        return None
    records = decode_document(properties[RECORDS_PROPERTY], "The list of changes in a commit of the lake").content
    rows = {key: None if fields is None else Row.from_json(key, fields) for key, fields in records.items()}
    return rows, properties[LAYOUT_PROPERTY]


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
        for offset, object_id in enumerate(layout.written):  # rows of ours are in the order of their ids
            places[object_id] = (new_fragment, offset)
        if layout.written:
            physical[new_fragment] = len(layout.written)
        state = LakeState(version, timestamp_ns, self.changed(changes), places, dead, physical, self.config)
        if "unpinned" in self.__dict__:  # follows from what changed, so that 10,000 rows are looked at once
            unpinned = set(self.unpinned - changes.keys())
            for object_id, row in changes.items():
                if row is not None and _is_unpinned(row):
                    unpinned.add(object_id)
            state.__dict__["unpinned"] = frozenset(unpinned)
        return state


def _is_unpinned(row: Row) -> bool:
    try:
        return row.is_table and row.pin is None
    except CorruptionError:  # raised when that table is opened; the others are fine
        return False
