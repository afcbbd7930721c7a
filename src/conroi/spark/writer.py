"""Batch writer of `format("conroi")`: Spark decides when to plan, commit and abort."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from conroi.catalog.folders import mark_created
from conroi.catalog.tables import table_files
from conroi.data.casts import checked_columns
from conroi.data.writer import DataWriter
from conroi.environment import LONG_AGO, moment
from conroi.errors import NotFoundError
from conroi.format.fields import key_columns
from conroi.format.on_disk import SPARK_JOB_PROPERTY
from conroi.history import history
from conroi.snapshots.snapshot import TableStorage
from conroi.spark.options import (
    AS_OF,
    FILTER,
    IF_MOVED,
    MESSAGE,
    OF_STREAMS,
    TAG,
    VERSION,
    WHERE,
    Options,
)
from conroi.spark.packets import Part
from conroi.spark.types import table_schema
from conroi.spark.write_task import WriteTask, WrittenRows
from conroi.verbs.create import DEFAULT_DATA_FORMAT, checked_fields, create, with_key
from conroi.verbs.overwrite import next_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from conroi.catalog.rows import Row
    from conroi.commit.change import Change
    from conroi.lake import Lake
    from conroi.table import Table


@dataclass
class Message(WriterCommitMessage):
    """What one task wrote."""

    part: Part | None


class ConroiWriter(DataSourceArrowWriter):
    """Writes one DataFrame: made once where Spark plans, then copied to every task and to the commit."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._job = str(uuid4())
        self._schema = table_schema(schema)
        refuse_reading_options(options, overwrite=overwrite)
        self._row: Row | None = None
        """Of a table that a lake is to get: in its folder the tasks write."""
        self._begun_at = LONG_AGO
        self._base, self._task = self._planned()

    def _planned(self) -> tuple[int, WriteTask]:
        """The version that is there now (0: none), and how the tasks write."""
        found = self._options.in_lake()
        if found is not None and found[1] not in found[0]:
            return 0, self._task_in_lake(*found)
        try:
            table = self._options.head() if found is None else found[0][found[1]]
        except NotFoundError:
            if found is not None:
                raise  # the lake lists it, and has no version of it
            return 0, self._task_of_new_table()
        self._begun_at = moment(table.pinned.files.environment)
        replaces_all = self._overwrite and self._options.get(WHERE) is None
        return table.version, planned_task(table, self._schema, replaces_all=replaces_all)

    def _task_in_lake(self, lake: Lake, name: str) -> WriteTask:
        """The folder is chosen and marked now. If the job fails, a collection of the lake removes it."""
        tx = lake.begin()
        row = tx.new_row(name)
        tx.rollback()
        files = table_files(lake.catalog, row)
        task = self._new_task(files, name)
        mark_created(lake.catalog, row)
        self._row = row
        return task

    def _task_of_new_table(self) -> WriteTask:
        from conroi.table_location import table_storage

        files = table_storage(
            self._options.path,
            store=self._options.store,
            storage_options=self._options.storage_options,
            put=self._options.put,
        )
        return self._new_task(files, files.root)

    def _new_task(self, files: TableStorage, table: str) -> WriteTask:
        self._begun_at = moment(files.environment)
        schema = with_key(self._schema, self._options.key, table=table)
        fields = checked_fields(schema, table=table, data_format=DEFAULT_DATA_FORMAT)
        writer = DataWriter(files.objects, files.environment, fields, DEFAULT_DATA_FORMAT)
        return WriteTask.of(writer, schema, key_columns(fields))

    # ------------------------------------------------------------------------ what Spark calls

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: write its rows."""
        return Message(self._task.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """After all tasks, in one process of Spark's: commit once, even if Spark calls twice."""
        parts = [message.part for message in messages if isinstance(message, Message) and message.part is not None]
        for part in parts:
            if part.error is not None:
                raise part.error
        rows = WrittenRows(self._task, self._schema, parts, self._begun_at)
        properties = {SPARK_JOB_PROPERTY: self._job}
        message = self._options.get(MESSAGE)
        if self._base == 0:
            self._create(rows, message)
            return
        table = self._options.head()
        if has_landed(table, self._job, self._base):
            return
        how: Any = {"properties": properties} if message is None else {"properties": properties, "message": message}
        if self._overwrite:
            if_moved: Any = self._options.get(IF_MOVED) or "fail"
            if if_moved == "fail":
                how["expect"] = self._base
            table.overwrite(cast("Any", rows), self._options.get(WHERE), if_moved=if_moved, **how)
        else:
            table.append(cast("Any", rows), **how)

    def _create(self, rows: WrittenRows, message: str | None) -> None:
        from conroi.opening import create_table

        if self._row is not None:
            self._create_in_lake(self._row, rows, message)
            return
        create_table(
            self._options.path,
            cast("Any", rows),
            key=self._options.key,
            message=message,
            store=self._options.store,
            storage_options=self._options.storage_options,
            put=self._options.put,
        )

    def _create_in_lake(self, row: Row, rows: WrittenRows, message: str | None) -> None:
        found = self._options.in_lake()
        assert found is not None, "it was planned in a lake"
        lake, name = found
        key, properties = f"spark/{self._job}", {SPARK_JOB_PROPERTY: self._job}
        with lake.begin(message or f"create {name}", idempotency_key=key, properties=properties) as tx:
            if not tx.is_done:
                tx.begin_table(row, partial(self._begun, rows))

    def _begun(self, rows: WrittenRows, files: TableStorage) -> Change:
        return create(files, rows, key=self._options.key)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is deleted: a commit whose response was lost may have succeeded. Unreferenced files are collected
        later.
        """


def planned_task(table: Table, rows: pa.Schema, *, replaces_all: bool) -> WriteTask:
    """How tasks write such rows for this table; with `replaces_all` they may bring other columns."""
    pinned = table.pinned
    schema, fields = pinned.schema, list(pinned.manifest.fields)
    if replaces_all:
        schema, fields = next_schema(pinned, rows)
    checked_columns(rows, schema, table=table.uri)
    return WriteTask.of(pinned.writer(fields), schema, key_columns(fields))


def has_landed(table: Table, job: str, since: int) -> bool:
    """Whether this job's commit is among the versions after `since`."""
    for commit in history(table.pinned.files, newest=table.version):  # read as we go
        if commit.version <= since:
            return False
        if commit.properties.get(SPARK_JOB_PROPERTY) == job:
            return True
    return False


def refuse_reading_options(options: Options, *, overwrite: bool) -> None:
    """InvalidInputError for options that have no meaning for this write."""
    names = {VERSION, TAG, AS_OF, FILTER, *OF_STREAMS} | (set() if overwrite else {WHERE, IF_MOVED})
    options.refuse(
        names,
        "this write",
        'mode("append") adds rows to the newest version; "where" belongs to mode("overwrite").',
    )
