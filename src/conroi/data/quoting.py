"""Identifier quoting: column names in expressions."""

from __future__ import annotations


def quoted(column: str) -> str:
    """A column name (or dotted path) as it stands in an expression, whatever characters it has.

    >>> quoted("order id")
    '`order id`'
    """
    return ".".join(f"`{part}`" for part in column.split("."))
