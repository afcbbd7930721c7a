"""The three-way merge of the model, from the specification of `lake.merge`; not from its code.

Where the specification allows a conflict without demanding it (rewritten fragments, say), the model asks what the lake
reported: `Settling.may`. Wrong rows are never allowed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.branches.histories.model import (
    Entry,
    Notes,
    Row,
    State,
    Table,
    Version,
    World,
    fits,
    fresh,
    project,
)
from tests.branches.histories.values import CannotCast, Column, cast

Side = Literal["source", "target"]
AMBIGUOUS: Any = object()
"""Each side of a criss-cross merge had changed it: there is no base."""


@dataclass(frozen=True)
class Conflict:
    """One thing that both sides changed; `names` are those under which the lake may list the table."""

    kind: str
    names: frozenset[str]
    key: tuple[Any, ...] | None = None
    rows: tuple[Any, Any, Any] | None = None
    """Base, source and target, where the columns are the same on all."""
    kinds: frozenset[str] = frozenset()
    """Kinds that will do as well."""

    def fits_kind(self, kind: str) -> bool:
        return kind == self.kind or kind in self.kinds


@dataclass(frozen=True)
class Reported:
    """A conflict as the lake lists it."""

    kind: str
    table: str
    key: tuple[Any, ...] | None


@dataclass
class Settling:
    """The answers to conflicts; without one, names go on as if it were the target's."""

    answer: Callable[[str, Any], Side | None]
    """By kind and key; None if there is no answer."""
    reported: list[Reported] = field(default_factory=list[Reported])
    conflicts: list[Conflict] = field(default_factory=list[Conflict])
    is_refused: bool = False

    def may(self, kind: str, names: Iterable[str]) -> bool:
        """Whether the lake reported a conflict that is allowed here."""
        wanted = set(names)
        return any(each.kind == kind and each.table in wanted for each in self.reported)

    def settle(self, conflict: Conflict) -> Side:
        self.conflicts.append(conflict)
        side = self.answer(conflict.kind, conflict.key)
        if side is None:
            self.is_refused = True
            return "target"
        return side


@dataclass(frozen=True)
class Known:
    """What the base knows of one table; each may be AMBIGUOUS."""

    present: Any
    name: Any
    table: Any


def _newest(values: list[Any], before: Callable[[int, int], Any], same: Callable[[Any, Any], bool]) -> Any:
    """Of the candidates' versions of something the one to which all others are older: the base of the two has those."""
    distinct = dict[int, Any]()
    for number, value in enumerate(values):
        if not any(same(value, each) for each in distinct.values()):
            distinct[number] = value
    if len(distinct) == 1:
        return values[0]
    left = list[Any]()
    for number, value in distinct.items():
        known = [before(number, other) for other in distinct if other != number]
        if not any(each is not AMBIGUOUS and same(each, value) for each in known):
            left.append(value)
    return left[0] if len(left) == 1 else AMBIGUOUS


def _same_table(a: Any, b: Any) -> bool:
    return a is b or (a is not None and b is not None and a.content == b.content)


def _same_entry(a: Entry | None, b: Entry | None) -> bool:
    return (a is None and b is None) or (
        a is not None and b is not None and a.name == b.name and _same_table(a.table, b.table)
    )


def _is_one(a: Table, b: Table) -> bool:
    """Whether rows of the same content are the same rows; without a key, equal rows may be two."""
    return bool(a.key) or a.rows.keys() == b.rows.keys()


