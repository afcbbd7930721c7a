"""Version history of a lake."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from conroi.catalog.heads import Published
from conroi.catalog.names import shown


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """One version of a lake, as history() lists it."""

    version: int
    timestamp: datetime
    message: str | None
    author: str | None
    tables: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    """The tables that it changed, with their new versions; None for a dropped one."""
    properties: dict[str, str] = field(default_factory=dict[str, str])
    idempotency_key: str | None = None
    operation: str = ""
    """The operation on `__manifest`; anything but `Update` is by other software."""


def lake_commit(published: Published) -> LakeCommit:
    """What history() says of a publication."""
    changes = published.changes or {}
    tables = {
        shown(key): None if row is None or row.pin is None else row.pin.version
        for key, row in changes.items()
        if row is None or row.is_table
    }
    return LakeCommit(
        version=published.version,
        timestamp=published.timestamp,
        message=published.notes.message,
        author=published.notes.author,
        tables=tables,
        properties=dict(published.notes.properties),
        idempotency_key=published.notes.idempotency_key,
        operation=published.operation,
    )
