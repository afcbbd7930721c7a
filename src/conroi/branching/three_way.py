"""One table that both branches changed: what each did to the rows that both had, and whether the two fit together.

The rows that one side changed are put on top of the other side as it is. If one of them changed the columns too, that
one is kept as it is and gets the rows of the other. By key where the table has one, else by the place that rows had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from conroi.branching.bringing import appended_fragments
from conroi.branching.comparing import (
    Comparison,
    KeyedChanges,
    Positions,
    Rows,
    keyed_changes,
    read_rows,
    same_rows,
    take,
)
from conroi.branching.results import Conflict
from conroi.commit.deletions import load_deletions
from conroi.data.keys import key_columns_of, matches
from conroi.data.pinned import Pinned
from conroi.data.rows import take_out
from conroi.format import lance_pb2 as pb
from conroi.operations import Delete
from conroi.verbs.plan import Plan

if TYPE_CHECKING:
    from conroi.handles import TransactionTable


@dataclass(frozen=True)
class ThreeWay:
    """A table as both had it, as the source has it, and as the target has it."""

    name: str
    base: Pinned
    source: Pinned
    target: Pinned

    @cached_property
    def is_swapped(self) -> bool:
        """Whether the target's rows go on top of the source, because the source has other columns."""
        return not same_columns(self.base, self.source)

    @property
    def over(self) -> Comparison:
        """What is put on top."""
        return self._target if self.is_swapped else self._source

    @property
    def under(self) -> Comparison:
        """What stays as it is."""
        return self._source if self.is_swapped else self._target

    @cached_property
    def _source(self) -> Comparison:
        return Comparison(self.base, self.source)

    @cached_property
    def _target(self) -> Comparison:
        return Comparison(self.base, self.target)

    def schema_conflict(self) -> Conflict | None:
        """Both changed the columns, and not in the same way."""
        is_one_sided = same_columns(self.base, self.source) or same_columns(self.base, self.target)
        if is_one_sided:
            return None
        return Conflict(self.name, "schema", "both branches changed its columns")

    @property
    def is_keyed(self) -> bool:
        return bool(self.over.key) and bool(self.under.key)

    def column_names(self) -> dict[str, str]:
        """The columns of what is put on top, with the names that they have below; those dropped there are left out."""
        above = dict(self.over.columns)
        return {above[before]: after for before, after in self.under.columns if before in above}


def same_columns(one: Pinned, other: Pinned) -> bool:
    """Whether two versions have the same columns, key and all."""
    return list(one.manifest.fields) == list(other.manifest.fields)


# ---------------------------------------------------------------------------------- by key


