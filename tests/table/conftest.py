"""A small table to work on."""

from __future__ import annotations

import pyarrow as pa
import pytest

import conroi

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("amount", pa.float64(), nullable=False),
    ]
)
ROWS = [
    {"id": 1, "name": "a", "amount": 1.0},
    {"id": 2, "name": "b", "amount": 2.0},
    {"id": 3, "name": None, "amount": 3.0},
]


@pytest.fixture
def table(uri: str) -> conroi.Table:
    """Three rows: `id` is the key, `name` may be null, `amount` may not."""
    return conroi.create_table(uri, pa.Table.from_pylist(ROWS, schema=SCHEMA), key="id")
