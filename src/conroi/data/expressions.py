"""Column expressions given by users: SQL expressions, or plain values."""

from __future__ import annotations

from conroi.data.literals import literal
from conroi.data.sql import enclosed
from conroi.errors import InvalidInputError


def expression(value: object, table: str) -> str:
    """A string is an SQL expression; any other value stands for itself, and so does conroi.literal("text")."""
    if not isinstance(value, str):
        return literal(value, table)
    if value.strip():
        return enclosed(value, table)
    raise InvalidInputError(
        f"{value!r} is not an expression.",
        table=table,
        hint='Write an SQL expression as a string. A text value is conroi.literal("new"), or "\'new\'" with quotes.',
    )
