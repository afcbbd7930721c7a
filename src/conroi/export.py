"""Exports: rows of a lake, or of a query, to external databases."""

from conroi.clickhouse.export import clickhouse
from conroi.clickhouse.run import Export

__all__ = ["Export", "clickhouse"]
