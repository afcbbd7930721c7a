"""Primary-key enforcement: inserted keys are compared exactly with all live keys, at staging and at each attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from conroi.commit.change import Guard
from conroi.conflicts import ConcurrentCommit, Reason
from conroi.data.arrow_types import table_of
from conroi.data.incoming import KeysSeen
from conroi.data.keys import SAMPLE, in_common, repeated, sample, scan_keys, shown_keys
from conroi.data.rows import addresses_of
from conroi.data.table_version import TableVersion
from conroi.errors import DuplicateKeyError, RetryableConflict
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path, key_columns
from conroi.format.manifest import Manifest
from conroi.operations import Rewrite
from conroi.snapshots.snapshot import Snapshot, TableStorage


def refuse_repeated(keys: pa.Table | None, columns: Sequence[str], table: str) -> None:
    """Refuse a key that occurs twice in the input."""
    again = None if keys is None else repeated(keys)
    if again is not None and again.num_rows:
        raise DuplicateKeyError(
            f"The data has the same {named(columns)} more than once: {shown_keys(again)}.",
            table=table,
            keys=sample(again, columns),
            hint="Keep one row of each key.",
        )


def named(columns: Sequence[str]) -> str:
    """The key's columns, for a message."""
    return f"key {columns[0]}" if len(columns) == 1 else f"key ({', '.join(columns)})"


def is_key_among(columns: Iterable[str], pinned: TableVersion) -> bool:
    """Whether one of these columns is, or holds, a part of the table's key."""
    return not {path.partition(".")[0] for path in pinned.key}.isdisjoint(columns)


def checked_new_keys(
    pinned: TableVersion, seen: KeysSeen, leaving: pa.ChunkedArray[Any] | None = None, *, mine: str = "Update"
) -> Guard | None:
    """Refuse duplicate keys, in the input or with the table; returns the guard that repeats the check at commit.

    `leaving` are the addresses of rows that the same change deletes, `mine` is the name of its operation.
    """
    keys = seen.keys()
    if keys is None:
        return None
    refuse_repeated(keys, seen.columns, pinned.root)
    there = in_common(keys, _present(pinned, keys, seen.columns, leaving))
    if there.num_rows:
        raise DuplicateKeyError(
            f"The table has rows with the same {named(seen.columns)} already: {shown_keys(there)}.",
            table=pinned.root,
            version=pinned.version,
            keys=sample(there, seen.columns),
            hint="Use merge() to update rows that are there and insert the others.",
        )
    return KeyGuard(pinned.files, pinned.manifest, seen.columns, keys, mine=mine)


def _present(
    pinned: TableVersion, keys: pa.Table, columns: Sequence[str], leaving: pa.ChunkedArray[Any] | None
) -> pa.Table:
    """The table's keys, without those that are deleted; possibly only those among `keys`."""
    present = scan_keys(pinned, columns, among=keys)
    if leaving is None or not len(leaving):
        return present
    return present.join(table_of({"_rowaddr": leaving}), keys="_rowaddr", join_type="left anti")


