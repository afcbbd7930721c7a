"""Result of a merge as one operation, whichever engine computed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from conroi.commit.change import Guard
from conroi.data.keys import key_columns_of
from conroi.data.rows import Rows, addresses_in, take_out
from conroi.data.table_version import TableVersion
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path, key_columns
from conroi.format.keyfilter import bloom_filter, incomparable_filter, is_hashable_by_pylance
from conroi.format.row_ids import encode_row_ids
from conroi.merge.matching import Addresses, row_ids_of
from conroi.merge.request import Request
from conroi.operations import Update
from conroi.verbs.key_check import KeyGuard, KeysSeen, checked_new_keys
from conroi.verbs.plan import Plan, all_of

FEW_INSERTS = 1000
"""Number of inserted keys up to which pylance's bloom filter is useful; above, it is full."""

Columns = Callable[[Sequence[str]], pa.Table]
"""Gives these columns of some rows, which need not be in memory before."""


@dataclass(frozen=True)
class RowChange:
    """The rows to delete and to insert."""

    leaving: Rows
    updated: int
    inserted: int
    deleted: int
    inserted_rows: Columns
    coming_rows: Columns
    """All new rows: updated and inserted."""
    write: Callable[[], Sequence[pb.DataFragment]]
    """The new fragments; written now, unless they were before."""

    @property
    def counts(self) -> dict[str, int]:
        return {"rows_inserted": self.inserted, "rows_updated": self.updated, "rows_deleted": self.deleted}


def planned(pinned: TableVersion, request: Request, change: RowChange) -> Plan | None:
    """The change as one Update; None if it changes nothing."""
    if not any(change.counts.values()):
        return None
    guards = _guards(pinned, request, change)
    fragments = change.write()
    left = take_out(pinned.files, pinned.manifest, pinned.version, change.leaving, later=pinned.is_contended)
    operation = Update(
        removed_fragment_ids=left.removed,
        updated_fragments=left.updated,
        new_fragments=tuple(fragments),
        fields_for_preserving_frag_bitmap=tuple(request.changed_fields(pinned, inserts=bool(change.inserted))),
        inserted_rows=key_filter(pinned, change),
    )
    staged = pinned.staged(operation, change.leaving, keys_checked=True, unwritten=left.unwritten)
    return Plan(staged, guard=all_of(guards), counts=change.counts)


def _guards(pinned: TableVersion, request: Request, change: RowChange) -> list[Guard]:
    """No concurrent commit may insert a key that we insert: neither by the match columns, nor by the table's key."""
    guards: list[Guard] = []
    if change.inserted:
        on = request.on
        keys = lambda: key_columns_of(change.inserted_rows(on), on)  # noqa: E731 (read only if others committed)
        guards.append(KeyGuard(pinned.files, pinned.manifest, on, keys))
    if request.brings_new_keys(pinned):
        seen = KeysSeen(key_columns(pinned.manifest.fields))
        coming = change.coming_rows(_tops(seen.columns))
        seen.watch(coming.to_reader()).read_all()
        guard = checked_new_keys(pinned, seen, leaving=addresses_in(change.leaving))
        guards += [guard] if guard is not None else []
    return guards


def key_filter(pinned: TableVersion, change: RowChange) -> pb.KeyExistenceFilter | None:
    """The filter of inserted keys for a later pylance merge."""
    key = key_columns(pinned.manifest.fields)
    if not change.inserted or not key:
        return None
    known = fields_by_path(pinned.manifest.fields)
    field_ids = [known[column].id for column in key]
    if change.inserted <= FEW_INSERTS:
        inserted = change.inserted_rows(_tops(key))
        columns = [inserted[column].combine_chunks() for column in key]
        if all(is_hashable_by_pylance(column.type) for column in columns):
            return bloom_filter(field_ids, columns)
    # pylance skips keys of this type, or its filter would be full.
    return incomparable_filter(field_ids)


def _tops(paths: Sequence[str]) -> list[str]:
    """The columns that these are in."""
    return list(dict.fromkeys(path.partition(".")[0] for path in paths))


def keep_row_ids(pinned: TableVersion, fragments: Sequence[pb.DataFragment], updated: Addresses) -> None:
    """Updated rows come first in the new fragments and keep their ids; inserted ones get new ids at the commit."""
    if not pinned.manifest.has_stable_row_ids or not len(updated):
        return
    ids = row_ids_of(pinned, updated)
    start = 0
    for fragment in fragments:
        part = ids[start : start + fragment.physical_rows]
        if len(part):
            fragment.inline_row_ids = encode_row_ids(part)
        start += fragment.physical_rows
