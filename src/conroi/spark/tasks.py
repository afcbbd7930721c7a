"""Executor side of a write: writes the rows of a partition and returns file metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import pyarrow as pa

from conroi.data.casts import fit
from conroi.data.writer import DataWriter
from conroi.environment import SYSTEM
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.spark.pins import Place
from conroi.spark.results import Part
from conroi.verbs.key_check import KeysSeen

KEYS_BYTES = 1024 * 1024
"""Maximum size of the keys that a task returns, in bytes; more are read from the files that it wrote."""


@dataclass(frozen=True)
class WriteTask:
    """How to write files of one table, for every task the same."""

    place: Place
    fields: tuple[bytes, ...]
    schema: bytes
    data_format: str
    rows_per_file: int
    key: tuple[str, ...]
    key_bytes: int = KEYS_BYTES

    @staticmethod
    def of(writer: DataWriter, schema: pa.Schema, key: Sequence[str]) -> WriteTask:
        """To write as this writer would, rows that fit the schema."""
        return WriteTask(
            place=Place.of(writer.objects),
            fields=tuple(field.SerializeToString(deterministic=True) for field in writer.fields),
            schema=schema.serialize().to_pybytes(),
            data_format=writer.data_format,
            rows_per_file=writer.rows_per_file,
            key=tuple(key),
            key_bytes=KEYS_BYTES,
        )

    @cached_property
    def _writer(self) -> DataWriter:
        fields = [pb.Field.FromString(field) for field in self.fields]
        return DataWriter(self.place.objects(), SYSTEM, fields, self.data_format, self.rows_per_file)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Part | None:
        """Write a partition; None if it has no rows. What is wrong with the rows comes back, all else is raised.

        Rows that do not fit will not fit when the task is tried again, and their error is for the user as it is.
        """
        source = iter(batches)
        first = next((batch for batch in source if batch.num_rows), None)
        if first is None:
            return None
        reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], source))
        seen = KeysSeen(self.key)
        try:
            rows = seen.watch(fit(reader, pa.ipc.read_schema(pa.py_buffer(self.schema)), table=self.place.uri))
            written = self._writer.write(rows)
        except InvalidInputError as error:
            return Part(error=error)
        return Part.of(written, seen.keys(), self.key_bytes)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: rows in, one row out that says what was written."""
        part = self.write(batches)
        if part is not None:
            yield part.to_batch()
