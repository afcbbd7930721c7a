"""Values that a user gives for columns: SQL expressions, or plain values."""

from __future__ import annotations

from conroi.data.sql import enclosed
from conroi.errors import InvalidInputError


def expression(value: object, table: str) -> str:
    """A string is an SQL expression; a number, a bool or None stands for itself."""
    if isinstance(value, str) and value.strip():
        return enclosed(value, table)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise InvalidInputError(
        f"{value!r} is not an expression.",
        table=table,
        hint="Write an SQL expression as a string; a text value needs quotes inside it: \"'new'\".",
    )
