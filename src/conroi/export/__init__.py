"""Exports: rows of a lake, or of a query, to databases that are not ours."""

from conroi.export.clickhouse import clickhouse
from conroi.export.exporting import Export

__all__ = ["Export", "clickhouse"]
