"""`df.writeStream.format("conroi")`: each micro-batch is one transaction, committed exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from conroi.environment import Moment, moment
from conroi.errors import AlreadyExistsError, InvalidInputError, NotFoundError, UnsupportedError
from conroi.format.on_disk import STREAM_BATCH_PROPERTY, STREAM_QUERY_PROPERTY
from conroi.lake import Lake
from conroi.retry_policy import DEFAULT_RETRIES, retry
from conroi.spark.options import MESSAGE, Options
from conroi.spark.packets import Part
from conroi.spark.types import table_schema
from conroi.spark.write_task import WriteTask, WrittenRows
from conroi.spark.writer import planned_task, refuse_reading_options
from conroi.table import Table
from conroi.table_transaction import TableTransaction
from conroi.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


_log = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
"""Where Spark keeps the id of the query for the work that it does for it."""

Tx = TypeVar("Tx", Transaction, TableTransaction)


def each_batch(
    target: Lake | Table | Callable[[], Lake | Table],
    work: Callable[[Any, DataFrame, int], object],
    *,
    query: str | None = None,
    message: str | None = None,
    retries: int = DEFAULT_RETRIES,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that calls `work(tx, batch, batch_id)` in one transaction for each batch.

    All that it does to any number of tables of the lake is committed at once, and once: a batch that Spark repeats
    after a crash is recognised by its idempotency key and skipped. After a conflict, `work` is called again in a new
    transaction. For a table without a lake, give the table; `tx` is then `table.begin()`.

    Only for Spark Connect: the function runs on the server, so give one that opens the lake there, and a name of your
    own for the query: `each_batch(lambda: conroi.connect(uri), work, query="orders")`.
    """
    return EachBatch(target, work, query, message, retries)


class EachBatch:
    """What `each_batch` gives to Spark."""

    def __init__(
        self,
        target: Lake | Table | Callable[[], Lake | Table],
        work: Callable[[Any, DataFrame, int], object],
        query: str | None,
        message: str | None,
        retries: int,
    ) -> None:
        if not isinstance(target, Lake | Table) and not callable(target):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(
                f"each_batch() needs a lake or a table, not a {type(target).__name__}.",
                hint="Give conroi.connect(uri), conroi.open_table(uri), or a function that calls one of them.",
            )
        self._target = target
        self._work = work
        self._query = query
        self._message = message
        self._retries = retries

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        target = self._target if isinstance(self._target, Lake | Table) else self._target()
        query = self._query or query_of(batch)

        def work(tx: Transaction | TableTransaction) -> object:
            return self._work(tx, batch, batch_id)

        run_once(target, query, batch_id, work, message=self._message, retries=self._retries)


def query_of(batch: DataFrame) -> str:
    """The id of the query that this is a batch of."""
    # Only a classic session has a context; a client of Connect is told nothing of the query that calls it.
    context = None if type(batch).__module__.startswith("pyspark.sql.connect") else batch.sparkSession.sparkContext
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if query is None:
        raise InvalidInputError(
            "Spark does not say here which query this batch is of, so a repeated batch could not be told from a new "
            "one. That is so with Spark Connect, and outside of foreachBatch.",
            hint='Give the query a name of your own that stays: each_batch(…, query="orders"). A new checkpoint needs '
            "a new name.",
        )
    return query


def run_once(
    target: Lake | Table,
    query: str,
    batch_id: int,
    work: Callable[[Any], object],
    *,
    message: str | None = None,
    retries: int = DEFAULT_RETRIES,
) -> None:
    """Run `work(tx)` in a transaction that is committed exactly once for this batch of this query."""

    def unless_done(tx: Transaction | TableTransaction) -> None:
        if not tx.is_done:
            work(tx)
            return
        _refuse_going_back(target, query, batch_id)
        _log.info("batch %d of query %s was committed before", batch_id, query)

    key = _key(query, batch_id)
    properties = {STREAM_QUERY_PROPERTY: query, STREAM_BATCH_PROPERTY: str(batch_id)}
    if isinstance(target, Lake):
        target.run(unless_done, retries=retries, message=message, idempotency_key=key, properties=properties)
        return

    @retry(retries=retries)
    def on_table() -> None:
        with target.begin(message, idempotency_key=key, properties=properties) as tx:
            unless_done(tx)

    on_table()


def _key(query: str, batch_id: int) -> str:
    return f"stream/{query}/{batch_id}"


def _refuse_going_back(target: Lake | Table, query: str, batch_id: int) -> None:
    """Spark repeats only the last batch. Earlier ones come from another checkpoint, and with other rows."""
    later = target.begin(idempotency_key=_key(query, batch_id + 1))
    later.rollback()
    if later.is_done:
        raise InvalidInputError(
            f"Batch {batch_id} of query {query!r} was committed before, and so was the batch after it. Spark repeats "
            "only the last one, so this is another batch: its checkpoint is an older copy, or a new one under the "
            "name of an old query.",
            table=target.uri,
            hint="Nothing was written. Restore the newest checkpoint; or begin a new one, with a new name if you "
            "give query=, and choose where its source starts.",
        )


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
