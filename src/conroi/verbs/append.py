"""Append: adds new fragments and changes nothing else. Schema evolution: new columns and wider types with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from conroi.commit.change import Plan
from conroi.data.arrow_types import metadata_of
from conroi.data.casts import Evolution, evolution
from conroi.data.dict_rows import hints
from conroi.data.incoming import KeysSeen, from_elsewhere, is_one_shot, opened, write_rows
from conroi.data.table_version import TableVersion
from conroi.data.writer import Progress, WrittenFiles
from conroi.errors import NotFoundError, RetryableConflict, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.operations import Append
from conroi.operations.base import Operation
from conroi.storage.base_paths import objects_of_base
from conroi.verbs.columns import merged, next_field_id, retyped_fields, retyped_fragments, with_new_fields
from conroi.verbs.key_check import checked_new_keys


@dataclass(frozen=True)
class Evolved:
    """A table's columns after an evolution."""

    evolution: Evolution
    fields: list[pb.Field]
    schema: pa.Schema

    def fragments(self, pinned: TableVersion) -> Sequence[pb.DataFragment]:
        """The table's fragments with data for the columns whose type changed."""
        if not self.evolution.widened:
            return pinned.manifest.fragments
        return retyped_fragments(pinned, self.fields, self.evolution.widened)


def evolved(pinned: TableVersion, data: pa.Schema) -> Evolved | None:
    """The columns that the table needs for data of this schema; None if it has them."""
    change = evolution(pinned.schema, data, pinned.key)
    if not change:
        return None
    fields = list(pinned.manifest.fields)
    if change.widened:
        fields = retyped_fields(pinned, fields, change.widened)
    if change.new:
        fields = with_new_fields(pinned, list(change.new), fields)
    columns = [
        field.with_type(change.widened[field.name]) if field.name in change.widened else field
        for field in pinned.schema
    ]
    return Evolved(change, fields, pa.schema([*columns, *change.new], metadata=metadata_of(pinned.schema)))


def evolve_columns(pinned: TableVersion, data: pa.Schema) -> Plan | None:
    """Make the table's columns hold data of this schema; None if they do."""
    after = evolved(pinned, data)
    if after is None:
        return None
    return Plan(pinned.staged(merged(pinned, after.fragments(pinned), after.fields)))


class Appending:
    """The append verb, executed again on a newer version if necessary: its files are reused while the schema is
    unchanged.
    """

    def __init__(
        self,
        data: object,
        *,
        evolve_schema: bool = False,
        base: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._data = from_elsewhere(data) or data  # remote rows are cached, so that they are written only once
        self._evolve_schema = evolve_schema
        self._base = base
        self._progress = progress
        self._written: tuple[tuple[list[pb.Field], int], Evolved | None, WrittenFiles, KeysSeen] | None = None

    @property
    def adds_only_rows(self) -> bool:
        """Whether it depends only on the table's columns and key."""
        return not self._evolve_schema

    def __call__(self, pinned: TableVersion) -> Plan | None:
        """Append the rows; None if there are none."""
        # The ids of new columns must be free on the version that this becomes part of, not only on the first one.
        columns = list(pinned.manifest.fields), next_field_id(pinned) if self._evolve_schema else 0
        if self._written is None or self._written[0] != columns:
            self._write(pinned, columns)
        assert self._written is not None
        _, after, written, seen = self._written
        if not written.fragments and after is None:
            return None
        operation = Append(fragments=tuple(written.fragments)) if after is None else _merge(pinned, after, written)
        guard = checked_new_keys(pinned, seen, mine=operation.name) if seen.columns else None
        staged = pinned.staged(operation, keys_checked=True)
        return Plan(staged, guard=guard, counts={"rows_added": written.rows})

    def _write(self, pinned: TableVersion, columns: tuple[list[pb.Field], int]) -> None:
        if self._written is not None and is_one_shot(self._data):
            raise RetryableConflict(
                "The table's columns changed while a stream was being appended, and a stream can be read only once.",
                table=pinned.root,
                version=pinned.version,
                hint="Call append() again with a new stream.",
            )
        known = hints(self._data, pinned.schema) if self._evolve_schema else pinned.schema
        rows = opened(self._data, known)
        after = evolved(pinned, rows.schema) if self._evolve_schema else None
        schema = pinned.schema if after is None else after.schema
        seen = KeysSeen(pinned.key)
        writer = pinned.writer(columns[0] if after is None else after.fields)
        base = None if self._base is None else _base(pinned, self._base)
        if base is not None:
            writer = replace(writer, objects=objects_of_base(pinned.files.objects, pinned.manifest, base.id))
        written = write_rows(rows, schema, writer, seen, self._progress)
        if base is not None:
            for file in (file for fragment in written.fragments for file in fragment.files):
                file.base_id = base.id
        self._written = columns, after, written, seen


def _base(pinned: TableVersion, name: str) -> pb.BasePath:
    """The base of this name, in which data files can be."""
    known = pinned.manifest.head.base_paths
    for base in known:
        if base.name == name:
            if not base.is_dataset_root:
                raise UnsupportedError(
                    f"The base {name!r} is not the root of a table, so rows cannot be written there.",
                    table=pinned.root,
                    hint="Name a place for rows with add_base(path, name=…, is_table_root=True).",
                )
            return base
    names = ", ".join(base.name for base in known if base.name) or "none with a name"
    raise NotFoundError(
        f"The table has no base {name!r}.", table=pinned.root, hint=f"It has {names}; add_base(path, name=…) adds one."
    )


def _merge(pinned: TableVersion, after: Evolved, written: WrittenFiles) -> Operation:
    """Columns and rows in one version: a Merge that lists the old fragments and the new. New columns are null in the
    rows that were there before, so no old file is touched for them.
    """
    return merged(pinned, (*after.fragments(pinned), *written.fragments), after.fields)
