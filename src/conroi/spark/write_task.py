"""Spark DataFrames as incoming rows: executors write the files, and only their metadata returns to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from conroi.commit.gc_safety import confirm_written
from conroi.data.incoming import KeysSeen, RemoteRows, WrittenRemoteRows, fit
from conroi.data.writer import DataWriter, Progress
from conroi.environment import SYSTEM, Moment, moment
from conroi.errors import InvalidInputError, RetryableConflict
from conroi.format import lance_pb2 as pb
from conroi.snapshots.snapshot import TableStorage
from conroi.spark.packets import PART_SCHEMA, Part, as_batch, collected, joined, packed, parts_of, unpacked
from conroi.spark.pins import Place
from conroi.spark.types import table_schema
from conroi.versions.folder import FolderVersions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


MOST_ROWS_HERE = 2_000_000
"""Maximum number of rows of a DataFrame that are collected into this process, where a verb needs them here."""


def from_spark(data: object) -> SparkRows | None:
    """The rows of a DataFrame, classic or Connect; None if the data is something else of Spark's."""
    is_frame = type(data).__name__ == "DataFrame" and type(data).__module__.startswith("pyspark.sql.")
    return SparkRows(cast("DataFrame", data)) if is_frame else None


class WrittenRows(RemoteRows):
    """Rows that tasks have written already, for a verb that takes them as they are."""

    def __init__(self, task: WriteTask, schema: pa.Schema, parts: Sequence[Part], begun_at: Moment) -> None:
        self._task = task
        self._parts = parts
        self._schema = schema
        self._begun_at = begun_at
        """Before the first task wrote, by the clocks of this machine."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that the DataFrame had."""
        return self._schema

    def write(
        self, writer: DataWriter, schema: pa.Schema, key: Sequence[str], progress: Progress | None = None
    ) -> WrittenRemoteRows:
        """What was written, if it was written for a table as it is now."""
        if WriteTask.of(writer, schema, key) != self._task:
            raise RetryableConflict(
                "The table's columns or its key changed while Spark wrote the rows.",
                table=writer.objects.root,
                hint="Write the DataFrame again; table.append(df) does that by itself.",
            )
        written = joined(self._parts)
        versions = FolderVersions(writer.objects, None, writer.environment)
        confirm_written(
            TableStorage(writer.objects, versions, writer.environment), written.fragments, since=self._begun_at
        )
        if progress is not None:
            progress(sum(part.rows for part in self._parts))
        keys = [keys for part in self._parts for keys in part.key_parts(writer.objects, key)] if key else []
        return WrittenRemoteRows(written, keys)

    def to_reader(self) -> pa.RecordBatchReader:
        """They are in files by now."""
        raise InvalidInputError("These rows are written already.", hint="Read the table instead.")


class SparkRows(RemoteRows):
    """A DataFrame for one verb; its job runs once, however often the verb is executed again on a newer version."""

    def __init__(self, frame: DataFrame) -> None:
        if frame.isStreaming:
            raise InvalidInputError(
                "A streaming DataFrame has no end, so it cannot be written at once.",
                hint='Use df.writeStream.format("conroi"), or foreachBatch(conroi.spark.each_batch(lake, work)).',
            )
        self._frame = frame
        self._written: tuple[WriteTask, WrittenRemoteRows] | None = None

    @property
    def frame(self) -> DataFrame:
        """The DataFrame itself."""
        return self._frame

    @cached_property
    def schema(self) -> pa.Schema:  # pyright: ignore[reportIncompatibleMethodOverride] (worked out once)
        """The columns, as Arrow calls them."""
        return table_schema(self._frame.schema)

    def write(
        self, writer: DataWriter, schema: pa.Schema, key: Sequence[str], progress: Progress | None = None
    ) -> WrittenRemoteRows:
        """Run the job; for the same request again, the files that it wrote then."""
        task = WriteTask.of(writer, schema, key)
        if self._written is None or self._written[0] != task:
            self._written = task, self._run(task, writer)
        written = self._written[1]
        if progress is not None:
            progress(written.files.rows)
        return written

    def _run(self, task: WriteTask, writer: DataWriter) -> WrittenRemoteRows:
        parts = self._parts(task)
        keys = [keys for part in parts for keys in part.key_parts(writer.objects, task.key)] if task.key else []
        return WrittenRemoteRows(joined(parts), keys)

    def _parts(self, task: WriteTask) -> list[Part]:
        """Write all rows: by the connector, if the session has it."""
        from conroi.spark.connector import driver  # tasks load this module, and do not need it

        if driver.has_connector(self._frame.sparkSession):
            return driver.written_parts(self._frame, task)
        # One action and no other: every further one would write all files again.
        return parts_of(self._frame.mapInArrow(task, PART_SCHEMA).toArrow())

    def in_pieces(self, writer: DataWriter, schema: pa.Schema, key: Sequence[str], rows: int) -> list[WrittenRows]:
        """Run the job, with files of at most so many rows; a piece is some files after each other."""
        begun_at = moment(writer.environment)
        task = WriteTask.of(replace(writer, rows_per_file=min(rows, writer.rows_per_file)), schema, key)
        pieces: list[list[Part]] = []
        for part in self._parts(task):
            for file in part.by_file():
                if not pieces or sum(each.rows for each in pieces[-1]) + file.rows > rows:
                    pieces.append([])
                pieces[-1].append(file)
        return [WrittenRows(WriteTask.of(writer, schema, key), self.schema, piece, begun_at) for piece in pieces]

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, in this process."""
        rows = self._frame.limit(MOST_ROWS_HERE + 1).toArrow()
        if rows.num_rows > MOST_ROWS_HERE:
            raise InvalidInputError(
                f"The DataFrame has more than {MOST_ROWS_HERE:,} rows, too many for what is done in this process.",
                hint="append(), insert(), overwrite() and merge() take any number; an export does if it is given "
                "lake=…. Or filter the DataFrame first.",
            )
        return rows.cast(self.schema).to_reader()


GATHERED_SCHEMA = "part int, rows long, bytes long, packet binary"
_ARROW = pa.schema({"part": pa.int32(), "rows": pa.int64(), "bytes": pa.int64(), "packet": pa.binary()})
MOST_PART_BYTES = 256 * 1024 * 1024
"""Spark hands packets to Python in batches of thousands, so a part of the DataFrame must not be too big."""


def gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows in, packets out."""
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    for rows in collected(batches):
        row = {"part": part, "rows": rows.num_rows, "bytes": rows.nbytes, "packet": packed(rows)}
        yield as_batch([row], _ARROW)


