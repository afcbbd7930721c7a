"""Table as a Spark DataFrame."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from conroi.data.expressions import expression
from conroi.data.pinned import Pinned
from conroi.errors import InvalidInputError
from conroi.spark.options import COLUMNS, FILTER, PIN
from conroi.spark.pins import PinnedVersion
from conroi.spark.registering import register
from conroi.spark.scanning import Scan, Wanted, checked_filter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def to_spark(pinned: Pinned, spark: SparkSession, columns: Wanted | None, where: str | None) -> DataFrame:
    """The rows of this version."""
    register(spark)
    if isinstance(columns, str):
        raise InvalidInputError("columns is a list of names.", table=pinned.root, hint=f"Write [{columns!r}].")
    wanted = None if columns is None else _checked(columns, pinned.root)
    scan = Scan(PinnedVersion.of(pinned), wanted, checked_filter(where, pinned.root))
    reader = spark.read.format("conroi").schema(scan.schema()).option(PIN, scan.version.to_text())
    if wanted is not None:
        reader = reader.option(COLUMNS, json.dumps(wanted))
    if scan.filter is not None:
        reader = reader.option(FILTER, scan.filter)
    return reader.load()


def _checked(columns: Wanted, table: str) -> list[str] | dict[str, str]:
    if not columns:
        raise InvalidInputError(
            "A DataFrame needs at least one column.", table=table, hint="table.count_rows() counts without any."
        )
    if isinstance(columns, Mapping):
        return {name: expression(value, table) for name, value in columns.items()}
    return list(columns)
