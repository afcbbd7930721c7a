"""Merge with Spark: a DataFrame as the source, or a source in this process and a table that executors search."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from conroi.data.pinned import Pinned
from conroi.merging.choosing import MergePlan, SourceSize, Way, choose
from conroi.merging.outcome import try_out
from conroi.merging.request import Request
from conroi.merging.verb import Merging
from conroi.spark.fragment_jobs import FragmentJobs
from conroi.spark.frames import SparkRows
from conroi.spark.gathering import Gathered
from conroi.spark.merging_join import Joining
from conroi.spark.merging_probe import Probing
from conroi.verbs.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkMerging:
    """The verb; inside `with`, since executors keep the source until it is over."""

    def __init__(
        self, source: SparkRows | pa.Table, request: Request, way: Way | None, spark: SparkSession | None
    ) -> None:
        self._source = Gathered(source.frame) if isinstance(source, SparkRows) else source
        self._request = request
        self._way: Way | None = way
        self._spark = self._source.session if isinstance(self._source, Gathered) else spark
        self._chosen: Merging | Joining | None = None

    def __enter__(self) -> SparkMerging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._source, Gathered):
            self._source.release()

    def plan(self, pinned: Pinned) -> MergePlan:
        """How it will be done."""
        try_out(pinned, self._request, self._source.schema)
        is_frame = isinstance(self._source, Gathered)
        size = (
            SourceSize(self._source.rows, self._source.bytes)
            if isinstance(self._source, Gathered)
            else (SourceSize(self._source.num_rows, self._source.nbytes))
        )
        has_spark = self._spark is not None
        return choose(self._request, pinned, size, has_spark=has_spark, is_frame=is_frame, way=self._way)

    def __call__(self, pinned: Pinned) -> Plan | None:
        """The change; None if no clause finds a row."""
        if self._chosen is None:
            self._chosen = self._as(self.plan(pinned).way)
        return self._chosen(pinned)

    def _as(self, way: Way) -> Merging | Joining:
        if way == "join":
            assert isinstance(self._source, Gathered), "only DataFrames are joined"
            return Joining(self._source, self._request)
        rows = self._source.to_table() if isinstance(self._source, Gathered) else self._source
        if way == "process":
            return Merging(rows, self._request)
        assert self._spark is not None, "checked when the way was chosen"
        return Merging(rows, self._request, Probing(FragmentJobs(self._spark)))
