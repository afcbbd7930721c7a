"""A place for a table that pylance can open too, and caches that know nothing yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from conroi.data.columns import COLUMNS
from conroi.data.keys import PARTS
from conroi.snapshots.deletions import VECTORS


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    for cache in (VECTORS, PARTS, COLUMNS):
        cache.clear()
