"""What a random history keeps in mind about its table, besides the rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from tests.interop.model import Column, Model


def small_columns() -> dict[str, Column]:
    return {
        "id": Column(pa.int64(), lambda i: i, nullable=False),
        "v": Column(pa.int64(), lambda i: None if i % 7 == 5 else i % 20),
        "name": Column(pa.string(), lambda i: None if i % 9 == 4 else f"name {i % 6}"),
        "tags": Column(pa.list_(pa.string()), lambda i: None if i % 5 == 1 else [f"t{j}" for j in range(i % 4)]),
    }


@dataclass
class Lineage:
    """What stays with a row: its id, and the versions in which it was made and last changed."""

    row_id: int
    created: int
    updated: int


@dataclass
class Past:
    """What there was in one version."""

    model: Model
    lines: dict[int, Lineage]


@dataclass
class Effect:
    """What a step did to which rows, by id; everything else stayed as it was."""

    new: set[int] = field(default_factory=set[int])
    changed: set[int] = field(default_factory=set[int])
    restored: int | None = None