class Gathered:
    """The rows of a DataFrame in packets; to be released when they are not needed any more."""

    @staticmethod
    def of(frame: DataFrame) -> Gathered:
        """The rows, which the DataFrame computes once."""
        from conroi.spark.connector import driver  # tasks load this module, and do not need it

        return CachedRows(frame) if driver.has_connector(frame.sparkSession) else Gathered(frame)

    def __init__(self, frame: DataFrame) -> None:
        self.schema: pa.Schema = table_schema(frame.schema)
        self.session: SparkSession = frame.sparkSession
        self.packets: DataFrame = frame.mapInArrow(gather, GATHERED_SCHEMA).persist()

    @cached_property
    def _sizes(self) -> pa.Table:
        return self.packets.select("part", "rows", "bytes").toArrow()

    @property
    def rows(self) -> int:
        """How many there are; asking for it does the work."""
        return pc.sum(self._sizes["rows"]).as_py() or 0

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return pc.sum(self._sizes["bytes"]).as_py() or 0

    def shared_out(self) -> DataFrame:
        """The packets for tasks to work on, in parts that are not too big."""
        parts = self._sizes.group_by("part").aggregate([("bytes", "sum")])["bytes_sum"].to_pylist()
        if max((size or 0 for size in parts), default=0) <= MOST_PART_BYTES:
            return self.packets.select("packet")
        return self.packets.select("packet").repartition(1 + self.bytes // (MOST_PART_BYTES // 2))

    def to_table(self) -> pa.Table:
        """All rows in this process."""
        packets = self.packets.select("packet").toArrow()["packet"]
        parts = [unpacked(packet.as_py()).cast(self.schema) for packet in packets]
        return pa.concat_tables([self.schema.empty_table(), *parts])

    def release(self) -> None:
        """Free the memory on the executors."""
        self.packets.unpersist()


class CachedRows(Gathered):
    """The same in a session with the connector: Spark keeps the rows, and packets are made only to be shared out."""

    def __init__(self, frame: DataFrame) -> None:
        self._cached = frame.select("*").persist()  # a plan of our own: the user may have cached his
        super().__init__(self._cached)

    @cached_property
    def rows(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] (asked once)
        """How many there are; asking for it does the work."""
        return self._cached.count()

    @cached_property
    def bytes(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] (asked once)
        """How much memory they take, as Spark says of what it keeps."""
        plan = cast("Any", self._cached)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 (PySpark has no name for it)
        return 0 if self.rows == 0 else int(plan.stats().sizeInBytes())

    def shared_out(self) -> DataFrame:
        """The packets for tasks to work on; they are kept instead of the rows."""
        shared = super().shared_out()
        self._cached.unpersist()
        return shared

    def to_table(self) -> pa.Table:
        """All rows in this process."""
        return self._cached.toArrow().cast(self.schema)

    def release(self) -> None:
        """Free the memory on the executors."""
        super().release()
        self._cached.unpersist()
