"""`spark.readStream.format("conroi")`: a table as a stream, in Spark's interface for sources written in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from conroi.spark.options import Options
from conroi.spark.scan import Scan, check_columns, read_rows
from conroi.spark.table_stream import NOTHING_YET, Limits, Slice, TableStream
from conroi.spark.types import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_NO_LIMIT = 1 << 62


class Slices(InputPartition):
    """What one task reads."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        super().__init__(None)
        self.slices = tuple(slices)


class ConroiStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one table. One copy lives as long as the query and plans its batches; others go to the tasks."""

    def __init__(self, options: Options, scan: Scan, schema: StructType) -> None:
        self._stream = TableStream(options.head, options)
        self._columns = scan.columns
        self._filter = scan.filter
        self._bytes_per_task = scan.bytes_per_task
        self._target = arrow_schema(schema)
        self._until: int | None = None

    # ------------------------------------------------------------------------ where the query is

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return NOTHING_YET

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark knows no limit of versions; what it hands back must only differ from "all", which overrules ours.
        limits = self._stream.limits
        return ReadAllAvailable() if limits == Limits() else ReadMaxRows(limits.rows or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._stream.newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self._stream.next(start, is_limited=not isinstance(limit, ReadAllAvailable), until=self._until)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.forget_before(end)

    # ------------------------------------------------------------------------ one batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        tasks = self._stream.tasks(start, end, self._target, self._filter, self._bytes_per_task)
        return [Slices(slices) for slices in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the rows of some fragments."""
        slices: Iterable[Slice] = partition.slices if isinstance(partition, Slices) else ()
        for each in slices:
            scan = Scan(each.version, self._columns, each.where)
            check_columns(scan, self._target)  # they may have come or gone since the query began
            yield from read_rows(scan, self._target, [each.fragment])
