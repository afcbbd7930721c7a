"""Fixtures for the meetings of conroi and pylance."""

from __future__ import annotations

import pytest

from tests.interop.tables import Stable


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Stable:
    """Ready-made tables, by kind."""
    return Stable(tmp_path_factory.mktemp("tables"))
