"""A lake to show."""

from __future__ import annotations

import pytest

import conroi


@pytest.fixture
def lake(uri: str) -> conroi.Lake:
    """Four versions: orders (10 rows, then 9), and sales.customers."""
    lake = conroi.connect(uri)
    lake.create_table("orders", [{"id": n, "amount": n / 2} for n in range(10)], key="id")
    with lake.begin("no free orders", author="ada") as tx:
        tx["orders"].delete("amount = 0")
    lake.create_table("sales.customers", [{"name": "Ada", "n": 1}, {"name": "Grace", "n": None}])
    return lake
