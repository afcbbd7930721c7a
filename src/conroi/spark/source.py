"""`format("conroi")`: the Python data source that Spark calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from conroi.errors import NotFoundError, UnsupportedError
from conroi.spark.options import CHECKPOINT, OF_STREAMS, PATH, PIN, Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from conroi.spark.scanning import Scan


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
        from conroi.spark.scanning import ConroiReader, FollowingReader

        self._options.refuse(OF_STREAMS, "a read that is no stream", "They are for spark.readStream.")
        if self._options.follows:
            return FollowingReader(self._options.scan, schema)
        return ConroiReader(self._chosen, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from conroi.spark.saving import ConroiWriter

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
