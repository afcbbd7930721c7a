"""The stores of files and of records that one suite of tests runs over."""

from __future__ import annotations

import pytest

from tests.support.object_stores import objects
from tests.support.record_stores import KINDS, empty_address

__all__ = ["empty_store", "objects"]


@pytest.fixture(params=KINDS)
def empty_store(request: pytest.FixtureRequest) -> str:
    """The address of an external manifest store with nothing in it, of each kind in turn."""
    return empty_address(request.param, request)
