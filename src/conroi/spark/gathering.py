"""DataFrame cache: computed once and kept by the executors, however often it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from conroi.spark.blobs import as_batch, collected, packed, unpacked
from conroi.spark.types import table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "part int, rows long, bytes long, packet binary"
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

    def __init__(self, frame: DataFrame) -> None:
        self.schema: pa.Schema = table_schema(frame.schema)
        self.session: SparkSession = frame.sparkSession
        self.packets: DataFrame = frame.mapInArrow(gather, SCHEMA).persist()

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
