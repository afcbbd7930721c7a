"""Commit records: what a publication stores in the properties of its `__manifest` transaction for incremental reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from conroi.catalog.rows import Row
from conroi.catalog.state import Changes
from conroi.commit.once import IDEMPOTENCY
from conroi.format.documents import decode_document
from conroi.format.transaction import AUTHOR_PROPERTY, COMMIT_MESSAGE_PROPERTY

RECORDS = "conroi.records"
LAYOUT = "conroi.layout"
AUTHOR = AUTHOR_PROPERTY
OWN = frozenset({RECORDS, LAYOUT, AUTHOR, IDEMPOTENCY, COMMIT_MESSAGE_PROPERTY, "conroi.writer"})
MOST_RECORDS = 1000
"""Number of tables above which a publication carries no records: readers then read the rows themselves."""


@dataclass(frozen=True)
class Notes:
    """Commit metadata of a publication, besides its rows."""

    message: str | None = None
    author: str | None = None
    idempotency_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_properties(self) -> dict[str, str]:
        given = {
            COMMIT_MESSAGE_PROPERTY: self.message,
            AUTHOR: self.author,
            IDEMPOTENCY: self.idempotency_key,
        }
        return {**self.properties, **{key: value for key, value in given.items() if value is not None}}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Notes:
        return cls(
            message=properties.get(COMMIT_MESSAGE_PROPERTY),
            author=properties.get(AUTHOR),
            idempotency_key=properties.get(IDEMPOTENCY),
            properties={key: value for key, value in properties.items() if key not in OWN},
        )


def encode_records(changes: Changes, kind: str) -> dict[str, str]:
    """The properties that record what changed."""
    if len(changes) > MOST_RECORDS:
        return {}
    records = {object_id: None if row is None else row.to_json() for object_id, row in changes.items()}
    return {RECORDS: json.dumps(records, separators=(",", ":")), LAYOUT: kind}


def decode_records(properties: Mapping[str, str]) -> tuple[dict[str, Row | None], str] | None:
    """What changed, and the kind of its layout; None if the commit does not record it."""
    if RECORDS not in properties or LAYOUT not in properties:
        return None
    records = decode_document(properties[RECORDS], "The list of changes in a commit of the lake").content
    rows = {key: None if fields is None else Row.from_json(key, fields) for key, fields in records.items()}
    return rows, properties[LAYOUT]
