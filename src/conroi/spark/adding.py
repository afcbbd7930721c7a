"""Column addition as a Spark job: an SQL expression, or a function over batches, runs on the executors."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from conroi.data.columns import BatchFunction, Columns, column_batches, write_column_file
from conroi.data.pinned import Pinned
from conroi.data.writing import Progress
from conroi.format import lance_pb2 as pb
from conroi.spark.answers import Answer
from conroi.spark.fragment_jobs import FragmentJobs, groups_of
from conroi.spark.progress import shown, watched
from conroi.verbs.columns import with_new_fields

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Computing:
    """How the new columns are computed."""

    columns: BatchFunction | tuple[tuple[str, str], ...]
    read_columns: tuple[str, ...] | None

    @staticmethod
    def of(columns: Columns, read_columns: Sequence[str] | None) -> Computing:
        made_of = tuple(columns.items()) if isinstance(columns, Mapping) else columns
        return Computing(made_of, None if read_columns is None else tuple(read_columns))

    def batches(self, pinned: Pinned, fragment_id: int) -> pa.RecordBatchReader:
        """The new columns of one fragment."""
        columns = self.columns if callable(self.columns) else dict(self.columns)
        return column_batches(pinned, fragment_id, columns, self.read_columns)


@dataclass(frozen=True)
class SchemaTask:
    """Says what types the new columns have, from the first rows of a fragment."""

    computing: Computing

    @property
    def asked(self) -> Hashable:
        return self

    def do(self, pinned: Pinned, ids: Sequence[int]) -> Answer:
        schema = self.computing.batches(pinned, ids[0]).schema
        return Answer(more=schema.serialize().to_pybytes())


@dataclass(frozen=True)
class AddTask:
    """Writes a file with the new columns for each of its fragments."""

    computing: Computing
    schema: bytes
    fields: tuple[bytes, ...]

    @property
    def asked(self) -> Hashable:
        return self

    def do(self, pinned: Pinned, ids: Sequence[int]) -> Answer:
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        writer = pinned.writer([pb.Field.FromString(field) for field in self.fields])
        written: list[pb.DataFragment] = []
        for number in ids:
            rows = pinned.manifest.fragments_by_id[number].physical_rows
            file = write_column_file(pinned, writer, self.computing.batches(pinned, number), schema, rows)
            written.append(pb.DataFragment(id=number, files=[file], physical_rows=rows))
        return Answer(fragments=written)


class AddOnExecutors:
    """As `ComputeColumns` of conroi.verbs.columns asks for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._jobs = FragmentJobs(spark)

    def __call__(
        self, pinned: Pinned, columns: Columns, read_columns: Sequence[str] | None, progress: Progress | None
    ) -> tuple[Sequence[pb.Field], Sequence[pb.DataFile]]:
        computing = Computing.of(columns, read_columns)
        fragments = pinned.manifest.fragments
        # The types must be known, and the same, before any task writes: the first fragment says them.
        found = self._jobs.run(pinned, SchemaTask(computing), [[fragments[0].id]])[0].more
        schema = pa.ipc.read_schema(pa.py_buffer(found or b""))
        fields = with_new_fields(pinned, list(schema))
        encoded = tuple(field.SerializeToString(deterministic=True) for field in fields)
        task = AddTask(computing, schema.serialize().to_pybytes(), encoded)
        rows = sum(fragment.physical_rows for fragment in fragments)
        with watched(progress, f"add columns to {shown(pinned)}", rows) as told:
            answers = self._jobs.run(pinned, task, groups_of(pinned, pinned.schema), told)
        files = {fragment.id: fragment.files[0] for answer in answers for fragment in answer.fragments}
        return fields, [files[fragment.id] for fragment in fragments]
