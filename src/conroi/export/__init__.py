"""Exports: rows of a lake, or of a query, to external databases."""

from conroi.export.clickhouse import clickhouse
from conroi.export.exporting import Export

__all__ = ["Export", "clickhouse"]