class Base:
    """The common base: one state, or after criss-cross merges what follows of each table from several."""

    def __init__(self, world: World, versions: list[Version]) -> None:
        self._world = world
        self.candidates = world.bases(versions)
        self._between = dict[tuple[int, int], Base]()

    @property
    def needed(self) -> list[Version]:
        """The states on which the base depends."""
        pairs = itertools.combinations(range(len(self.candidates)), 2)
        return [*self.candidates, *(each for one, other in pairs for each in self._pair(one, other).needed)]

    def _pair(self, one: int, other: int) -> Base:
        pair = (min(one, other), max(one, other))
        if pair not in self._between:
            self._between[pair] = Base(self._world, [self.candidates[each] for each in pair])
        return self._between[pair]

    def known(self, tid: int) -> Known:
        entries = [each.state.tables.get(tid) for each in self.candidates]
        there = [number for number, entry in enumerate(entries) if entry]
        if len(there) < len(entries):
            missing = [number for number, entry in enumerate(entries) if not entry]
            if not there or any(self._pair(a, b).known(tid).present for a in there for b in missing):
                return Known(False, None, None)  # one of them dropped it
        found = [entry for entry in entries if entry]

        def pair(one: int, other: int) -> Known:
            return self._pair(there[one], there[other]).known(tid)

        return Known(
            True,
            _newest([entry.name for entry in found], lambda a, b: pair(a, b).name, lambda a, b: a == b),
            _newest([entry.table for entry in found], lambda a, b: pair(a, b).table, _same_table),
        )

    def has_namespace(self, name: str) -> bool:
        found = [name in each.state.namespaces for each in self.candidates]
        if all(found) or not any(found):
            return any(found)
        pairs = itertools.product(*([n for n, each in enumerate(found) if each is wanted] for wanted in (True, False)))
        return not any(self._pair(one, other).has_namespace(name) for one, other in pairs)


def merged(base: Base, source: State, target: State, settling: Settling) -> State:
    """What the target is after the merge, if it is not refused."""
    return _Merge(base, source, target, settling).run()


