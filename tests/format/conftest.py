"""Tables of pylance's making, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.format.pylance_tables import make_busy_table


@pytest.fixture(scope="session", params=[False, True], ids=["row-addresses", "stable-row-ids"])
def busy_table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a version of every kind that pylance's verbs make; read only."""
    return make_busy_table(tmp_path_factory.mktemp("busy") / "t.lance", stable_row_ids=request.param)
