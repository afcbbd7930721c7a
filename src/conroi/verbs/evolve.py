"""Schema evolution as a change of columns: adds columns, null in the existing rows, and widens types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from conroi.data.arrow_types import metadata_of
from conroi.data.casts import Evolution, evolution
from conroi.data.table_version import TableVersion
from conroi.format import lance_pb2 as pb
from conroi.format.fields import key_columns
from conroi.verbs.columns import merged, retyped_fields, retyped_fragments, with_new_fields
from conroi.verbs.plan import Plan


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
    change = evolution(pinned.schema, data, key_columns(pinned.manifest.fields))
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