class _Merge:
    def __init__(self, base: Base, source: State, target: State, settling: Settling) -> None:
        self._base, self._source, self._target, self._settling = base, source, target, settling
        self._names = dict[int, str]()
        """The three-way names of tables that are there."""
        self._whole = dict[int, Table]()
        """Tables that come as they are on one side."""

    def run(self) -> State:
        for tid in sorted({*self._source.tables, *self._target.tables}):
            self._presence(tid)
        self._collisions()
        result = dict[int, Entry]()
        for tid, name in self._names.items():
            result[tid] = Entry(name, self._content(tid))
        return State(result, self._namespaces(result))

    # ------------------------------------------------------------------ presence and names

    def _presence(self, tid: int) -> None:
        s, t = self._source.tables.get(tid), self._target.tables.get(tid)
        names = frozenset(entry.name for entry in (s, t) if entry)
        known = self._base.known(tid)
        if _same_entry(s, t) and (t is None or s is None or known.present is False or _is_one(s.table, t.table)):
            assert t is not None
            self._keep(tid, t.name, t.table)
            return
        if isinstance(known.name, str):
            names |= {known.name}
        if s is not None and t is not None:
            self._on_both(tid, known, s, t, names)
        else:
            self._on_one(tid, known, s, t, names)

    def _on_both(self, tid: int, known: Known, s: Entry, t: Entry, names: frozenset[str]) -> None:
        if known.present is False:
            self._created_on_both(tid, s, t, names)
            return
        if known.table is AMBIGUOUS and not _same_table(s.table, t.table):
            side = self._settling.settle(Conflict("history", names))
            self._whole[tid] = (s if side == "source" else t).table
        self._names[tid] = self._three_way_name(known.name, s.name, t.name, names)

    def _on_one(self, tid: int, known: Known, s: Entry | None, t: Entry | None, names: frozenset[str]) -> None:
        """One side does not have it: dropped there, or made here."""
        entry = s or t
        assert entry is not None
        if known.present is False:
            self._take(tid, entry)
            return
        is_clear = AMBIGUOUS not in (known.present, known.name, known.table)
        is_same = is_clear and entry.name == known.name and _same_table(entry.table, known.table)
        if is_same:
            return  # the other side dropped it, and here nothing happened
        others = frozenset[str]() if is_clear else frozenset({"history"})
        side = self._settling.settle(Conflict("dropped", names, kinds=others))
        if (side == "source") == (s is not None):
            self._take(tid, entry)

    def _created_on_both(self, tid: int, s: Entry, t: Entry, names: frozenset[str]) -> None:
        is_same = _same_table(s.table, t.table)
        if is_same and s.name != t.name:
            side = self._settling.settle(Conflict("name", names))
            self._take(tid, s if side == "source" else t)
        else:
            side = self._settling.settle(Conflict("created", names))
            self._take(tid, s if side == "source" else t)

    def _take(self, tid: int, entry: Entry | None) -> None:
        if entry is not None:
            self._keep(tid, entry.name, entry.table)

    def _keep(self, tid: int, name: str, table: Table) -> None:
        self._names[tid], self._whole[tid] = name, table

    def _three_way_name(self, b: Any, s: str, t: str, names: frozenset[str]) -> str:
        if s in (t, b):
            return t
        if t == b:
            return s
        return s if self._settling.settle(Conflict("name", names)) == "source" else t

    def _collisions(self) -> None:
        names = {tid: self._all_names(tid) for tid in self._names}
        counts = Counter(self._names.values())
        colliding = {tid for tid, name in self._names.items() if counts[name] > 1}
        while colliding:
            group = {min(colliding)}
            while True:
                held = set[str]().union(*(names[tid] for tid in group))
                more = {tid for tid in names if names[tid] & held}
                if more == group:
                    break
                group = more
            self._settle_group(group, frozenset(held))
            colliding -= group

    def _all_names(self, tid: int) -> set[str]:
        entries = (self._source.tables.get(tid), self._target.tables.get(tid))
        return {self._names[tid], *(entry.name for entry in entries if entry)}

    def _settle_group(self, group: set[int], names: frozenset[str]) -> None:
        counts = Counter(self._names[tid] for tid in group)
        colliding = [tid for tid in group if counts[self._names[tid]] > 1]
        only_source = [tid for tid in colliding if tid not in self._target.tables]
        bases = [self._base.known(tid).present for tid in only_source]
        is_created = bool(only_source) and all(
            sum(1 for tid in colliding if self._names[tid] == name and tid in self._target.tables) <= 1
            for name in {self._names[tid] for tid in colliding}
        )
        either = frozenset({"created", "name"}) if len(group) > 2 or any(bases) else frozenset[str]()
        side = self._settling.settle(Conflict("created" if is_created else "name", names, kinds=either))
        state = self._source if side == "source" else self._target
        for tid in group:
            if tid in state.tables:
                self._names[tid] = state.tables[tid].name
            else:
                del self._names[tid]

    # ------------------------------------------------------------------ contents

    def _content(self, tid: int) -> Table:
        if tid in self._whole:
            return self._whole[tid]
        s, t = self._source.tables[tid], self._target.tables[tid]
        known = self._base.known(tid)
        names = frozenset({s.name, t.name, self._names[tid]} | ({known.name} if isinstance(known.name, str) else set()))
        if known.table is AMBIGUOUS:
            return t.table  # and the source's is the same
        return TableMerge(known.table, s.table, t.table, names, t.name, self._settling).run()

    def _namespaces(self, tables: Mapping[int, Entry]) -> frozenset[str]:
        needed = {entry.name.rpartition(".")[0] for entry in tables.values() if "." in entry.name}
        result = set[str]()
        for name in self._source.namespaces | self._target.namespaces:
            on_source, on_target = name in self._source.namespaces, name in self._target.namespaces
            before = self._base.has_namespace(name)
            is_there = on_target if before == on_source else on_source
            if is_there or name in needed:
                result.add(name)
        return frozenset(result | needed)


def _shape(columns: tuple[Column, ...]) -> tuple[Any, ...]:
    return tuple(column.shape for column in columns)


class Schema(Exception):
    """The table's columns, or its rows in the other side's columns, do not go together."""