class KeyGuard:
    """Commit-time key check: looks up keys in what is new at the head; each fragment is checked once."""

    def __init__(
        self,
        files: TableStorage,
        base: Manifest,
        columns: Sequence[str],
        keys: pa.Table | Callable[[], pa.Table],
        *,
        mine: str = "Update",
    ) -> None:
        self._files = files
        self._base = base
        self._columns = tuple(columns)
        self._given = keys
        self._mine = mine
        known = fields_by_path(base.fields)
        self._field_ids = tuple(known[column].id for column in columns)

    @cached_property
    def _keys(self) -> pa.Table:
        """Computed only after a concurrent commit."""
        return self._given() if callable(self._given) else self._given

    @cached_property
    def _checked(self) -> set[tuple[str | bytes, ...]]:
        """The fragments that were checked: at first those of the base."""
        return {self._key_files(fragment) for fragment in self._base.fragments}

    def __call__(self, head: Snapshot, winners: Sequence[ConcurrentCommit]) -> None:
        if head.version == self._base.version:
            return
        self._follow_rewrites(winners)
        new = [f for f in head.manifest.fragments if self._key_files(f) not in self._checked]
        if not new or not self._keys.num_rows:
            return
        columns = self._columns_at(head, winners)
        theirs = scan_keys(TableVersion(self._files, head), columns, fragment_ids=[f.id for f in new], among=self._keys)
        there = in_common(self._keys, theirs)
        if there.num_rows:
            raise self._same_keys(head, winners, there, theirs)
        self._checked |= {self._key_files(fragment) for fragment in new}

    def _follow_rewrites(self, winners: Sequence[ConcurrentCommit]) -> None:
        """Rows that were only copied by a compaction need no second check."""
        for winner in winners:
            if isinstance(winner.operation, Rewrite):
                for group in winner.operation.groups:
                    if all(self._key_files(fragment) in self._checked for fragment in group.old_fragments):
                        self._checked |= {self._key_files(fragment) for fragment in group.new_fragments}

    def _key_files(self, fragment: pb.DataFragment) -> tuple[str | bytes, ...]:
        """The files that hold the key: file names are never reused, so equal names mean equal keys."""
        files = (file.path for file in fragment.files if not set(self._field_ids).isdisjoint(file.fields))
        return (*files, *fragment.overlays)

    def _columns_at(self, head: Snapshot, winners: Sequence[ConcurrentCommit]) -> list[str]:
        """What the key's columns are called at the head: they may have been renamed."""
        names = {field.id: path for path, field in fields_by_path(head.manifest.fields).items()}
        gone = [column for column, i in zip(self._columns, self._field_ids, strict=True) if i not in names]
        if gone:
            raise self._conflict(head, "rows/column-gone", gone, winners[-1] if winners else None)
        return [names[i] for i in self._field_ids]

    def _same_keys(
        self, head: Snapshot, winners: Sequence[ConcurrentCommit], there: pa.Table, theirs: pa.Table
    ) -> RetryableConflict:
        found = theirs.join(there, keys=there.column_names, join_type="left semi")
        fragments = {int(number) for number in np.unique(addresses_of(found["_rowaddr"]) >> np.uint64(32))}
        files = {f.path for number in fragments for f in head.manifest.fragments_by_id[number].files}
        names = [shown_keys(there.slice(n, 1)) for n in range(min(SAMPLE, there.num_rows))]
        return self._conflict(head, "keys/same", names, _who_wrote(files, winners))

    def _conflict(
        self, head: Snapshot, rule: str, names: Sequence[str], winner: ConcurrentCommit | None
    ) -> RetryableConflict:
        theirs = "Unknown" if winner is None else winner.operation.name
        reason = Reason(rule=rule, mine=self._mine, theirs=theirs, names=tuple(names), winner=winner)
        return RetryableConflict(
            f"{reason.what_happened} {reason.why}",
            table=self._files.root,
            version=head.version,
            base_version=self._base.version,
            reason=reason,
            hint=reason.hint,
        )


def _who_wrote(files: Iterable[str], winners: Sequence[ConcurrentCommit]) -> ConcurrentCommit | None:
    """The concurrent commit that added one of these files; for copies, the last one that may have written rows."""
    names = [file.encode() for file in files]
    writers = [winner for winner in winners if not isinstance(winner.operation, Rewrite)]
    for winner in writers:
        wire = winner.transaction.wire.SerializeToString()
        if any(name in wire for name in names):
            return winner
    return next(iter([*reversed(writers), *reversed(winners)]), None)


def key_stays(pinned: TableVersion) -> Guard:
    """The guard of a change with its own schema: a key that was declared concurrently must not get lost."""
    base, key = pinned.version, pinned.key

    def check(head: Snapshot, winners: Sequence[ConcurrentCommit]) -> None:
        if key_columns(head.manifest.fields) == key:
            return
        declared = [winner for winner in winners if winner.operation.name in ("Project", "UpdateConfig")]
        winner = next(iter([*reversed(declared), *reversed(winners)]), None)
        reason = Reason(
            rule="columns/both-changed",
            mine="Overwrite",
            theirs="Unknown" if winner is None else winner.operation.name,
            names=key_columns(head.manifest.fields),
            winner=winner,
        )
        raise RetryableConflict(
            f"{reason.what_happened} {reason.why}",
            table=pinned.root,
            version=head.version,
            base_version=base,
            reason=reason,
            hint=reason.hint,
        )

    return check


def only(snapshot: Snapshot, fragments: Iterable[pb.DataFragment]) -> Snapshot:
    """The same version with only these new fragments, never visible to other readers."""
    numbered: list[pb.DataFragment] = []
    for number, fragment in enumerate(fragments):
        copy = pb.DataFragment()
        copy.CopyFrom(fragment)
        copy.id = number
        for sequence in ("inline_row_ids", "inline_last_updated_at_versions", "inline_created_at_versions"):
            copy.ClearField(sequence)
        numbered.append(copy)
    head = snapshot.manifest.editable_head()
    head.reader_feature_flags &= ~2
    head.writer_feature_flags &= ~2
    manifest = snapshot.manifest.changed(head=head, fragments=numbered, indices=())
    return Snapshot(manifest, snapshot.located, is_final=False, is_private=True)
