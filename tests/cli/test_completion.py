"""Completion by the tab key."""

from __future__ import annotations

import pytest

import conroi
from conroi.cli.options import addresses
from tests.cli.conftest import Run


def test_tab_proposes_folders_lakes_tables_and_versions(
    cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("tables", "lake").code == 0  # in the folder of the lake
    lake.tags.create("q3")
    assert addresses("la") == ["lake"]
    assert addresses("lake/") == ["lake/orders", "lake/sales.customers"]
    assert addresses("lake/o") == ["lake/orders"]
    assert addresses("lake@") == ["lake@q3", "lake@4", "lake@3", "lake@2", "lake@1"]
    assert addresses("lake/orders@") == ["lake/orders@2", "lake/orders@1"]
    assert addresses("nowhere/at@") == []
    monkeypatch.setenv("CONROI_LAKE", "lake")
    assert "orders" in addresses("or")
