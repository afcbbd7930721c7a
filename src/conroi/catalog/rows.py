"""Rows of `__manifest`: a table and the version it is pinned at, or a namespace; and changes that depend on the row."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from conroi.catalog.names import shown
from conroi.environment import Environment
from conroi.errors import CorruptionError
from conroi.format.json import Document, decode_document, parse_json
from conroi.format.on_disk import (
    INSERT_PROPERTY,
    LINEAGE_KEY,
    OWN_PREFIX,
    ROW_INCARNATION,
    ROW_LOCK,
    ROW_MANIFEST,
    ROW_REPAIRED,
    ROW_TRANSACTION,
    ROW_VERSION,
    TREE_DIR,
)
from conroi.snapshots.branch_storage import branch_folder
from conroi.snapshots.pin import Pin

Lineage = tuple[tuple[str, int], ...]
"""The folders that have the older versions of a table on a branch, and up to which, nearest first."""
Line = tuple[str, Lineage]
"""One linear history of a table: its folder, and the folders of the versions before it. It belongs to the row that
has it: another row may have the same folder with another lineage.
"""

TABLE = "table"
NAMESPACE = "namespace"


@dataclass(frozen=True)
class Row:
    """A table or a namespace of the lake, as `__manifest` has it. `metadata` is JSON text with text values."""

    object_id: str
    object_type: str
    location: str | None = None
    metadata: str | None = None
    base_objects: tuple[str, ...] | None = None
    moment_ns: int | None = field(default=None, compare=False)
    """Of a table without a pin: it is read as of this time, that of the snapshot which has the row. None: the
    newest version, only in the current state. Not stored.
    """

    @property
    def is_table(self) -> bool:
        return self.object_type == TABLE

    @cached_property
    def notes(self) -> Mapping[str, str]:
        """What the metadata says."""
        if not self.metadata:
            return {}
        try:
            found = decode_document(self.metadata, self.object_id).content
        except CorruptionError as error:
            raise self._damaged() from error
        if not all(isinstance(value, str) for key, value in found.items() if key.startswith(OWN_PREFIX)):
            raise self._damaged()
        return found

    def _integer(self, name: str) -> int:
        text = self.notes.get(name, "0")
        if not text.removeprefix("-").isdecimal() or len(text) > 20:
            raise self._damaged()
        return int(text)

    def _damaged(self) -> CorruptionError:
        return CorruptionError(
            f"The metadata of {self.object_id!r} in __manifest is not a JSON object.",
            hint="Open an older version of the lake with lake.at(version=…).",
        )

    @cached_property
    def pin(self) -> Pin | None:
        """The version that the lake has of it; None for a table that conroi never published."""
        notes = self.notes
        if ROW_VERSION not in notes:
            return None
        try:
            return Pin(int(notes[ROW_VERSION]), notes[ROW_MANIFEST], notes[ROW_TRANSACTION])
        except (KeyError, ValueError) as error:
            raise self._damaged() from error

    @property
    def incarnation(self) -> str:
        """The table id: a table that was dropped and created again has another one."""
        return self.notes.get(ROW_INCARNATION) or f"folder {self.location}"

    @property
    def lock(self) -> int | None:
        """The id of its insert lock, if it has one."""
        return self._integer(ROW_LOCK) if ROW_LOCK in self.notes else None

    def pinned_at(self, pin: Pin, object_id: str | None = None) -> Row:
        """The same table at another version, and under another name, if one is given.

        A table without an id gets the one that it was identified by so far.
        """
        notes = {
            **self.notes,
            ROW_VERSION: str(pin.version),
            ROW_MANIFEST: pin.manifest,
            ROW_TRANSACTION: pin.transaction,
            ROW_INCARNATION: self.incarnation,
        }
        row = replace(self, object_id=object_id or self.object_id, metadata=json.dumps(notes, separators=(",", ":")))
        row.__dict__.update(notes=notes, pin=pin)  # what the metadata says, without reading it back
        return row

    @property
    def repaired_in(self) -> int:
        """The version that repaired a diverged table; a writer that started before it must start again. 0: none."""
        return self._integer(ROW_REPAIRED)

    def repaired_at(self, version: int) -> Row:
        """The same table, repaired in this version."""
        return self.with_notes({ROW_REPAIRED: str(version)})

    @cached_property
    def lineage(self) -> Lineage:
        """On a branch: the folders that have the table's older versions, and up to which, nearest first."""
        if LINEAGE_KEY not in self.notes:
            return ()
        try:
            noted = parse_json(self.notes[LINEAGE_KEY], "lineage")
            return tuple(Document({"of": noted}, self.object_id).pairs("of"))
        except CorruptionError as error:
            raise self._damaged() from error

    @cached_property
    def line(self) -> Line:
        """The linear history that the row pins a version of."""
        if self.location is None:
            raise CorruptionError(
                f"The lake lists table {shown(self.object_id)!r} without a folder.", hint="Drop it, and make it again."
            )
        return self.location, self.lineage

    @property
    def folder(self) -> str:
        """The folder of a table; CorruptionError if the row has none."""
        return self.line[0]

    @property
    def is_inherited(self) -> bool:
        """Whether the table was never written on its branch, so that its version is in another folder."""
        return bool(self.lineage) and self.pin is not None and self.pin.version == self.lineage[0][1]

    def continues(self, earlier: Row) -> bool:
        """Whether this row continues the history of an earlier one: in its folder, with its older versions.

        A table that was not written on its branch continues with newer versions of the folder that it is inherited
        from.
        """
        if self.location != earlier.location:
            return False
        if self.lineage == earlier.lineage:
            return True
        if not self.lineage or not earlier.is_inherited:
            return False
        (folder, bound), (before, bound_before) = self.lineage[0], earlier.lineage[0]
        return folder == before and bound >= bound_before and self.lineage[1:] == earlier.lineage[1:]

    def moved(self, location: str, lineage: Lineage) -> Row:
        """The same table in another folder, with its older versions where they are; it gets a lock id of its own."""
        kept = {key: value for key, value in self.notes.items() if key not in (LINEAGE_KEY, ROW_LOCK)}
        if lineage:
            kept[LINEAGE_KEY] = json.dumps(lineage, separators=(",", ":"))
        return replace(self, location=location, metadata=json.dumps(kept, separators=(",", ":")))

    def with_lock(self, lock: int) -> Row:
        """The same table with a lock id."""
        return self.with_notes({ROW_LOCK: str(lock)})

    @property
    def insert(self) -> str | None:
        """The record of the newest insert into the table; None if there was none."""
        return self.notes.get(INSERT_PROPERTY)

    def with_insert(self, note: str) -> Row:
        """The same table with the record of its newest insert."""
        return self.with_notes({INSERT_PROPERTY: note})

    def with_notes(self, notes: Mapping[str, str]) -> Row:
        """The same row with these notes added; all others stay."""
        return replace(self, metadata=json.dumps({**self.notes, **notes}, separators=(",", ":")))

    def renamed(self, object_id: str) -> Row:
        """The same table under another name."""
        return replace(self, object_id=object_id)

    def to_json(self) -> list[Any]:
        """For the records of a publication."""
        return [self.object_type, self.location, self.metadata, self.base_objects]

    @classmethod
    def from_json(cls, object_id: str, fields: Any) -> Row:
        match fields:
            case [str(kind), str() | None as location, str() | None as metadata, list() | None as bases]:
                return cls(object_id, kind, location, metadata, None if bases is None else tuple(map(str, bases)))
            case _:
                raise CorruptionError(
                    f"The row of {object_id!r} in the lake's list is damaged.",
                    hint="Open an older version of the lake with lake.at(version=…).",
                )


