"""A place for a table that pylance can open too, and instruments for what happens in a commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conroi.data.table_version import TableVersion
from conroi.merge.verb import Merging
from conroi.verbs.key_check import KeyGuard


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


@pytest.fixture
def executions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions on which merges did their work, one entry for each time they did it."""
    versions: list[int] = []
    work = Merging.__call__

    def counted(self: Merging, pinned: TableVersion) -> object:
        versions.append(pinned.version)
        return work(self, pinned)

    monkeypatch.setattr(Merging, "__call__", counted)
    return versions


@pytest.fixture
def no_guard(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """For negative controls: takes away the comparison of keys at the commit."""
    return lambda: monkeypatch.setattr(KeyGuard, "__call__", lambda *_: None)
