"""A lake whose rows other engines read."""

from __future__ import annotations

import pyarrow as pa
import pytest

import conroi

ROWS = [{"id": n, "name": f"n{n}", "amount": n / 2} for n in range(10)]


@pytest.fixture
def lake(uri: str) -> conroi.Lake:
    """Ten orders, and two customers in a namespace."""
    lake = conroi.connect(uri)
    schema = pa.schema({"id": pa.int64(), "name": pa.string(), "amount": pa.float64()})
    lake.create_table("orders", pa.Table.from_pylist(ROWS, schema=schema), key="id")
    lake.create_table("sales.customers", [{"n": 1, "who": "Ada"}, {"n": 2, "who": "Bob"}])
    return lake
