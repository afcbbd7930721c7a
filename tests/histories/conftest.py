"""The storages that histories run on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conroi.testing.history import Isolation
from tests.histories.crew import Setting
from tests.support.databases import sqlite_address

STORAGES = ("local", "seaweedfs", "sqlite", "postgresql")
SEED = int(os.environ.get("CONROI_HISTORY_SEED", "20261117"))
NewSetting = Callable[[str, Isolation], Setting]


@pytest.fixture
def new_setting(request: pytest.FixtureRequest, tmp_path: Path) -> NewSetting:
    """An empty place on a storage, and where the records of its history go."""

    def new(storage: str, isolation: Isolation) -> Setting:
        more: dict[str, Any] = {}
        uri = str(tmp_path / "lake")
        if storage == "seaweedfs":
            server = request.getfixturevalue("seaweedfs")
            # It dates files in whole seconds, so that ages are longer.
            uri, more = server.new_uri("lake"), {"options": server.options, "version_s": 4.0, "file_s": 8.0}
        elif storage == "sqlite":
            more = {"store": sqlite_address(tmp_path)}
        elif storage == "postgresql":
            more = {"store": request.getfixturevalue("postgres").new_address()}
        return Setting(uri, isolation, SEED, tmp_path / "records", **more)

    return new
