"""Keys are never doubled: rows that come in are compared with what is there, exactly.

Two checks make that hold. When the work is done, the new keys are looked up in the version it is done on. When it is
committed, they are looked up in every fragment that is new or changed since, with the newest deletion vectors applied;
the commit then succeeds only if nothing newer came. Neither depends on what others wrote into their transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from conroi.commit.change import Guard
from conroi.commit.files import TableFiles
from conroi.commit.snapshot import Snapshot
from conroi.conflicts import Reason, Winner
from conroi.data.keys import SAMPLE, in_common, key_columns_of, repeated, scan_keys, shown
from conroi.data.pinned import Pinned
from conroi.errors import DuplicateKeyError, RetryableConflict
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path
from conroi.format.manifest import Manifest
from conroi.operations import Rewrite


class KeysSeen:
    """The keys of rows that pass by on their way into data files."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._parts: list[pa.Table] = []

    def watch(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The same stream; without key columns, the very same."""
        if not self.columns:
            return reader
        return pa.RecordBatchReader.from_batches(reader.schema, self._watched(reader))

    def _watched(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            self._parts.append(key_columns_of(pa.Table.from_batches([batch]), self.columns))
            yield batch

    def keys(self) -> pa.Table | None:
        """All keys seen; None if the table has no key or no row passed."""
        return pa.concat_tables(self._parts) if self._parts else None


def refuse_repeated(keys: pa.Table | None, columns: Sequence[str], table: str) -> None:
    """A key that comes in twice."""
    again = None if keys is None else repeated(keys)
    if again is not None and again.num_rows:
        raise DuplicateKeyError(
            f"The data has the same {named(columns)} more than once: {shown(again)}.",
            table=table,
            keys=again.slice(0, SAMPLE).to_pylist(),
            hint="Keep one row of each key.",
        )


def named(columns: Sequence[str]) -> str:
    """The key's columns, for a message."""
    return f"key {columns[0]}" if len(columns) == 1 else f"key ({', '.join(columns)})"


def checked_new_keys(pinned: Pinned, seen: KeysSeen, leaving: pa.ChunkedArray | None = None) -> Guard | None:
    """Refuse keys that come in twice or are in the table; the guard that keeps it so until the commit.

    `leaving` are the addresses of rows that the same change takes out.
    """
    keys = seen.keys()
    if keys is None:
        return None
    refuse_repeated(keys, seen.columns, pinned.root)
    there = in_common(keys, _present(pinned, seen.columns, leaving))
    if there.num_rows:
        raise DuplicateKeyError(
            f"The table has rows with the same {named(seen.columns)} already: {shown(there)}.",
            table=pinned.root,
            version=pinned.version,
            keys=there.slice(0, SAMPLE).to_pylist(),
            hint="Use merge() to update rows that are there and insert the others.",
        )
    return KeyGuard(pinned.files, pinned.manifest, seen.columns, keys)


def _present(pinned: Pinned, columns: Sequence[str], leaving: pa.ChunkedArray | None) -> pa.Table:
    present = scan_keys(pinned, columns)
    if leaving is None or not len(leaving):
        return present
    return present.join(pa.table({"_rowaddr": leaving}), keys="_rowaddr", join_type="left anti")


class KeyGuard:
    """Looks up keys in what is new at the head."""

    def __init__(self, files: TableFiles, base: Manifest, columns: Sequence[str], keys: pa.Table) -> None:
        self._files = files
        self._base = base
        self._columns = columns
        self._keys = keys

    def __call__(self, head: Snapshot, winners: Sequence[Winner]) -> None:
        fragments = self._unchecked(head.manifest, winners)
        if not fragments or not self._keys.num_rows:
            return
        theirs = scan_keys(Pinned(self._files, head), self._columns, fragment_ids=fragments)
        there = in_common(self._keys, theirs)
        if there.num_rows:
            raise self._conflict(head, winners, there)

    def _unchecked(self, head: Manifest, winners: Sequence[Winner]) -> list[int]:
        """Fragments whose key columns were not there at the base, in whatever fragment."""
        checked = {self._key_files(fragment) for fragment in self._base.fragments}
        for winner in winners:
            if isinstance(winner.operation, Rewrite):
                for group in winner.operation.groups:
                    if all(self._key_files(fragment) in checked for fragment in group.old_fragments):
                        checked |= {self._key_files(fragment) for fragment in group.new_fragments}
        return [f.id for f in head.fragments if self._key_files(f) not in checked]

    @cached_property
    def _key_fields(self) -> set[int]:
        known = fields_by_path(self._base.fields)
        return {known[column].id for column in self._columns}

    def _key_files(self, fragment: pb.DataFragment) -> tuple[str, ...]:
        """The files that hold the key: names are never used twice, so the same names mean the same keys."""
        return tuple(f.path for f in fragment.files if not self._key_fields.isdisjoint(f.fields))

    def _conflict(self, head: Snapshot, winners: Sequence[Winner], there: pa.Table) -> RetryableConflict:
        last = winners[-1] if winners else None
        reason = Reason(
            rule="keys/same",
            mine="Update",
            theirs="Unknown" if last is None else last.operation.name,
            names=tuple(shown(there.slice(n, 1)) for n in range(min(SAMPLE, there.num_rows))),
            winner=last,
        )
        return RetryableConflict(
            f"Since version {self._base.version} somebody else committed rows with the same key "
            f"{', '.join(self._columns)}: {shown(there)}.",
            table=self._files.root,
            version=head.version,
            base_version=self._base.version,
            reason=reason,
            hint="Run it again on the newest version: a merge then updates those rows.",
        )


def only(snapshot: Snapshot, fragments: Iterable[pb.DataFragment]) -> Snapshot:
    """The same version with nothing but these new fragments, visible to nobody else."""
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
    return Snapshot(manifest, snapshot.located, is_final=False)
