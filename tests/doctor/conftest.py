"""One small lake for all tests of this folder, copied for each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.doctor import damage


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake in which doctor finds nothing, which is looked at before anything is damaged."""
    folder = tmp_path_factory.mktemp("healthy") / "lake"
    damage.build(folder)
    for deep in (False, True):
        assert damage.examine(folder, deep=deep).findings == ()
    return folder


@pytest.fixture
def lake(healthy: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(healthy, tmp_path / "lake"))
