"""`format("conroi")`: what Spark asks a source that is written in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter

from conroi.errors import NotFoundError
from conroi.spark.options import PATH, PIN, Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from conroi.spark.scanning import Scan


class ConroiDataSource(DataSource):
    """One table, at the version that is the newest (or the asked for) when the DataFrame is made."""

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
        if not has_place or self._options.follows:
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
        from conroi.spark.scanning import ConroiReader

        return ConroiReader(self._chosen, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from conroi.spark.saving import ConroiWriter

        return ConroiWriter(self._options, schema, overwrite=overwrite)
