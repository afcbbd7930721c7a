"""Predicates: filter strings of pylance, or typed pyarrow expressions."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow.compute as pc

from conroi.data.sql import enclosed
from conroi.errors import InvalidInputError

Predicate: TypeAlias = str | pc.Expression


def checked_predicate(where: object, *, table: str) -> Predicate:
    """The predicate, if it is one; a blank string is refused, since it would mean every row."""
    if isinstance(where, pc.Expression):
        return where
    if isinstance(where, str) and where.strip():
        return enclosed(where, table)
    raise InvalidInputError(
        f"{where!r} is not a condition.",
        table=table,
        hint="Write one as a string, such as \"amount < 0 AND region = 'EU'\", or as a pyarrow expression; "
        'for every row write "true".',
    )


def predicate_text(where: Predicate) -> str:
    """The predicate as the transaction records it."""
    return where if isinstance(where, str) else str(where)
