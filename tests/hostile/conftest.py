"""One scene is built for all tests of a process; each gets a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.scene import Scene, build, copy


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return build(tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def scene(template: Scene, tmp_path: Path) -> Scene:
    return copy(template, tmp_path)
