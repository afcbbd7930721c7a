"""A lake whose history is in its own folder, in SQLite and in PostgreSQL: all must behave alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import conroi
from tests.support.databases import PostgresServer, sqlite_address

KINDS = ("folder", "sqlite", "postgresql")
Connect = Callable[[], conroi.Lake]


def sql_address(kind: str, request: pytest.FixtureRequest) -> str:
    """The address of a database that no lake used before."""
    if kind == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return sqlite_address(folder)
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_address()


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Connects to one lake, as another process would, each time it is called."""
    address = None if request.param == "folder" else sql_address(request.param, request)
    return lambda: conroi.connect(tmp_path / "lake", store=address)
