"""A lake whose history is in its own folder, in SQLite and in PostgreSQL: all must behave alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import conroi
from tests.support.databases import sql_address

KINDS = ("folder", "sqlite", "postgresql")
Connect = Callable[[], conroi.Lake]


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Connects to one lake, as another process would, each time it is called."""
    address = None if request.param == "folder" else sql_address(request.param, request)
    return lambda: conroi.connect(tmp_path / "lake", store=address)
