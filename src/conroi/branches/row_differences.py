"""Row diff of two versions of a table: rows that one has and the other has not, reading only the files that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from conroi.branches.columns import Carry, Columns, Flags, columns_of
from conroi.data.keys import key_columns_of, matches, row_codes, same_values
from conroi.data.pylance import pylance_errors
from conroi.data.table_version import TableVersion
from conroi.format import lance_pb2 as pb
from conroi.snapshots.deletions import load_deletions

Rows: TypeAlias = Mapping[int, "BitMap | None"]
"""By fragment: the offsets of rows; None for all live rows."""
Positions: TypeAlias = npt.NDArray[np.int64]
Places: TypeAlias = npt.NDArray[np.int64]
"""Fragment and offset, row by row."""


@dataclass(frozen=True)
class Comparison:
    """One table in two versions, which may be on different branches; compared in the columns that both have."""

    before: TableVersion
    after: TableVersion
    carry: Carry
    """The columns before, as they are after."""

    @staticmethod
    def of(before: TableVersion, after: TableVersion) -> Comparison:
        """Of a version and a later one."""
        return Comparison(before, after, Carry.between(columns_of(before), columns_of(after)))

    # ------------------------------------------------------------------------ which rows

    @cached_property
    def pairs(self) -> dict[int, int]:
        """By fragment before: the fragment after with the same physical rows.

        All files of a fragment have the same rows in the same order, and names of files are never used twice: two
        fragments that share one file have the same rows at the same offsets.
        """
        holders = {file.path: fragment for fragment in self.before.manifest.fragments for file in fragment.files}
        found: dict[int, int] = {}
        for fragment in self.after.manifest.fragments:
            shared = next((holders[file.path] for file in fragment.files if file.path in holders), None)
            if shared is not None and shared.physical_rows == fragment.physical_rows:
                found.setdefault(shared.id, fragment.id)
        return found

    @cached_property
    def touched(self) -> tuple[Rows, Rows]:
        """The rows before that were deleted or changed, and the rows after that are new or changed."""
        gone: dict[int, BitMap | None] = {}
        came: dict[int, BitMap | None] = {}
        after = self.after.manifest.fragments_by_id
        for fragment in self.before.manifest.fragments:
            later = after[self.pairs[fragment.id]] if fragment.id in self.pairs else None
            if later is None:
                gone[fragment.id] = None
                continue
            lost, back = self._moved(fragment, later)
            rewritten = self._rewritten(fragment, later)
            if rewritten:
                changed = self._changed(fragment, later, rewritten)
                lost, back = lost | changed, back | changed
            gone |= {fragment.id: lost} if lost else {}
            came |= {later.id: back} if back else {}
        kept = set(self.pairs.values())
        came |= {number: None for number in after if number not in kept}
        return gone, came

    def _moved(self, earlier: pb.DataFragment, later: pb.DataFragment) -> tuple[BitMap, BitMap]:
        if _same_vector(earlier, later):
            return BitMap(), BitMap()
        then, now = _deleted(self.before, earlier), _deleted(self.after, later)
        return now - then, then - now

    def has_revived(self, number: int) -> bool:
        """Whether a fragment of `before` has live rows after that were deleted before."""
        then, now = self.before.manifest.fragments_by_id, self.after.manifest.fragments_by_id
        return bool(self._moved(then[number], now[self.pairs[number]])[1])

    def unchanged(self, number: int) -> BitMap:
        """The offsets of rows of a fragment of `before` that `after` has in the same file, with the same values."""
        if number not in self.pairs:
            return BitMap()
        earlier = self.before.manifest.fragments_by_id[number]
        later = self.after.manifest.fragments_by_id[self.pairs[number]]
        both = _live(earlier) - _deleted(self.before, earlier) - _deleted(self.after, later)
        rewritten = self._rewritten(earlier, later)
        return both - self._changed(earlier, later, rewritten) if rewritten else both

    def _rewritten(self, earlier: pb.DataFragment, later: pb.DataFragment) -> list[str]:
        """The columns, as they are called after, whose values are in other files, or are only now visible.

        A field inside a struct that the version before had dropped is still in its files, and a later version on
        another branch may have kept it.
        """
        if list(earlier.overlays) != list(later.overlays):
            return self.carry.there
        return [
            new.name
            for old, new in self.carry.pairs
            if _files(earlier, old.ids) != _files(later, new.ids) or _files(later, new.ids - old.ids)
        ]

    def _changed(self, earlier: pb.DataFragment, later: pb.DataFragment, columns: Sequence[str]) -> BitMap:
        """The offsets of rows that are there in both and differ in these columns."""
        carry = self.carry.only(columns)
        then = _live(earlier) - _deleted(self.before, earlier)
        now = _live(later) - _deleted(self.after, later)
        both = then & now
        if not both:
            return BitMap()
        before = take(read_rows(self.before, {earlier.id: None}, carry.here), _ranks(both, then))
        after = take(read_rows(self.after, {later.id: None}, carry.there), _ranks(both, now))
        carried, bad = carry.carried(before)
        differs = ~same_rows(carried, after.select(carry.there)) | bad
        return BitMap(np.asarray(both.to_array(), dtype=np.uint32)[differs])

    @property
    def is_identical(self) -> bool:
        """Whether both consist of the same files, so that all rows are the same; nothing is read for it."""
        then, now = self.before.manifest.fragments_by_id, self.after.manifest.fragments_by_id
        pairs = [(then[old], now[new]) for old, new in self.pairs.items()]
        return len(pairs) == len(then) == len(now) and not any(
            self._rewritten(old, new) or any(self._moved(old, new)) for old, new in pairs
        )

    def has_same_rows(self) -> bool:
        """Whether both have the same rows, each as often, wherever they are: after a compaction, for example."""
        if len(set(self.counted())) > 1:
            return False
        gone, came, _ = self.changed
        return not gone and not came

    @cached_property
    def changed(self) -> tuple[Rows, Rows, tuple[Places, Places]]:
        """As `touched`, for rows without a key: without those that are gone in one place and came in another.

        Compactions, sorting and updates to the same values move rows; of equal rows the first ones are paired. The last
        two are where the moved rows were, and where they are.
        """
        gone, came = self.touched
        if not gone or not came:
            return gone, came, (_NO_PLACES, _NO_PLACES)
        then, now = self._equal()
        old, new = _places(self.before, gone), _places(self.after, came)
        return _left(gone, old, then), _left(came, new, now), (old[then], new[now])

    def _equal(self) -> tuple[Positions, Positions]:
        """Pairs of equal rows among those that are gone and those that came; without a common column all are equal."""
        if not self.carry.pairs:
            alike = np.arange(min(self.counted()), dtype=np.int64)
            return alike, alike
        before, bad, after = self.read()
        then, now = _equal_rows(before, after)
        return then[~bad[then]], now[~bad[then]]

    def counted(self) -> tuple[int, int]:
        """How many rows were removed and added."""
        gone, came = self.touched
        return count_rows_in(self.before, gone), count_rows_in(self.after, came)

    # ------------------------------------------------------------------------ reading

    def read(self) -> tuple[pa.Table, Flags, pa.Table]:
        """The rows that are gone and the rows that came, in the common columns as they are after.

        Between them, which of the rows that are gone have values that do not fit the columns after.
        """
        gone, came = self.touched
        before, bad = self.carry.carried(read_rows(self.before, gone, self.carry.here))
        return before, bad, read_rows(self.after, came, self.carry.there)


@dataclass(frozen=True)
class KeyedChanges:
    """The changes of rows of a table with a key."""

    key: tuple[str, ...]
    inserted: pa.Table
    old: pa.Table
    """The rows that were updated, as they were."""
    new: pa.Table
    """The same rows, in the same order, as they are now."""
    deleted: pa.Table
    bad: Flags
    """Which of the old rows have values that cannot be compared with the new ones."""

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows inserted, updated, deleted."""
        return self.inserted.num_rows, self.new.num_rows, self.deleted.num_rows

    @cached_property
    def upserts(self) -> pa.Table:
        """The added rows, updated ones first."""
        return pa.concat_tables([self.new, self.inserted])


