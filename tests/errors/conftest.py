"""A place for a table."""

from __future__ import annotations

import pytest

import conroi


@pytest.fixture
def table(uri: str) -> conroi.Table:
    return conroi.create_table(uri, [{"id": 1, "n": 10}, {"id": 2, "n": 20}], key="id", message="the beginning")