def new_lock_id(environment: Environment) -> int:
    """63 random bits, because PostgreSQL's are signed. Not compared with other ids: see docs/locks.md."""
    return environment.random_u64() >> 1


def new_table_row(object_id: str, location: str, environment: Environment) -> Row:
    """A table that is about to be created."""
    return Row(object_id, TABLE, location).with_lock(new_lock_id(environment))


# ------------------------------------------------------------------------------ rows on a branch

_ON_BRANCH = re.compile(rf"(?P<table>.+)/{TREE_DIR}/(?P<branch>[^/]+-[0-9a-f]{{8}})")


def table_of(location: str) -> str:
    """The folder of the table itself, of which this may be the folder on a branch."""
    found = _ON_BRANCH.fullmatch(location)
    return location if found is None else found["table"]


def seen_on(branch: str, row: Row) -> Row:
    """A row as the branch has it: in the branch's own folder, with the earlier versions at their origin."""
    if not row.is_table or row.pin is None or row.location is None:
        return row
    location = branch_folder(table_of(row.location), branch)
    if location == row.location:
        return row
    # One that was never written on the branch it comes from has its versions where that one has them.
    here = () if row.is_inherited else ((row.location, row.pin.version),)
    return row.moved(location, (*here, *row.lineage))


def is_own(branch: str, row: Row) -> bool:
    """Whether the table has a folder of its own on the branch."""
    return row.location is not None and row.location.endswith(f"/{TREE_DIR}/{branch}")


class Amendment(Protocol):
    """A change to a table's row, computed at commit. Both methods run on every attempt, on the state that the put
    is for.
    """

    @property
    def object_id(self) -> str:
        """The table."""
        ...

    def check(self, row: Row | None) -> None:
        """Raise a conflict that forbids the publication, given the current row; None if there is no such table."""
        ...

    def amended(self, row: Row) -> Row:
        """The row to publish, derived from the one that the publication would leave; check() has been called."""
        ...
