"""A place for a table."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def uri() -> str:
    """A place in memory that nobody used before."""
    return f"memory://{uuid.uuid4().hex}"
