"""Append: new fragments, and nothing else changes."""

from __future__ import annotations

import pyarrow as pa

from conroi.data.fitting import fit
from conroi.data.incoming import to_reader
from conroi.data.writing import Progress
from conroi.operations import Append, Merge
from conroi.verbs.columns import with_new_fields
from conroi.data.pinned import Pinned
from conroi.verbs.plan import Plan


def append(
    pinned: Pinned, data: object, *, evolve_schema: bool = False, progress: Progress | None = None
) -> Plan | None:
    """Add rows; None if there are none."""
    reader = to_reader(data, pinned.schema)
    if evolve_schema and any(name not in pinned.schema.names for name in reader.schema.names):
        return _append_with_new_columns(pinned, reader, progress)
    written = pinned.writer().write(fit(reader, pinned.schema, table=pinned.root), progress)
    if not written.fragments:
        return None
    return Plan(pinned.staged(Append(fragments=tuple(written.fragments))), counts={"rows_added": written.rows})


def _append_with_new_columns(pinned: Pinned, reader: pa.RecordBatchReader, progress: Progress | None) -> Plan:
    """Columns and rows in one version: a Merge whose fragment list has the old ones and the new.

    The new columns are null in the rows that were there before, so no old file is touched.
    """
    new = [f for f in reader.schema if f.name not in pinned.schema.names]
    fields = with_new_fields(pinned, [f.with_nullable(True) for f in new])
    schema = pa.schema([*pinned.schema, *(f.with_nullable(True) for f in new)], metadata=pinned.schema.metadata)
    written = pinned.writer(fields).write(fit(reader, schema, table=pinned.root), progress)
    operation = Merge(
        fragments=(*pinned.manifest.fragments, *written.fragments),
        schema=tuple(fields),
        schema_metadata=dict(pinned.manifest.head.schema_metadata),
        preserves_nullability=True,
    )
    return Plan(pinned.staged(operation), counts={"rows_added": written.rows})
