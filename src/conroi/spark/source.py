"""`format("conroi")`: the data source, its registration in a session, and tables as DataFrames."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from conroi.data.sql import expression
from conroi.errors import InvalidInputError, NotFoundError, UnsupportedError
from conroi.spark.options import CHECKPOINT, COLUMNS, FILTER, OF_STREAMS, PATH, PIN, Options, redact
from conroi.spark.pins import PinnedVersion
from conroi.spark.scan import Scan, Wanted, checked_filter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from conroi.data.table_version import TableVersion


class ConroiDataSource(DataSource):
    """One table, at the version that is the newest (or the asked for) when the DataFrame is made.

    With `follow`, at the version that is the newest when a query runs.
    """

    @classmethod
    def name(cls) -> str:
        return "conroi"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = Options(options)
        self._scan = self._chosen_now()

    def _chosen_now(self) -> Scan | None:
        """The version is chosen here and travels with this object, so that all that is read of it is of one version."""
        has_place = self._options.get(PIN) is not None or self._options.get(PATH) is not None
        is_sink = self._options.get(CHECKPOINT) is not None  # it is made for each batch, and reads nothing
        if not has_place or is_sink or self._options.follows:
            return None
        try:
            return self._options.scan()
        except NotFoundError:
            return None  # it may be about to be made

    @property
    def _chosen(self) -> Scan:
        return self._options.scan() if self._scan is None else self._scan

    def schema(self) -> StructType:
        return self._chosen.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        from conroi.spark.scan import ConroiReader, FollowingReader

        self._options.refuse(OF_STREAMS, "a read that is no stream", "They are for spark.readStream.")
        if self._options.follows:
            return FollowingReader(self._options.scan, schema)
        return ConroiReader(self._chosen, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from conroi.spark.writer import ConroiWriter

        return ConroiWriter(self._options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's names)
        try:
            from conroi.spark.streaming_source import ConroiStreamReader
        except ImportError as error:  # what limits the rate of a stream came with 4.2
            raise UnsupportedError(
                f"This PySpark cannot stream from conroi: {error}.", hint="It needs PySpark 4.2 or newer."
            ) from error
        return ConroiStreamReader(self._options, self._chosen, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from conroi.spark.streaming_sink import ConroiStreamWriter

        return ConroiStreamWriter(self._options, schema, overwrite=overwrite)


_registered: WeakSet[SparkSession] = WeakSet()

REFUSED = "DATA_SOURCE_ALREADY_EXISTS"
"""Older Sparks refuse to replace a source that they found."""


def register(spark: SparkSession) -> None:
    """Register `format("conroi")` in this session, classic or Connect.

    Where conroi is installed for the Python of Spark, Spark finds it by itself; this also adds to what the session
    redacts in plans and logs.
    """
    if spark in _registered:
        return
    silence_pandas_warning()
    from pyspark.errors import AnalysisException

    redact(spark)
    try:
        spark.dataSource.register(ConroiDataSource)
    except AnalysisException as error:
        if error.getCondition() != REFUSED:
            raise
    _registered.add(spark)


def silence_pandas_warning() -> None:
    """PySpark 4.3 warns about pandas 3 whenever it hands over rows, also those that go as Arrow, as all of ours do."""
    text = r"PySpark does not yet fully support pandas >= 3\.0\.0"
    warnings.filterwarnings("ignore", message=text, category=FutureWarning)


def to_spark(pinned: TableVersion, spark: SparkSession, columns: Wanted | None, where: str | None) -> DataFrame:
    """The rows of this version; read by the connector, if the session has it."""
    from conroi.spark.connector import driver  # tasks load this module, and do not need it

    register(spark)
    if isinstance(columns, str):
        raise InvalidInputError("columns is a list of names.", table=pinned.root, hint=f"Write [{columns!r}].")
    wanted = None if columns is None else _checked(columns, pinned.root)
    plain = _plain_columns(pinned, wanted)
    if plain is not None and driver.has_connector(spark):
        return driver.version_frame(pinned, spark, plain, checked_filter(where, pinned.root))
    scan = Scan(PinnedVersion.of(pinned), wanted, checked_filter(where, pinned.root))
    reader = spark.read.format("conroi").schema(scan.schema()).option(PIN, scan.version.to_text())
    if wanted is not None:
        reader = reader.option(COLUMNS, json.dumps(wanted))
    if scan.filter is not None:
        reader = reader.option(FILTER, scan.filter)
    return reader.load()


def _plain_columns(pinned: TableVersion, wanted: Wanted | None) -> pa.Schema | None:
    """The columns that are wanted, if they are columns of the table as they are."""
    if wanted is None:
        return pinned.schema
    is_plain = not isinstance(wanted, Mapping) and len(set(wanted)) == len(wanted)
    if not is_plain or not set(wanted) <= set(pinned.schema.names):
        return None
    return pa.schema([pinned.schema.field(name) for name in wanted])


def _checked(columns: Wanted, table: str) -> list[str] | dict[str, str]:
    if not columns:
        raise InvalidInputError(
            "A DataFrame needs at least one column.", table=table, hint="table.count_rows() counts without any."
        )
    if isinstance(columns, Mapping):
        return {name: expression(value, table) for name, value in columns.items()}
    return list(columns)