@dataclass(frozen=True)
class KeyedMerge:
    """What is put on top, by key; `losing` are the keys for which the other side was preferred."""

    three: ThreeWay
    over: KeyedChanges
    under: KeyedChanges

    @staticmethod
    def of(three: ThreeWay) -> KeyedMerge:
        return KeyedMerge(three, keyed_changes(three.over), keyed_changes(three.under))

    @cached_property
    def _upserts(self) -> pa.Table:
        return pa.concat_tables([self.over.new, self.over.inserted])

    @cached_property
    def _changed_under(self) -> pa.Table:
        return pa.concat_tables([self.under.new, self.under.inserted])

    @cached_property
    def _clashes(self) -> tuple[Positions, Positions]:
        """The positions of upserts and of deletes that meet another change of the same key."""
        above, below = self._keys(self._upserts, self.over), self._keys(self._changed_under, self.under)
        mine, theirs = matches(above, below)
        names = self.three.column_names()
        left = take(self._upserts, mine).select(list(names))
        right = take(self._changed_under, theirs).select(list(names.values())).rename_columns(list(names))
        differing = mine[~same_rows(left, right)]
        onto_deleted, _ = matches(above, self._keys(self.under.deleted, self.under))
        deletes, _ = matches(self._keys(self.over.deleted, self.over), below)
        return np.unique(np.concatenate([differing, onto_deleted])), np.unique(deletes)

    def _keys(self, rows: pa.Table, changes: KeyedChanges) -> pa.Table:
        return key_columns_of(rows, changes.key)

    @cached_property
    def conflicts(self) -> list[Conflict]:
        """One for each row that both changed."""
        upserts, deletes = self._clashes
        found = [self._conflict(row, None) for row in take(self._upserts, upserts).to_pylist()]
        gone = take(self.over.deleted, deletes).to_pylist()
        return found + [self._conflict(None, row) for row in gone]

    def _conflict(self, new: Mapping[str, Any] | None, deleted: Mapping[str, Any] | None) -> Conflict:
        row = new if new is not None else deleted
        assert row is not None
        key = _key_of(row, self.over.key)
        other = self._below.get(_hashable(key))
        before = self._before.get(_hashable(key))
        source, target = (other, new) if self.three.is_swapped else (new, other)
        if new is None or other is None:
            who = "source" if source is None else "target"
            message = f"deleted on the {who}, changed on the other branch"
        else:
            message = "inserted on both branches" if before is None else "changed on both branches"
        return Conflict(self.three.name, "row", message, key, before, source, target)

    @cached_property
    def _below(self) -> dict[object, Mapping[str, Any]]:
        return _by_key(self._changed_under, self.under.key)

    @cached_property
    def _before(self) -> dict[object, Mapping[str, Any]]:
        rows = pa.concat_tables([self.over.old, self.over.deleted])
        return _by_key(rows, self.over.key)

    def stage(self, table: TransactionTable, losing: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
        """Put the rows on top, without those that lose; how many were inserted, updated, deleted."""
        names = self.three.column_names()
        upserts, deletes = self._upserts.select(list(names)), self.over.deleted
        if losing:
            upserts, deletes = _except(upserts, losing, self.over.key), _except(deletes, losing, self.over.key)
        upserts = upserts.rename_columns(list(names.values()))
        key = list(self.under.key)
        inserted = updated = deleted = 0
        if upserts.num_rows:
            done = table.merge(upserts, on=key).when_matched_update_all().when_not_matched_insert_all().execute()
            inserted, updated = done.rows_inserted, done.rows_updated
        if deletes.num_rows:
            gone = deletes.select(_tops(self.over.key)).rename_columns(_tops(tuple(key)))
            deleted = table.merge(gone, on=key).when_matched_delete().execute().rows_deleted
        return inserted, updated, deleted


def _tops(key: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(column.partition(".")[0] for column in key))


def _key_of(row: Mapping[str, Any], key: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for column in key:
        value: Any = row
        for part in [column] if column in row else column.split("."):
            value = value[part]
        values[column] = value
    return values


def _hashable(key: Mapping[str, Any]) -> object:
    return tuple(key.values())


def _by_key(rows: pa.Table, key: Sequence[str]) -> dict[object, Mapping[str, Any]]:
    return {_hashable(_key_of(row, key)): row for row in rows.to_pylist()}


def _except(rows: pa.Table, keys: Sequence[Mapping[str, Any]], columns: tuple[str, ...]) -> pa.Table:
    gone = {_hashable(key) for key in keys}
    tops = rows.select(_tops(columns)).to_pylist()
    kept = [number for number, row in enumerate(tops) if _hashable(_key_of(row, columns)) not in gone]
    return take(rows, np.asarray(kept, dtype=np.int64))


# ---------------------------------------------------------------------------------- by place


@dataclass(frozen=True)
class PlacedMerge:
    """What is put on top, of a table without a key: rows go out where they are, and others come in."""

    three: ThreeWay

    @cached_property
    def conflicts(self) -> list[Conflict]:
        """That both took out the same rows, of which one may have been an update."""
        over_gone, over_came = self.three.over.touched
        under_gone, under_came = self.three.under.touched
        if not over_came and not under_came:
            return []  # both only deleted
        twice = sum(
            len(self._offsets(number, over_gone[number]) & self._offsets(number, under_gone[number]))
            for number in over_gone.keys() & under_gone.keys()
        )
        message = f"both branches changed the same rows ({twice:,}), and it has no key by which to tell them apart"
        return [Conflict(self.three.name, "rows", message)] if twice else []

    def _offsets(self, number: int, offsets: BitMap | None) -> BitMap:
        """The rows of a fragment of the base; None means all that are there."""
        if offsets is not None:
            return offsets
        base = self.three.base
        fragment = base.manifest.fragments_by_id[number]
        return BitMap(range(fragment.physical_rows)) - load_deletions(base.files.objects, base.manifest, fragment)

    def stage(self, table: TransactionTable) -> tuple[int, int, int]:
        """Take rows out and bring others in; how many were inserted, updated, deleted."""
        gone, came = self.three.over.touched
        out = {number: self._offsets(number, offsets) for number, offsets in gone.items()}
        plan = table.do(lambda at: self._taking_out(at, out)) if out else None
        whole = self._as_they_are(came)
        if whole:
            table.do(lambda at: appended_fragments(self.three.over.after, whole, at))
        rest = {number: offsets for number, offsets in came.items() if number not in whole}
        names = self.three.column_names()
        rows = read_rows(self.three.over.after, rest, list(names)).rename_columns(list(names.values()))
        if rows.num_rows:
            table.append(rows)
        inserted = rows.num_rows + sum(fragment.physical_rows for fragment in whole.values())
        return inserted, 0, 0 if plan is None else plan.counts.get("rows_deleted", 0)

    def _as_they_are(self, came: Rows) -> dict[int, pb.DataFragment]:
        """Fragments that can be brought with their files, which goes on telling the next merge that they are the same.

        A deletion vector is named by the fragment it is for, so one that has any is read.
        """
        if not same_columns(self.three.source, self.three.target):
            return {}
        known = self.three.over.after.manifest.fragments_by_id
        whole = {number: known[number] for number, offsets in came.items() if offsets is None}
        return {n: each for n, each in whole.items() if not each.HasField("deletion_file") and not each.overlays}

    def _taking_out(self, at: Pinned, out: Mapping[int, BitMap]) -> Plan | None:
        """Delete the rows where the other branch has them: fragments with the same files are the same."""
        compared = Comparison(self.three.base, at)
        places = {compared.place(fragment): fragment for fragment in at.manifest.fragments}
        rows: dict[int, BitMap] = {}
        for number, offsets in out.items():
            there = places.get(compared.place(self.three.base.manifest.fragments_by_id[number]))
            if there is not None:
                left = offsets - load_deletions(at.files.objects, at.manifest, there)
                if left:
                    rows[there.id] = left
        if not rows:
            return None
        taken = take_out(at.files, at.manifest, at.version, rows)
        operation = Delete(taken.updated, taken.removed, "rows that another branch changed")
        return Plan(at.staged(operation, rows), counts={"rows_deleted": sum(map(len, rows.values()))})
