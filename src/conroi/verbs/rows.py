"""Incoming rows written as data files, in this process or by a distributed engine."""

from __future__ import annotations

import pyarrow as pa

from conroi.data.elsewhere import Elsewhere
from conroi.data.fitting import checked_columns, fit
from conroi.data.writing import DataWriter, Progress, WrittenFiles
from conroi.verbs.keyed import KeysSeen


def write_rows(
    rows: pa.RecordBatchReader | Elsewhere,
    schema: pa.Schema,
    writer: DataWriter,
    seen: KeysSeen,
    progress: Progress | None = None,
) -> WrittenFiles:
    """Align the rows with the schema and write them; `seen` collects their keys."""
    table = writer.objects.root
    if isinstance(rows, pa.RecordBatchReader):
        return writer.write(seen.watch(fit(rows, schema, table=table)), progress)
    checked_columns(rows.schema, schema, table=table)  # before any work starts
    written = rows.write(writer, schema, seen.columns, progress)
    seen.add(written.keys)
    return written.files
