"""Evaluation of SQL expressions over rows in memory, by pylance.

pylance evaluates expressions over datasets only. So the rows are written as a temporary dataset: two struct columns,
`source` and `target`, in a data file in a folder of its own on the RAM disk, with a manifest that exists only in
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from conroi import operations
from conroi.commit.snapshot import Snapshot
from conroi.data.arrow_types import chunked, table_of
from conroi.data.pylance import open_dataset, pylance_errors
from conroi.data.writing import DataWriter
from conroi.environment import Environment
from conroi.format import lance_pb2 as pb
from conroi.format.naming import ManifestNaming
from conroi.format.schema import fields_from_schema
from conroi.operations import Overwrite, Step
from conroi.stores.memory import scratch_folder
from conroi.stores.objects import open_objects
from conroi.stores.versions import Located
from conroi.version import WRITER

_DATA_FORMAT = "2.2"


def evaluate(
    environment: Environment,
    expressions: Mapping[str, str],
    *,
    source: pa.Table | None,
    target: pa.Table | None,
    table: str,
) -> pa.Table:
    """The expressions, by name, for each pair of rows (or for rows of one side alone), in their order."""
    rows = _paired(source, target)
    with scratch_folder() as folder, pylance_errors(table):
        objects = open_objects(folder)
        fields = _unmarked(fields_from_schema(rows.schema))
        written = DataWriter(objects, environment, fields, _DATA_FORMAT).write(rows.to_reader())
        transaction = operations.transaction(
            operation := Overwrite(fragments=tuple(written.fragments), schema=tuple(fields), data_format=_DATA_FORMAT),
            read_version=0,
            uuid=str(environment.new_uuid()),
        )
        manifest = operations.build(
            None, transaction, operation, Step(version=1), timestamp_ns=0, writer_version=WRITER
        )
        located = Located(1, ManifestNaming.V2.path(1), ManifestNaming.V2)
        dataset = open_dataset(objects, Snapshot(manifest, located, is_final=False))
        # pylance refuses a scan for nothing but constants, so the address of the rows is asked for too
        scanner = dataset.scanner(columns=dict(expressions), scan_in_order=True, with_row_address=True)
        return scanner.to_table().drop_columns(["_rowaddr"])


def _paired(source: pa.Table | None, target: pa.Table | None) -> pa.Table:
    sides = {"source": source, "target": target}
    columns = {name: _struct(side) for name, side in sides.items() if side is not None and side.num_columns}
    rows = next(side.num_rows for side in sides.values() if side is not None)
    return table_of(columns) if columns else pa.table({"source": pa.nulls(rows, pa.int8())})


def _struct(side: pa.Table) -> pa.ChunkedArray[Any]:
    # What a table notes on a column stays there; and pylance looks for dictionaries in a manifest on disk.
    fields = [pa.field(field.name, _plain(field.type)) for field in side.schema]
    plain = side.cast(pa.schema(fields))
    batches = plain.combine_chunks().to_batches()
    if not batches:
        return chunked([], pa.struct(fields))
    return pa.chunked_array([pa.StructArray.from_arrays(batch.columns, fields=fields) for batch in batches])


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if isinstance(type_, pa.DictionaryType) else type_


def _unmarked(fields: list[pb.Field]) -> list[pb.Field]:
    """Here no column is a key, also none inside a struct."""
    for field in fields:
        field.ClearField("unenforced_primary_key")
        field.ClearField("unenforced_primary_key_position")
        field.ClearField("metadata")
    return fields
