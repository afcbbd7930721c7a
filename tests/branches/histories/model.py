"""A lake in plain Python: branches, versions, tables with rows, and the clocks by which branches know each other."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.branches.histories.values import Column, canonical, cast

Row = Mapping[int, Any]
"""Canonical values by field id."""
Notes = Mapping[str, str]

_numbers = itertools.count(1)


def fresh() -> int:
    """An id that nothing else has."""
    return next(_numbers)


@dataclass(frozen=True)
class Table:
    """One version of a table. Rows have hidden identities; an updated row is a new one."""

    columns: tuple[Column, ...]
    key: tuple[int, ...] = ()
    rows: Mapping[int, Row] = field(default_factory=dict[int, Row])
    config: Notes = field(default_factory=dict[str, str])
    notes: Notes = field(default_factory=dict[str, str])
    schema_notes: Notes = field(default_factory=dict[str, str])
    version: int = field(default_factory=fresh)
    """Another one after each change, also one that changed nothing in the end; a fast-forward keeps it."""

    def changed(self, **what: Any) -> Table:
        return replace(self, version=fresh(), **what)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Columns and key."""
        return (tuple(column.shape for column in self.columns), self.key)

    @property
    def fids(self) -> set[int]:
        return {column.fid for column in self.columns}

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def by_fid(self, fid: int) -> Column:
        return next(column for column in self.columns if column.fid == fid)

    def values(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[column.fid] for column in self.columns)

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[fid] for fid in self.key)

    def by_key(self) -> dict[tuple[Any, ...], Row]:
        return {self.key_of(row): row for row in self.rows.values()}

    def bag(self) -> Counter[tuple[Any, ...]]:
        return Counter(self.values(row) for row in self.rows.values())

    @property
    def content(self) -> tuple[Any, ...]:
        """All that a reader sees; two tables with the same content are the same."""
        known = self.__dict__.get("_content")
        if known is None:
            notes = tuple(column.notes for column in self.columns)
            known = (self.shape, notes, self.bag(), dict(self.config), dict(self.notes), dict(self.schema_notes))
            self.__dict__["_content"] = known
        return known

    # ------------------------------------------------------------------ statements

    def fit(self, rows: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Rows by name as rows by field id."""
        return [{each.fid: canonical(row.get(each.name), each) for each in self.columns} for row in rows]

    def append(self, rows: Iterable[Row]) -> Table:
        return self.changed(rows={**self.rows, **{fresh(): row for row in rows}})

    def delete(self, uids: Iterable[int]) -> Table:
        gone = set(uids)
        return self.changed(rows={uid: row for uid, row in self.rows.items() if uid not in gone})

    def update(self, uids: Iterable[int], values: Row) -> Table:
        made = {uid: fresh() for uid in uids}
        rows = {made.get(uid, uid): {**row, **values} if uid in made else row for uid, row in self.rows.items()}
        return self.changed(rows=rows)

    def upsert(self, rows: list[Row], on: tuple[int, ...]) -> Table:
        """Rows with the same values in these columns are replaced, the others are added; null matches nothing."""
        left = {tuple(row[fid] for fid in on): row for row in rows}
        result, used = dict[int, Row](), set[tuple[Any, ...]]()
        for uid, row in self.rows.items():
            value = tuple(row[fid] for fid in on)
            if value in left and None not in value:
                used.add(value)
                result[fresh()] = left[value]
            else:
                result[uid] = row
        result.update({fresh(): row for value, row in left.items() if value not in used})
        return self.changed(rows=result)

    def with_columns(self, columns: tuple[Column, ...]) -> Table:
        """The same rows in other columns, cast where needed; new ones are null."""
        rows = {uid: project(row, self.columns, columns) for uid, row in self.rows.items()}
        return self.changed(columns=columns, rows=rows)

    def renewed(self, rows: list[Row]) -> Table:
        return self.changed(rows={fresh(): row for row in rows})


def project(row: Row, before: tuple[Column, ...], after: tuple[Column, ...]) -> Row:
    """A row in other columns."""
    if before is after:
        return row
    known = {column.fid: column for column in before}
    return {
        column.fid: cast(row[column.fid], known[column.fid], column) if column.fid in known else None
        for column in after
    }


def fits(row: Row, columns: tuple[Column, ...]) -> bool:
    return all(column.nullable or row[column.fid] is not None for column in columns)


@dataclass(frozen=True)
class Entry:
    """A table in a state of a branch."""

    name: str
    table: Table


@dataclass(frozen=True)
class State:
    """All tables of a branch at one version, by identity."""

    tables: Mapping[int, Entry] = field(default_factory=dict[int, Entry])
    namespaces: frozenset[str] = frozenset()

    def named(self, name: str) -> int | None:
        return next((tid for tid, entry in self.tables.items() if entry.name == name), None)

    @property
    def names(self) -> set[str]:
        return {entry.name for entry in self.tables.values()}

    def having(self, tid: int, name: str, table: Table) -> State:
        spaces = self.namespaces | ({name.rpartition(".")[0]} if "." in name else set())
        return State({**self.tables, tid: Entry(name, table)}, spaces)

    def without(self, tid: int) -> State:
        return replace(self, tables={each: entry for each, entry in self.tables.items() if each != tid})


Clock = Mapping[int, int]
"""For each branch, by its identity, the newest version of it that went in."""


@dataclass(frozen=True)
class Version:
    """A branch at a version."""

    branch: int
    number: int
    state: State
    clock: Clock

    def has(self, other: Version) -> bool:
        """Whether the other one, or its origin where it did nothing of its own, went into this one."""
        return all(self.clock.get(branch, -1) >= number for branch, number in other.clock.items())


@dataclass
class Branch:
    """A branch: identity, name, and all its versions by number."""

    id: int
    name: str
    head: Version
    origin: Version | None
    versions: dict[int, Version] = field(default_factory=dict[int, Version])
    is_deleted: bool = False
    maybe: set[int] = field(default_factory=set[int])
    """Versions that may have been collected."""

    def commit(self, number: int, state: State, clock: Clock | None = None) -> None:
        merged = {**(self.head.clock if clock is None else clock), self.id: number}
        self.head = Version(self.id, number, state, merged)
        self.versions[number] = self.head


@dataclass
class World:
    """The lake."""

    branches: dict[str, Branch]
    deleted: dict[int, Branch] = field(default_factory=dict[int, Branch])
    tags: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Branch and version by name."""

    def by_id(self, number: int) -> Branch:
        found = next((branch for branch in self.branches.values() if branch.id == number), None)
        return found or self.deleted[number]

    def version(self, branch: int, number: int) -> Version:
        return self.by_id(branch).versions[number]

    def bases(self, versions: list[Version]) -> list[Version]:
        """The newest states that all of these have in common; several after criss-cross merges."""
        clocks = [version.clock for version in versions]
        shared = {branch: min(clock[branch] for clock in clocks) for branch in set(clocks[0]).intersection(*clocks[1:])}
        found = [self.version(branch, number) for branch, number in shared.items()]
        return [
            each
            for place, each in enumerate(found)
            if not any(
                other.has(each) and (other.clock != each.clock or rank < place)
                for rank, other in enumerate(found)
                if other is not each
            )
        ]
