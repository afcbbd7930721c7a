"""A small lake, for the folders whose conftest imports these fixtures."""

from __future__ import annotations

import pytest

import conroi

__all__ = ["lake", "other"]


@pytest.fixture
def lake(uri: str) -> conroi.Lake:
    """Two tables: `orders` with the key id and three rows, `rates` with two."""
    lake = conroi.connect(uri)
    with lake.begin("two tables") as tx:
        tx.create_table("orders", [{"id": i, "n": 10 * i} for i in (1, 2, 3)], key="id")
        tx.create_table("rates", [{"name": "a", "rate": 1}, {"name": "b", "rate": 2}])
    return lake


@pytest.fixture
def other(lake: conroi.Lake) -> conroi.Lake:
    """The same lake, as another process would see it."""
    return conroi.connect(lake.uri)
