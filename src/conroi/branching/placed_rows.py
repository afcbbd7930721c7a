"""Three-way merge of rows without a key: matched by the files and offsets that they have in the base."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from conroi.branching.bringing import appended_fragments
from conroi.branching.columns import Flags, columns_of, has_same_ids, null_where_forbidden
from conroi.branching.comparing import Comparison, Rows, by_fragment, count_rows_in, read_rows
from conroi.branching.plan import Choose
from conroi.commit.deletions import load_deletions
from conroi.data.arrow_types import nulls
from conroi.data.keys import in_common, key_columns_of, repeated, scan_keys
from conroi.data.pinned import Pinned
from conroi.data.rows import addresses_in, take_out
from conroi.format import lance_pb2 as pb
from conroi.format.fields import key_columns
from conroi.operations import Delete
from conroi.verbs.plan import Plan

if TYPE_CHECKING:
    from conroi.branching.contents import ThreeVersions
    from conroi.handles import TransactionTable


class PlacedRows:
    """The rows of one side, put on top of the other: some are taken out where they are, others are brought."""

    def __init__(self, three: ThreeVersions) -> None:
        self._three = three
        gone, self._came, _ = three.changes_above.changed
        self._out = {number: self._offsets(number, offsets) for number, offsets in gone.items()}
        """What is taken out, by fragment of the base."""

    def _offsets(self, number: int, offsets: BitMap | None) -> BitMap:
        """The rows of a fragment of the base; None means all that are there."""
        if offsets is not None:
            return offsets
        base = self._three.base
        fragment = base.manifest.fragments_by_id[number]
        return BitMap(range(fragment.physical_rows)) - load_deletions(base.files.objects, base.manifest, fragment)

    # ------------------------------------------------------------------------ what stands in the way

    @cached_property
    def conflict(self) -> str | None:
        """Both sides removed the same rows, one of them possibly by an update; None if they did not."""
        gone, came, _ = self._three.changes_below.changed
        if not self._came and not came:
            return None  # both only deleted
        twice = sum(len(self._out[n] & self._offsets(n, gone[n])) for n in self._out.keys() & gone.keys())
        if not twice:
            return None
        return f"both branches changed the same rows ({twice:,}), and it has no key by which to tell them apart"

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
    def _whole(self) -> dict[int, pb.DataFragment]:
        """Fragments that can be brought with their files, which goes on telling the next merge that they are the same.

        A deletion vector is named by the fragment it is for, so one that has any is read.
        """
        above, below = self._three.above, self._three.below
        if not has_same_ids(columns_of(above), columns_of(below)):
            return {}
        known = above.manifest.fragments_by_id
        whole = {number: known[number] for number, offsets in self._came.items() if offsets is None}
        return {n: each for n, each in whole.items() if not each.HasField("deletion_file") and not each.overlays}

    @cached_property
    def _brought(self) -> tuple[pa.Table, Flags]:
        """The rows that are brought by value, in the columns below; and which of them do not fit there."""
        three = self._three
        rest: Rows = {number: offsets for number, offsets in self._came.items() if number not in self._whole}
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
        return not self._out and not self._came

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows inserted, updated and deleted on the side below."""
        inserted = self._count + sum(fragment.physical_rows for fragment in self._whole.values())
        return inserted, 0, sum(map(len, self._out_below.values()))

    def settle(self, choose: Choose) -> int:  # noqa: ARG002
        """Single rows never conflict here."""
        return 0

    def stage(self, table: TransactionTable) -> None:
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

    def _taking_out(self, at: Pinned) -> Plan | None:
        """In a version that has the files of the side below."""
        pairs = Comparison.of(self._three.below, at).pairs
        rows: Mapping[int, BitMap] = {pairs[number]: offsets for number, offsets in self._out_below.items()}
        if not rows:
            return None
        taken = take_out(at.files, at.manifest, at.version, rows)
        operation = Delete(taken.updated, taken.removed, "rows that another branch changed")
        return Plan(at.staged(operation, rows), counts={"rows_deleted": sum(map(len, rows.values()))})
