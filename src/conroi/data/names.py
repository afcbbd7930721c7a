"""Validation of column names."""

from __future__ import annotations

from conroi.errors import InvalidInputError

RESERVED = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
"""Columns that every Lance table has without showing them."""


def check_column_name(name: str, *, table: str) -> None:
    """Refuse a name that a column cannot have, or that no expression could ask for."""
    if not name or name in RESERVED or not {".", "`", "\0"}.isdisjoint(name):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a column.",
            table=table,
            hint=f"Choose one without dots and backticks, and none of {', '.join(sorted(RESERVED))}.",
        )
