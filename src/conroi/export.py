"""Exports: rows of a lake, or of a query, to external databases."""

from conroi.clickhouse.export import Export, clickhouse

__all__ = ["Export", "clickhouse"]