def keyed_changes(compared: Comparison, key: tuple[str, ...]) -> KeyedChanges:
    """Row by row, for two versions with the same key; `key` is what it is called after."""
    gone, bad, came = compared.read()
    then, now = matches(key_columns_of(gone, key), key_columns_of(came, key))
    differ = ~same_rows(take(gone, then), take(came, now)) | bad[then]
    return KeyedChanges(
        key=key,
        inserted=_without(came, now),
        old=take(gone, then[differ]),
        new=take(came, now[differ]),
        deleted=_without(gone, then),
        bad=bad[then[differ]],
    )


def read_rows(pinned: TableVersion, rows: Rows, columns: Sequence[str]) -> pa.Table:
    """These rows of a version, fragment by fragment, each in its order."""
    empty = pa.schema([pinned.schema.field(name).with_nullable(True) for name in columns]).empty_table()
    if not columns or not rows:
        return empty
    whole = [number for number, offsets in rows.items() if offsets is None]
    parts: list[pa.Table] = [empty]
    with pylance_errors(pinned.root):
        if whole:
            fragments = [pinned.dataset.get_fragment(number) for number in whole]
            parts.append(pinned.dataset.scanner(columns=list(columns), fragments=cast("Any", fragments)).to_table())
        for number, offsets in rows.items():
            if offsets is not None:
                fragment = cast("Any", pinned.dataset.get_fragment(number))
                parts.append(fragment.take(_among_live(pinned, number, offsets), columns=list(columns)))
    return pa.concat_tables([part.select(list(columns)).cast(empty.schema) for part in parts])


