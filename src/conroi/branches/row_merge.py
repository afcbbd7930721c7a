"""Three-way merge of rows: by key, or without a key by the file and offset at which the base has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from conroi.branches.columns import Flags, columns_of, has_same_ids, null_where_forbidden
from conroi.branches.plan import Choose
from conroi.branches.results import Choice, Conflict
from conroi.branches.row_differences import (
    Comparison,
    KeyedChanges,
    Positions,
    Rows,
    by_fragment,
    count_rows_in,
    is_among,
    keyed_changes,
    live_offsets,
    read_rows,
    same_rows,
    take,
)
from conroi.branches.transfer import appended_fragments
from conroi.commit.change import Plan
from conroi.data.arrow_types import nulls
from conroi.data.keys import in_common, key_columns_of, matches, repeated, scan_keys
from conroi.data.rows import addresses_in, take_out
from conroi.data.table_version import TableVersion
from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import key_columns
from conroi.merge.matching import Match, match
from conroi.merge.request import Action, Clause, Request, RowKind
from conroi.merge.verb import Merging
from conroi.operations import Delete
from conroi.snapshots.deletions import load_deletions

if TYPE_CHECKING:
    from conroi.branches.contents import ThreeVersions
    from conroi.staged_table import StagedTable


@dataclass(frozen=True, slots=True)
class _Clash:
    """A conflict: both sides changed the row with the same key."""

    is_delete: bool
    """Whether the row was deleted on top."""
    above: int
    """Its position among the rows that were deleted on top, or that came."""
    below: int | None
    """The position of the row that came below; None if it was deleted there."""


class KeyedRows:
    """The rows of one side, put on top of the other by key: values are compared in the columns that both have."""

    conflict: str | None = None
    """Rows with a key are resolved one by one."""

    def __init__(self, three: ThreeVersions) -> None:
        self._three = three
        above = three.carry.key(three.key)
        self._above = keyed_changes(three.changes_above, above)
        self._below = keyed_changes(three.changes_below, three.key)
        self._losing: set[_Clash] = set()
        """Conflicts that the lower side won, or that are unresolved; none before they are settled."""

    # ------------------------------------------------------------------------ what was done on top

    @cached_property
    def _carried(self) -> tuple[KeyedChanges, Flags]:
        """The changes of the side on top in the columns below; which of the rows that came do not fit there."""
        carry, changes = self._three.carry, self._above
        old, bad_old = carry.carried(changes.old)
        new, bad_new = carry.carried(changes.new)
        inserted, bad_inserted = carry.carried(changes.inserted)
        deleted, _ = carry.carried(changes.deleted)
        bad = changes.bad | bad_old
        left = np.flatnonzero(~same_rows(old, new) | bad | bad_new)  # what differs after the cast, too
        carried = KeyedChanges(self._three.key, inserted, take(old, left), take(new, left), deleted, bad[left])
        return carried, np.concatenate([bad_new[left], bad_inserted])

    @property
    def _changes(self) -> KeyedChanges:
        return self._carried[0]

    @cached_property
    def _found_below(self) -> tuple[Positions, Positions, Positions, Positions, Positions, Positions]:
        """Rows that came on top and that came below too, and those deleted below; the same for rows deleted on top."""
        came, gone = self._keys(self._changes.upserts), self._keys(self._changes.deleted)
        changed, deleted = self._keys(self._below.upserts), self._keys(self._below.deleted)
        lost, _ = matches(came, deleted)
        gone_twice, _ = matches(gone, deleted)
        return *matches(came, changed), lost, *matches(gone, changed), gone_twice

    def _keys(self, rows: pa.Table) -> pa.Table:
        return key_columns_of(rows, self._three.key)

    @cached_property
    def _clashes(self) -> list[_Clash]:
        came, changed, lost, gone, kept, _ = self._found_below
        differs = ~same_rows(take(self._changes.upserts, came), take(self._below.upserts, changed))
        found = [_Clash(False, int(a), int(b)) for a, b in zip(came[differs], changed[differs], strict=True)]
        found += [_Clash(False, int(a), None) for a in lost]
        return found + [_Clash(True, int(a), int(b)) for a, b in zip(gone, kept, strict=True)]

    @property
    def is_empty(self) -> bool:
        return not any(self.counts)

    # ------------------------------------------------------------------------ what does not fit

    @property
    def problem(self) -> str | None:
        """Why the rows on top do not fit the table below; None if they do. Conflicting rows count as fitting."""
        if not key_columns(self._three.base.manifest.fields) and self._is_broken_before():
            return "its key was declared on both branches, and rows that broke it were changed"
        if self._carried[1].any():
            return "one branch changed the type of a column, and the other wrote a value that does not fit it"
        columns = columns_of(self._three.below)
        known = tuple(column for column in columns if column.name in self._three.carry.there)
        column = null_where_forbidden(self._changes.upserts, known) or null_where_forbidden(self._insertions, columns)
        return None if column is None else f"a row of one branch has no value for {column}, which may not be null"

    def _is_broken_before(self) -> bool:
        for changes in (self._changes, self._below):
            keys = self._keys(pa.concat_tables([changes.old, changes.deleted]))
            if repeated(keys).num_rows or any(column.null_count for column in keys.columns):
                return True
        return False

    # ------------------------------------------------------------------------ what is done

    @property
    def _updates(self) -> pa.Table:
        """The rows that are put in the place of one below, without those that are there already or lose."""
        return take(self._changes.upserts, self._coming[0])

    @property
    def _insertions(self) -> pa.Table:
        """The rows of which there is none below, without those that lose."""
        return take(self._changes.upserts, self._coming[1])

    @property
    def _coming(self) -> tuple[Positions, Positions]:
        """Positions of the rows that are put on top: those in the place of one below, and the others."""
        positions = self._winning(is_delete=False)
        came, _, lost, *_ = self._found_below
        is_new = (positions >= self._changes.new.num_rows) | np.isin(positions, lost)
        is_new &= ~np.isin(positions, came)
        return positions[~is_new], positions[is_new]

    @property
    def _deletes(self) -> pa.Table:
        return take(self._changes.deleted, self._winning(is_delete=True))

    def _winning(self, *, is_delete: bool) -> Positions:
        count = (self._changes.deleted if is_delete else self._changes.upserts).num_rows
        left = np.ones(count, dtype=bool)
        came, _, _, _, _, gone_twice = self._found_below
        left[gone_twice if is_delete else came] = False  # done on both sides alike, or a clash
        for clash in self._clashes:
            if clash.is_delete == is_delete:
                left[clash.above] = clash not in self._losing
        return np.flatnonzero(left)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows inserted, updated and deleted on the side below."""
        return self._insertions.num_rows, self._updates.num_rows, self._deletes.num_rows

    def settle(self, choose: Choose) -> int:
        """Resolve each row that both sides changed; returns how many were resolved."""
        settled = 0
        self._losing = set(self._clashes)
        winning: Choice = "target" if self._three.is_swapped else "source"
        for clash, conflict in zip(self._clashes, self._conflicts(), strict=True):
            answer = choose(conflict)
            settled += answer is not None
            if answer == winning:
                self._losing.discard(clash)
        return settled

    def _conflicts(self) -> list[Conflict]:
        updated = self._changes.new.num_rows
        upserts = [each.above for each in self._clashes if not each.is_delete]
        before = _rows_at(self._changes.old, [position for position in upserts if position < updated])
        came = _rows_at(self._changes.upserts, upserts)
        gone = _rows_at(self._changes.deleted, [each.above for each in self._clashes if each.is_delete])
        there = _rows_at(self._below.upserts, [each.below for each in self._clashes if each.below is not None])
        return [
            self._conflict(
                gone[clash.above] if clash.is_delete else before.get(clash.above),
                None if clash.is_delete else came[clash.above],
                None if clash.below is None else there[clash.below],
            )
            for clash in self._clashes
        ]

    def _conflict(
        self, base: Mapping[str, Any] | None, above: Mapping[str, Any] | None, below: Mapping[str, Any] | None
    ) -> Conflict:
        row = above or below
        assert row is not None
        source, target = (below, above) if self._three.is_swapped else (above, below)
        if above is None or below is None:
            message = f"deleted on the {'source' if source is None else 'target'}, changed on the other branch"
        else:
            message = "inserted on both branches" if base is None else "changed on both branches"
        return Conflict(self._three.name, "row", message, _key_of(row, self._three.key), base, source, target)

    def stage(self, table: StagedTable) -> None:
        """Put the rows on top."""
        keys = self._deletes.select(list(self._three.key))
        for rows, clause in ((self._updates, _UPDATE), (self._insertions, _INSERT), (keys, _DELETE)):
            if rows.num_rows:
                plan = table.do(Merging(rows, Request(self._three.key, (clause,)), self._match))
                done = 0 if plan is None else sum(plan.counts.values())
                if done != rows.num_rows:
                    raise CorruptionError(
                        f"Of {rows.num_rows:,} rows to {clause.action.value} by key, {done:,} were found.",
                        table=self._three.name,
                        hint="The key may not be unique; lake.doctor(deep=True) finds out. Nothing was published.",
                    )

    def _match(
        self, pinned: TableVersion, source_keys: pa.Table, on: Sequence[str], *, needs_target_only: bool
    ) -> Match:
        """Find the rows by key, in those fragments alone in which they can be.

        A row that was changed on top is where the base has it, or in what is new since. Rows that the base deleted and
        this version still has are new, too: the base may have them in another place.
        """
        compared = Comparison.of(self._three.base, pinned)
        touched = self._three.changes_above.touched[0]
        old = {
            number for base, number in compared.pairs.items() if base not in touched and not compared.has_revived(base)
        }
        chosen = [fragment.id for fragment in pinned.manifest.fragments if fragment.id not in old]
        return match(pinned, source_keys, on, needs_target_only=needs_target_only, fragment_ids=chosen)