class TableMerge:
    """The contents of one table that base, source and target have."""

    def __init__(
        self, base: Table, source: Table, target: Table, names: frozenset[str], listed_as: str, settling: Settling
    ) -> None:
        self._b, self._s, self._t, self._names, self._settling = base, source, target, names, settling
        self._listed_as = {listed_as}
        """The name by which the lake lists what is allowed and not demanded."""

    def run(self) -> Table:
        b, s, t = self._b, self._s, self._t
        is_alike = s.content == t.content and _is_one(s, t)
        if is_alike or s.content == b.content or t.content == b.content:
            return s if t.content == b.content else t
        known, was_refused = len(self._settling.conflicts), self._settling.is_refused
        try:
            columns = self._columns()
            if self._is_allowed_schema() or (
                self._is_key_broken_below() and self._settling.may("schema", self._listed_as)
            ):
                return self._whole("schema")
            table = (
                self._keyed(columns) if s.key and s.key == t.key and self._has_unique_keys() else self._unkeyed(columns)
            )
        except Schema:
            del self._settling.conflicts[known:]  # rows that are conflicts besides do not count
            self._settling.is_refused = was_refused
            return self._whole("schema")
        if table is None:
            return self._whole("rows", is_either=self._is_unfit())
        return self._with_settings(table)

    def _is_unfit(self) -> bool:
        """Whether rows of one side do not fit the columns of the other."""
        shape = self._columns().columns
        try:
            for side in (self._s, self._t):
                for uid, row in side.rows.items():
                    written = self._in(shape, row, self._b.rows.get(uid), side.columns)
                    if uid not in self._b.rows and not fits(written, shape):
                        return True
        except Schema:
            return True
        return False

    def _whole(self, kind: str, *, is_either: bool = False) -> Table:
        """One side's table; `is_either` if it is both a conflict of rows and one of columns."""
        kinds = frozenset({"rows", "schema"}) if is_either or self._s.key != self._t.key else frozenset[str]()
        conflict = Conflict(kind, self._names, kinds=kinds)
        reported = [
            each.kind for each in self._settling.reported if each.table in self._listed_as and each.kind in kinds
        ]
        if reported:  # a key was declared on one side: either name will do
            conflict = Conflict(reported[0], self._names)
        side = self._settling.settle(conflict)
        return self._s if side == "source" else self._t

    # ------------------------------------------------------------------ columns

    def _columns(self) -> Table:
        """The table whose columns and key the result has."""
        b, s, t = self._b, self._s, self._t
        if s.shape == t.shape:
            if s.shape != b.shape and not s.fids <= b.fids:
                raise Schema
            return t
        for same, other in ((s, t), (t, s)):
            if same.shape == b.shape:
                return other
        raise Schema

    def _is_allowed_schema(self) -> bool:
        """An added column that is never null, and rows of the other side which this side has too or had."""
        for mine, other in ((self._s, self._t), (self._t, self._s)):
            added = [column for column in mine.columns if column.fid not in self._b.fids and not column.nullable]
            if added and other.shape == self._b.shape and other.bag() != self._b.bag():
                return self._settling.may("schema", self._listed_as)
        return False

    def _is_key_broken_below(self) -> bool:
        """Whether both sides declared the same key, which rows of the base broke: by a null, or twice."""
        key = self._s.key
        if not key or key != self._t.key or key == self._b.key:
            return False
        keys = [tuple(row.get(fid) for fid in key) for row in self._b.rows.values()]
        return len(set(keys)) < len(keys) or any(None in each for each in keys)

    def _has_unique_keys(self) -> bool:
        if self._b.key == self._s.key:
            return True
        keys = [tuple(row.get(fid) for fid in self._s.key) for row in self._b.rows.values()]
        return len(set(keys)) == len(keys) and not self._settling.may("rows", self._listed_as)

    # ------------------------------------------------------------------ rows

    def _keyed(self, columns: Table) -> Table:
        b, s, t = self._b, self._s, self._t
        shape = columns.columns
        key = columns.key
        common = [fid for fid in (column.fid for column in shape) if fid in b.fids and fid in s.fids and fid in t.fids]
        befores = {tuple(row[fid] for fid in key): row for row in b.rows.values()}
        sources, targets = s.by_key(), t.by_key()
        result = list[Row]()
        for each in befores.keys() | sources.keys() | targets.keys():
            row = self._row(each, befores.get(each), sources.get(each), targets.get(each), shape, common)
            if row is not None:
                result.append(row)
        return columns.changed(rows={fresh(): row for row in result})

    def _row(
        self, key: tuple[Any, ...], before: Row | None, s: Row | None, t: Row | None,
        shape: tuple[Column, ...], common: list[int],
    ) -> Row | None:  # fmt: skip
        b_cols, s_cols, t_cols = self._b.columns, self._s.columns, self._t.columns
        s_row = self._in(shape, s, before, s_cols)
        t_row = self._in(shape, t, before, t_cols)
        try:
            b_row = None if before is None else project(before, b_cols, shape)
        except CannotCast:
            b_row = AMBIGUOUS

        def same(x: Any, y: Any) -> bool:
            if x is AMBIGUOUS or y is AMBIGUOUS:
                return False
            return x is y or (x is not None and y is not None and all(x[fid] == y[fid] for fid in common))

        # A row that its side left alone is the base's, also where the base's value has no equal in the new type.
        s_same = s is not None and before is not None and _shape(s_cols) == _shape(b_cols) and s == before
        t_same = t is not None and before is not None and _shape(t_cols) == _shape(b_cols) and t == before
        if s_same or same(s_row, b_row):
            chosen, other = t_row, s_row
        elif t_same or same(t_row, b_row) or same(s_row, t_row):
            chosen, other = s_row, t_row
        else:
            is_plain = self._b.shape == self._s.shape == self._t.shape
            conflict = Conflict("row", self._names, key, (before, s, t) if is_plain else None)
            for mine, theirs in ((s_row, t_row), (t_row, s_row)):
                if mine is not None:
                    self._completed(mine, theirs, shape, common)  # either side can be chosen
            side = self._settling.settle(conflict)
            chosen, other = (s_row, t_row) if side == "source" else (t_row, s_row)
        if chosen is None:
            return None
        return self._completed(chosen, other, shape, common)

    def _in(self, shape: tuple[Column, ...], row: Row | None, before: Row | None, columns: tuple[Column, ...]) -> Any:
        """A side's row in the columns of the result; Schema if it was written by that side and does not fit."""
        if row is None:
            return None
        is_old = before is not None and _shape(columns) == _shape(self._b.columns) and row == before
        try:
            result = project(row, columns, shape)
        except CannotCast:
            if is_old:
                return AMBIGUOUS
            raise Schema from None
        fids = {column.fid for column in columns}
        if not is_old and not fits(result, tuple(each for each in shape if each.fid in fids)):
            raise Schema
        return result

    def _completed(self, chosen: Row, other: Row | None, shape: tuple[Column, ...], common: list[int]) -> Row:
        """Columns that only one side has keep that side's values."""
        added = [column.fid for column in shape if column.fid not in common]
        if added and other is not None and other is not AMBIGUOUS:
            chosen = {**chosen, **{fid: other[fid] for fid in added if chosen[fid] is None}}
        if not fits(chosen, shape):
            raise Schema
        return chosen

    def _is_overlapping(self) -> bool:
        b, s, t = set(self._b.rows), set(self._s.rows), set(self._t.rows)
        return bool((b - s) & (b - t)) and bool((s - b) or (t - b))

    def _is_equal_on_both(self, shape: tuple[Column, ...]) -> bool:
        """Whether both sides have a row that the base has not: the same one, or equal ones."""
        added = [{uid: row for uid, row in side.rows.items() if uid not in self._b.rows} for side in (self._s, self._t)]
        if added[0].keys() & added[1].keys():
            return True
        common = [column.fid for column in shape if column.fid in self._s.fids & self._t.fids]
        values = list[set[Any]]()
        for side, rows in zip((self._s, self._t), added, strict=True):
            projected = [self._in(shape, row, None, side.columns) for row in rows.values()]
            values.append({tuple(row[fid] for fid in common) for row in projected})
        return bool(values[0] & values[1])

    def _with_changes(self, side: Table, shape: tuple[Column, ...]) -> Table:
        """Rows that have other values in their place count as replaced.

        A column got another type and its own again, or this side has a field inside a struct that the base dropped.
        """

        def is_changed(before: Row, row: Row) -> bool:
            if side.shape == self._b.shape:
                return before != row
            return not self._is_same_in(shape, before, row, side)

        changed = {uid for uid, row in side.rows.items() if uid in self._b.rows and is_changed(self._b.rows[uid], row)}
        return replace(side, rows={fresh() if uid in changed else uid: row for uid, row in side.rows.items()})

    def _without_moves(self, side: Table, shape: tuple[Column, ...]) -> Table:
        """Rows that are gone and came with the same values, in the columns that all three have, count as left alone."""
        gone = [uid for uid in self._b.rows if uid not in side.rows]
        moved = dict[int, int]()
        for uid, row in side.rows.items():
            if uid in self._b.rows:
                continue
            same = next((old for old in gone if self._is_same_in(shape, self._b.rows[old], row, side)), None)
            if same is not None:
                gone.remove(same)
                moved[uid] = same
        return replace(side, rows={moved.get(uid, uid): row for uid, row in side.rows.items()})

    def _is_same_in(self, shape: tuple[Column, ...], before: Row, row: Row, side: Table) -> bool:
        """Whether a row of a side has the base's values, in the columns that all three have."""
        for column in shape:
            fid = column.fid
            if not all(fid in each.fids for each in (self._b, self._s, self._t)):
                continue
            if self._b.by_fid(fid).shape == side.by_fid(fid).shape:
                if before[fid] != row[fid]:
                    return False
                continue
            try:
                if cast(before[fid], self._b.by_fid(fid), side.by_fid(fid)) != row[fid]:
                    return False
            except CannotCast:
                return False
        return True

    def _unkeyed(self, columns: Table) -> Table | None:
        """None if it is a conflict of the whole table."""
        shape, result = columns.columns, dict[int, Row]()
        self._s, self._t = (self._without_moves(self._with_changes(side, shape), shape) for side in (self._s, self._t))
        if self._is_overlapping():
            return None
        if self._settling.may("rows", self._listed_as) and self._is_equal_on_both(shape):
            return None
        b, s, t = self._b, self._s, self._t
        for uid in set(s.rows) | set(t.rows):
            if uid in b.rows and (uid not in s.rows or uid not in t.rows):
                continue
            s_row = self._in(shape, s.rows.get(uid), b.rows.get(uid), s.columns)
            t_row = self._in(shape, t.rows.get(uid), b.rows.get(uid), t.columns)
            row = (
                s_row
                if t_row is None or ((t_row is AMBIGUOUS or s.shape == columns.shape) and s_row is not None)
                else t_row
            )
            if not fits(row, shape):
                raise Schema
            result[uid] = row
        found = [tuple(row[fid] for fid in columns.key) for row in result.values()]
        if columns.key and len(set(found)) < len(found):
            raise Schema
        return columns.changed(rows=result)

    # ------------------------------------------------------------------ settings

    def _with_settings(self, table: Table) -> Table:
        b, s, t = self._b, self._s, self._t
        noted = {column.fid: dict(column.notes) for column in b.columns}
        on_s = {column.fid: dict(column.notes) for column in s.columns}
        on_t = {column.fid: dict(column.notes) for column in t.columns}
        columns = tuple(
            replace(column, notes=tuple(sorted(self._notes(
                noted.get(column.fid, {}),
                on_s.get(column.fid, noted.get(column.fid, {})),
                on_t.get(column.fid, noted.get(column.fid, {})),
                "metadata",
            ).items())))
            for column in table.columns
        )  # fmt: skip
        return replace(
            table,
            columns=columns,
            config=self._notes(b.config, s.config, t.config, "setting"),
            notes=self._notes(b.notes, s.notes, t.notes, "metadata"),
            schema_notes=self._notes(b.schema_notes, s.schema_notes, t.schema_notes, "metadata"),
        )

    def _notes(self, b: Notes, s: Notes, t: Notes, kind: str) -> Notes:
        result = dict[str, str]()
        for name in b.keys() | s.keys() | t.keys():
            before, theirs, mine = b.get(name), s.get(name), t.get(name)
            value = mine
            if theirs not in (before, mine):
                value = theirs
                if mine != before and self._settling.settle(Conflict(kind, self._names)) == "target":
                    value = mine
            if value is not None:
                result[name] = value
        return result
