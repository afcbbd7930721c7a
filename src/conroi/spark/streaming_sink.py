"""Streaming sink `df.writeStream.format("conroi")`: exactly-once, one commit for each micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from conroi.environment import Moment, moment
from conroi.errors import AlreadyExistsError, NotFoundError, UnsupportedError
from conroi.lake import Lake
from conroi.spark.frames import WrittenRows
from conroi.spark.options import MESSAGE, Options
from conroi.spark.parts import Part
from conroi.spark.saving import planned_task, refuse_reading_options
from conroi.spark.streaming_batches import QUERY_ID, run_once
from conroi.spark.tasks import WriteTask
from conroi.spark.types import table_schema
from conroi.table import Table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass
class BatchMessage(WriterCommitMessage):
    """What one task wrote, how, and for which query: only tasks are told."""

    part: Part | None
    task: WriteTask
    query: str | None
    begun_at: Moment


class ConroiStreamWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch. Spark makes it anew for the tasks of each batch, and again to commit them."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        refuse_reading_options(options, overwrite=False)
        self._options = options
        self._replaces_all = overwrite  # the output mode "complete"
        self._schema = table_schema(schema)
        table = head_or_new(options, self._schema)
        self._begun_at = moment(table.pinned.files.environment)
        self._task = planned_task(table, self._schema, replaces_all=overwrite)

    # ------------------------------------------------------------------------ what Spark calls

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: write its rows."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        part = self._task.write(iterator)
        task = replace(self._task)  # a copy, without the writer that it has open
        return BatchMessage(part, task, query, self._begun_at)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """When all tasks are through, in one process of Spark's; called again for a batch that is repeated."""
        said = [message for message in messages if isinstance(message, BatchMessage)]
        parts = [message.part for message in said if message.part is not None]
        for part in parts:
            if part.error is not None:
                raise part.error
        if not said or (not parts and not self._replaces_all):
            return
        rows = WrittenRows(said[0].task, self._schema, parts, said[0].begun_at)
        target, name = place_of(self._options)

        def work(tx: Any) -> None:
            table = tx if name is None else tx[name]
            if self._replaces_all:
                table.overwrite(cast("Any", rows), if_moved="win")
            else:
                table.append(cast("Any", rows))

        run_once(target, _query(said), batchId, work, message=self._options.get(MESSAGE))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is deleted: a commit whose response was lost may have succeeded. Unreferenced files are collected
        later.
        """


def _query(said: Sequence[BatchMessage]) -> str:
    query = said[0].query
    if query is None:
        raise UnsupportedError(
            "Spark did not tell its tasks which query they work for, so a repeated batch could not be told from a new "
            "one.",
            hint="Use foreachBatch with conroi.spark.each_batch(lake, work, query=…), with a name that you give.",
        )
    return query


def place_of(options: Options) -> tuple[Lake | Table, str | None]:
    """What commits: the lake and the table's name in it, or the table itself if it is in none."""
    return options.in_lake() or (options.head(), None)


def head_or_new(options: Options, schema: pa.Schema) -> Table:
    """The table; created now, without rows, if it does not exist."""
    from conroi.opening import create_table

    try:
        return options.head()
    except NotFoundError:
        pass
    found, key = options.in_lake(), options.key
    try:
        if found is not None:
            return found[0].create_table(found[1], schema, key=key)
        store, storage = options.store, options.storage_options
        return create_table(options.path, schema, key=key, store=store, storage_options=storage, put=options.put)
    except AlreadyExistsError:  # created concurrently
        return options.head()
