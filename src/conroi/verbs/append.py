"""Append: new fragments, and nothing else changes."""

from __future__ import annotations

import pyarrow as pa

from conroi.data.arrow_types import metadata_of
from conroi.data.elsewhere import kept
from conroi.data.incoming import is_one_shot, opened
from conroi.data.pinned import Pinned
from conroi.data.writing import Progress, WrittenFiles
from conroi.errors import RetryableConflict
from conroi.format import lance_pb2 as pb
from conroi.format.fields import key_columns
from conroi.operations import Append
from conroi.operations.base import Operation
from conroi.verbs.columns import merged, with_new_fields
from conroi.verbs.keyed import KeysSeen, checked_new_keys
from conroi.verbs.plan import Plan
from conroi.verbs.rows import write_rows


class Appending:
    """The verb, called again on a newer version if need be: what it wrote is kept while the schema stays the same."""

    def __init__(self, data: object, *, evolve_schema: bool = False, progress: Progress | None = None) -> None:
        self._data = kept(data)
        self._evolve_schema = evolve_schema
        self._progress = progress
        self._written: tuple[list[pb.Field], list[pb.Field], WrittenFiles, KeysSeen] | None = None

    @property
    def adds_only_rows(self) -> bool:
        """Whether what it does depends on nothing of the table but its columns and key."""
        return not self._evolve_schema

    def __call__(self, pinned: Pinned) -> Plan | None:
        """Add the rows; None if there are none."""
        before = list(pinned.manifest.fields)
        if self._written is None or self._written[0] != before:
            self._write(pinned, before)
        assert self._written is not None
        _, fields, written, seen = self._written
        if not written.fragments and fields == before:
            return None
        operation = _operation(pinned, fields, written)
        guard = checked_new_keys(pinned, seen, mine=operation.name)
        staged = pinned.staged(operation, keys_checked=True)
        return Plan(staged, guard=guard, counts={"rows_added": written.rows})

    def _write(self, pinned: Pinned, before: list[pb.Field]) -> None:
        if self._written is not None and is_one_shot(self._data):
            raise RetryableConflict(
                "The table's columns changed while a stream was being appended, and a stream can be read only once.",
                table=pinned.root,
                version=pinned.version,
                hint="Call append() again with a new stream.",
            )
        rows = opened(self._data, pinned.schema)
        fields, schema = before, pinned.schema
        new = [f.with_nullable(True) for f in rows.schema if f.name not in pinned.schema.names]
        if self._evolve_schema and new:
            fields = with_new_fields(pinned, new)
            schema = pa.schema([*pinned.schema, *new], metadata=metadata_of(pinned.schema))
        seen = KeysSeen(key_columns(before))
        self._written = before, fields, write_rows(rows, schema, pinned.writer(fields), seen, self._progress), seen


def _operation(pinned: Pinned, fields: list[pb.Field], written: WrittenFiles) -> Operation:
    if fields == list(pinned.manifest.fields):
        return Append(fragments=tuple(written.fragments))
    # Columns and rows in one version: a Merge that lists the old fragments and the new. The new columns are null in
    # the rows that were there before, so no old file is touched.
    return merged(pinned, (*pinned.manifest.fragments, *written.fragments), fields)