_UPDATE = Clause(RowKind.MATCHED, Action.UPDATE)
_INSERT = Clause(RowKind.SOURCE_ONLY, Action.INSERT)
_DELETE = Clause(RowKind.MATCHED, Action.DELETE)


def _rows_at(table: pa.Table, positions: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    rows = take(table, np.array(positions, dtype=np.int64)).to_pylist()
    return dict(zip(positions, rows, strict=True))


def _key_of(row: Mapping[str, Any], key: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for column in key:
        value: Any = row
        for part in [column] if column in row else column.split("."):
            value = value[part]
        values[column] = value
    return values


def _restored(changes: Comparison, came: Rows) -> Rows:
    """Of the rows that came those that are older than the base, by the number of their fragment."""
    newest = changes.before.manifest.head.max_fragment_id
    known = set(changes.pairs.values())
    return {number: offsets for number, offsets in came.items() if number <= newest or number in known}


class PlacedRows:
    """The rows of one side, put on top of the other: some are taken out where they are, others are brought."""

    def __init__(self, three: ThreeVersions) -> None:
        self._three = three
        gone, self._came, _ = three.changes_above.changed
        self._out = {number: live_offsets(three.base, number, offsets) for number, offsets in gone.items()}
        """What is taken out, by fragment of the base."""

    # ------------------------------------------------------------------------ what stands in the way

    @cached_property
    def conflict(self) -> str | None:
        """Both sides removed the same rows, one of them possibly by an update, or restored them; None if neither."""
        gone, came, _ = self._three.changes_below.changed
        if not self._came and not came:
            return None  # both only deleted
        twice = sum(
            len(self._out[n] & live_offsets(self._three.base, n, gone[n])) for n in self._out.keys() & gone.keys()
        )
        if twice:
            return f"both branches changed the same rows ({twice:,}), and it has no key by which to tell them apart"
        restored = self._restored_and_moved
        if restored:
            return f"both branches may have restored the same rows ({restored:,}), and it has no key by which to tell"
        return None

    @property
    def _restored_and_moved(self) -> int:
        """How many deleted rows one side restored, where the other side added equal rows in other files.

        They may be the same rows, which were rewritten since, or other ones.
        """
        three, came_below = self._three, self._three.changes_below.changed[1]
        above, below = _restored(three.changes_above, self._coming), _restored(three.changes_below, came_below)
        if not self._coming or not came_below or not (above or below) or not three.carry.pairs:
            return 0
        _, _, (here, there) = Comparison(three.above, three.below, three.carry).changed
        is_new = is_among(here, self._coming) & is_among(there, came_below)
        return int(np.count_nonzero(is_new & (is_among(here, above) | is_among(there, below))))

    @cached_property
    def problem(self) -> str | None:
        """Why the rows on top do not fit the table below; None if they do."""
        rows, bad = self._brought
        if bad.any():
            return "one branch changed the type of a column, and the other wrote a value that does not fit it"
        column = null_where_forbidden(rows, columns_of(self._three.below))
        if column is not None:
            return f"a row of one branch has no value for {column}, which may not be null"
        key = key_columns(self._three.below.manifest.fields)
        if key and self._count and self._breaks_key(rows, key):
            return "one branch declared a key, and the other wrote rows that break it"
        return None

    def _breaks_key(self, rows: pa.Table, key: tuple[str, ...]) -> bool:
        below = self._three.below
        keys = key_columns_of(rows, key)
        if any(column.null_count for column in keys.columns) or repeated(keys).num_rows:
            return True
        there = scan_keys(below, list(key))
        gone = addresses_in(self._out_below)
        is_left = ~np.isin(there["_rowaddr"].to_numpy(), gone.to_numpy())
        return bool(in_common(keys, there.filter(pa.array(is_left))).num_rows)

    # ------------------------------------------------------------------------ what is done

    @cached_property
    def _coming(self) -> Rows:
        """The rows that came on top, without those that came below too.

        Rows that the base deleted and both sides restored are the same rows: they are in the same files.
        """
        compared = Comparison(self._three.above, self._three.below, self._three.carry)
        left: dict[int, BitMap | None] = {}
        for number, offsets in self._came.items():
            shared = compared.unchanged(number)
            rest = live_offsets(self._three.above, number, offsets) - shared if shared else offsets
            if rest is None or rest:
                left[number] = rest
        return left

    @cached_property
    def _whole(self) -> dict[int, pb.DataFragment]:
        """Fragments that can be brought with their files, which goes on telling the next merge that they are the same.

        A deletion vector is named by the fragment it is for, so one that has any is read.
        """
        above, below = self._three.above, self._three.below
        if not has_same_ids(columns_of(above), columns_of(below)):
            return {}
        known = above.manifest.fragments_by_id
        whole = {number: known[number] for number, offsets in self._coming.items() if offsets is None}
        return {n: each for n, each in whole.items() if not each.HasField("deletion_file") and not each.overlays}

    @cached_property
    def _brought(self) -> tuple[pa.Table, Flags]:
        """The rows that are brought by value, in the columns below; and which of them do not fit there."""
        three = self._three
        rest: Rows = {number: offsets for number, offsets in self._coming.items() if number not in self._whole}
        if three.carry.pairs:
            return three.carry.carried(read_rows(three.above, rest, three.carry.here))
        first = columns_of(three.below)[0]  # they have no column in common: rows of nulls
        count = count_rows_in(three.above, rest)
        return pa.table({first.name: nulls(count, first.type)}), np.zeros(count, dtype=bool)

    @property
    def _count(self) -> int:
        return self._brought[0].num_rows

    @property
    def is_empty(self) -> bool:
        return not self._out and not self._coming

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows inserted, updated and deleted on the side below."""
        inserted = self._count + sum(fragment.physical_rows for fragment in self._whole.values())
        return inserted, 0, sum(map(len, self._out_below.values()))

    def settle(self, choose: Choose) -> int:  # noqa: ARG002
        """Single rows never conflict here."""
        return 0

    def stage(self, table: StagedTable) -> None:
        """Take rows out and bring others in."""
        if self._out:
            table.do(self._taking_out)
        if self._whole:
            table.do(lambda at: appended_fragments(self._three.above, self._whole, at))
        if self._count:
            table.append(self._brought[0])

    @cached_property
    def _out_below(self) -> dict[int, BitMap]:
        """The rows that are taken out, where the side below has them."""
        below = self._three.below
        pairs = self._three.changes_below.pairs
        was, is_now = self._three.changes_below.changed[2]
        left = by_fragment(was)  # a row that was moved is not at its old place any more, where another row may be
        places = {
            pairs[number]: offsets - left.get(number, BitMap())
            for number, offsets in self._out.items()
            if number in pairs
        }
        is_out = [offset in self._out.get(number, ()) for number, offset in was.tolist()]
        for number, offsets in by_fragment(is_now[np.array(is_out, dtype=bool)]).items():
            places[number] = places.get(number, BitMap()) | offsets
        known = below.manifest.fragments_by_id
        rows = {n: offs - load_deletions(below.files.objects, below.manifest, known[n]) for n, offs in places.items()}
        return {number: offsets for number, offsets in rows.items() if offsets}

    def _taking_out(self, at: TableVersion) -> Plan | None:
        """In a version that has the files of the side below."""
        pairs = Comparison.of(self._three.below, at).pairs
        rows: Mapping[int, BitMap] = {pairs[number]: offsets for number, offsets in self._out_below.items()}
        if not rows:
            return None
        taken = take_out(at.files, at.manifest, at.version, rows)
        operation = Delete(taken.updated, taken.removed, "rows that another branch changed")
        return Plan(at.staged(operation, rows), counts={"rows_deleted": sum(map(len, rows.values()))})
