"""A small table to merge into."""

from __future__ import annotations

import pyarrow as pa
import pytest

import conroi

ROWS = [
    {"id": 1, "n": 10, "s": "a"},
    {"id": 2, "n": 20, "s": None},
    {"id": 3, "n": None, "s": "c"},
]


@pytest.fixture
def table(uri: str) -> conroi.Table:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64()), pa.field("s", pa.string())]
    )
    return conroi.create_table(uri, pa.Table.from_pylist(ROWS, schema=schema), key="id")