def _among_live(pinned: TableVersion, number: int, offsets: BitMap) -> list[int]:
    """Where the rows are among those of the fragment that are there."""
    dead = _deleted(pinned, pinned.manifest.fragments_by_id[number])
    return [offset - dead.rank(offset) for offset in offsets]


# ---------------------------------------------------------------------------------- comparing rows


def same_rows(left: pa.Table, right: pa.Table) -> Flags:
    """For each row of two tables of the same columns and length: whether all values are the same."""
    same = np.ones(left.num_rows, dtype=bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        same &= same_values(cast("Any", one.combine_chunks()), cast("Any", other.combine_chunks()))
    return same


def _equal_rows(one: pa.Table, other: pa.Table) -> tuple[Positions, Positions]:
    """Pairs of equal rows of two tables of the same columns: the first with the first, the second with the second."""
    codes = row_codes(pa.concat_tables([one, other]))
    left, right = codes[: one.num_rows], codes[one.num_rows :]
    mine, theirs = left * len(codes) + _repetitions(left), right * len(codes) + _repetitions(right)
    _, first, second = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    return first.astype(np.int64), second.astype(np.int64)


def _repetitions(codes: Positions) -> Positions:
    """How often each value came before."""
    order = np.argsort(codes, kind="stable")
    ordered, numbers = codes[order], np.arange(len(codes), dtype=np.int64)
    is_first = np.ones(len(codes), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    counts = np.empty(len(codes), np.int64)
    counts[order] = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    return counts


def _places(pinned: TableVersion, rows: Rows) -> Places:
    """Where the rows are, in the order in which `read_rows` reads them."""
    known = pinned.manifest.fragments_by_id
    parts = [(n, _live(known[n]) - _deleted(pinned, known[n])) for n, offsets in rows.items() if offsets is None]
    parts += [(n, offsets) for n, offsets in rows.items() if offsets is not None]
    return np.concatenate([
        np.stack([np.full(len(offsets), number), np.asarray(offsets.to_array())], axis=1).astype(np.int64)
        for number, offsets in parts
    ])  # fmt: skip


def _left(rows: Rows, places: Places, without: Positions) -> Rows:
    """The rows without those at some positions."""
    taken = by_fragment(places[without])
    known = by_fragment(places)
    left = {
        number: offsets if number not in taken else known[number] - taken[number] for number, offsets in rows.items()
    }
    return {number: offsets for number, offsets in left.items() if offsets is None or offsets}


def by_fragment(places: Places) -> dict[int, BitMap]:
    """The offsets of rows by fragment."""
    ordered = places[np.argsort(places[:, 0], kind="stable")]
    numbers, begins = np.unique(ordered[:, 0], return_index=True)
    parts = np.split(ordered[:, 1].astype(np.uint32), begins[1:])
    return {number: BitMap(part) for number, part in zip(numbers.tolist(), parts, strict=False)}


_NO_PLACES: Places = np.empty((0, 2), np.int64)


def take(table: pa.Table, rows: Positions) -> pa.Table:
    """These rows, in this order."""
    return table.take(cast("Any", pa.array(rows, pa.int64())))


def _without(table: pa.Table, rows: Positions) -> pa.Table:
    left = np.ones(table.num_rows, dtype=bool)
    left[rows] = False
    return take(table, np.flatnonzero(left))


# ---------------------------------------------------------------------------------- small facts


def key_ids(columns: Columns, key: Sequence[str]) -> list[int]:
    """The field ids of key columns; nested ones by their path."""
    found: list[int] = []
    for path in key:
        at, inside = None, columns
        for part in path.split("."):
            at = next(column for column in inside if column.name == part)
            inside = at.inside
        found.append(-1 if at is None else at.id)
    return found


def _files(fragment: pb.DataFragment, ids: frozenset[int]) -> set[str]:
    return {file.path for file in fragment.files if not ids.isdisjoint(file.fields)}


def _live(fragment: pb.DataFragment) -> BitMap:
    return BitMap(range(fragment.physical_rows))


def _ranks(some: BitMap, among: BitMap) -> Positions:
    """Where these offsets are among others that include them."""
    return np.searchsorted(np.asarray(among.to_array()), np.asarray(some.to_array())).astype(np.int64)


def _same_vector(one: pb.DataFragment, other: pb.DataFragment) -> bool:
    """Whether they have the same deletion vector: its name is never used twice, wherever it is."""
    if one.HasField("deletion_file") != other.HasField("deletion_file"):
        return False
    a, b = one.deletion_file, other.deletion_file
    return (a.id, a.read_version, a.num_deleted_rows) == (b.id, b.read_version, b.num_deleted_rows)


def _deleted(pinned: TableVersion, fragment: pb.DataFragment) -> BitMap:
    return load_deletions(pinned.files.objects, pinned.manifest, fragment)


def count_rows_in(pinned: TableVersion, rows: Rows) -> int:
    """How many rows of a version these are."""
    known = pinned.manifest.fragments_by_id
    return sum(
        known[number].physical_rows - known[number].deletion_file.num_deleted_rows if offsets is None else len(offsets)
        for number, offsets in rows.items()
    )


def live_offsets(pinned: TableVersion, number: int, offsets: BitMap | None) -> BitMap:
    """These rows of a fragment; None means all that are there."""
    if offsets is not None:
        return offsets
    fragment = pinned.manifest.fragments_by_id[number]
    return _live(fragment) - _deleted(pinned, fragment)


def is_among(places: Places, rows: Rows) -> Flags:
    """Which of the places are among the rows."""
    none = BitMap()
    found = ((rows.get(number, none), offset) for number, offset in places.tolist())
    return np.fromiter((offsets is None or offset in offsets for offsets, offset in found), bool, len(places))
