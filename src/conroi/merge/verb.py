"""Merge verb in this process: join, evaluate the clauses, write the files, return the operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from conroi.commit.change import Guard, Plan, all_of
from conroi.data.arrow_types import positions
from conroi.data.columns import remember
from conroi.data.incoming import KeysSeen
from conroi.data.keys import key_columns_of, repeated
from conroi.data.rows import Rows, addresses_in, offsets_by_fragment, take_out
from conroi.data.table_version import TableVersion
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path
from conroi.format.keyfilter import bloom_filter, incomparable_filter, is_hashable_by_pylance
from conroi.format.row_ids import encode_row_ids
from conroi.merge.matching import Addresses, Matching, match, refuse_doubled, row_ids_of
from conroi.merge.outcome import Decided, Decision, in_schema, takes_whole_rows
from conroi.merge.request import Request, RowKind
from conroi.operations import Update
from conroi.operations.base import copied
from conroi.verbs.key_check import KeyGuard, checked_new_keys, refuse_repeated

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
        seen = KeysSeen(pinned.key)
        coming = change.coming_rows(_tops(seen.columns))
        seen.watch(coming.to_reader()).read_all()
        guard = checked_new_keys(pinned, seen, leaving=addresses_in(change.leaving))
        guards += [guard] if guard is not None else []
    return guards


def key_filter(pinned: TableVersion, change: RowChange) -> pb.KeyExistenceFilter | None:
    """The filter of inserted keys for a later pylance merge."""
    key = pinned.key
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


class Merging:
    """Merges the rows of a source into a table, on the version that it is called with."""

    def __init__(self, source: pa.Table, request: Request, matching: Matching = match) -> None:
        self._source = source
        self._request = request
        self._matching = matching
        self._fitting: tuple[list[pb.Field], pa.Table, pa.Table] | None = None
        self._written: tuple[list[pb.Field], pa.Table, list[pb.DataFragment]] | None = None

    def prepare(self, pinned: TableVersion) -> None:
        """Do what does not depend on the rows of the table, before it is our turn."""
        fitted, _ = self._incoming(pinned)
        if takes_whole_rows(self._request.clauses, fitted, pinned):
            self._write(pinned, in_schema(fitted, pinned))

    def __call__(self, pinned: TableVersion) -> Plan | None:
        """The change; None if no clause finds a row."""
        request = self._request
        fitted, keys = self._incoming(pinned)
        if request.only_deletes_matched and repeated(keys).num_rows:
            return planned(pinned, request, self._change(pinned, self._deleted_by_parts(pinned, fitted, keys)))
        return planned(pinned, request, self._change(pinned, self._decided(pinned, self._source, fitted, keys)))

    def _decided(self, pinned: TableVersion, source: pa.Table, fitted: pa.Table, keys: pa.Table) -> Decided:
        request = self._request
        found = self._matching(pinned, keys, request.on, needs_target_only=request.has(RowKind.TARGET_ONLY))
        if request.is_on_key(pinned):
            refuse_doubled(pinned, found, keys, request.on)
        key = pinned.key
        return Decision(pinned, source, fitted, found).decide(request.clauses, (*request.on, *key))

    def _deleted_by_parts(self, pinned: TableVersion, fitted: pa.Table, keys: pa.Table) -> Decided:
        """A row goes if any row of the source deletes it: the source in parts, in each of which a key is there once."""
        parts: dict[int, list[int]] = {}
        seen: dict[tuple[object, ...], int] = {}
        for number, key in enumerate(zip(*(column.to_pylist() for column in keys.columns), strict=True)):
            seen[key] = seen.get(key, -1) + 1
            parts.setdefault(seen[key], []).append(number)
        gone: list[Addresses] = []
        for numbers in parts.values():
            at = positions(np.array(numbers, np.int64))
            gone += self._decided(pinned, self._source.take(at), fitted.take(at), keys.take(at)).deleted
        return Decided(deleted=[np.unique(joined(gone))])

    def _incoming(self, pinned: TableVersion) -> tuple[pa.Table, pa.Table]:
        """The source in the table's types, and its keys; cached while the columns are unchanged."""
        fields = list(pinned.manifest.fields)
        if self._fitting is None or self._fitting[0] != fields:
            fitted = self._request.fitted(pinned, self._source)
            keys = key_columns_of(fitted, self._request.on)
            if not self._request.only_deletes_matched:
                refuse_repeated(keys, self._request.on, pinned.root)
            self._fitting = fields, fitted, keys
        return self._fitting[1], self._fitting[2]

    def _change(self, pinned: TableVersion, decided: Decided) -> RowChange:
        updated, deleted = joined(decided.updated), joined(decided.deleted)
        inserted = inserted_rows(pinned, decided)
        new = pa.concat_tables([*decided.updated_rows, inserted]) if decided.whole is None else decided.whole

        def write() -> Sequence[pb.DataFragment]:
            fragments = self._write(pinned, new)
            keep_row_ids(pinned, fragments, updated)
            return fragments

        return RowChange(
            leaving=offsets_by_fragment(np.concatenate([updated, deleted])),
            updated=len(updated),
            inserted=inserted.num_rows,
            deleted=len(deleted),
            inserted_rows=lambda columns: inserted.select(list(columns)),
            coming_rows=lambda columns: new.select(list(columns)),
            write=write,
        )

    def _write(self, pinned: TableVersion, rows: pa.Table) -> list[pb.DataFragment]:
        """The rows in new fragments; reused if the merge is executed again with the same rows."""
        fields = list(pinned.manifest.fields)
        if self._written is None or self._written[0] != fields or not self._written[1].equals(rows):
            fragments = pinned.writer().write(rows.to_reader()).fragments
            self._written = fields, rows, fragments
            remember(pinned, fragments, rows, self._request.on)
        return [copied(fragment) for fragment in self._written[2]]


def inserted_rows(pinned: TableVersion, decided: Decided) -> pa.Table:
    """The rows that are new, or those of their columns that matter."""
    if decided.inserted_rows:
        return pa.concat_tables(decided.inserted_rows)
    return pa.Table.from_batches([], pinned.schema)


def joined(parts: Sequence[Addresses]) -> Addresses:
    """All addresses, in the order of the parts."""
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)
