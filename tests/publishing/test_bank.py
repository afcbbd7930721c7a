"""Money moves between tables, and at every version of the lake all of it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.transaction import Isolation
from tests.publishing.bank import TOTAL, Day, day, total

pytestmark = pytest.mark.contract("P1", "W8", "W3")

SEED = 20261116
ISOLATIONS = pytest.mark.parametrize("isolation", ["snapshot", "serializable"])


def assert_all_there(uri: str, worked: Day, *, versions: int) -> None:
    assert not worked.wrong, f"of {TOTAL}: {worked.wrong}"
    assert worked.versions >= versions, "they did work"
    assert all(len(each) >= 2 for each in worked.audits), "they did audit"
    lake = conroi.connect(uri)
    for version in range(lake.version - worked.versions, lake.version + 1):
        assert total(lake.at(version)) == TOTAL, f"lake version {version}"


@ISOLATIONS
def test_the_sum_never_changes(isolation: Isolation, tmp_path: Path) -> None:
    uri = str(tmp_path / "bank")
    worked = day(uri, moves=4, seed=SEED, isolation=isolation)
    assert_all_there(uri, worked, versions=20)


@pytest.mark.soak
@ISOLATIONS
def test_the_sum_never_changes_for_long(isolation: Isolation, tmp_path: Path) -> None:
    uri = str(tmp_path / "bank")
    worked = day(uri, moves=100, seed=SEED, kills=30, kill_within_s=2, isolation=isolation)
    print(f"seed {SEED}: {worked.versions} moves, {worked.kills} kills, {[len(each) for each in worked.audits]} audits")
    assert_all_there(uri, worked, versions=300)


def test_control_moves_in_separate_commits_show_a_wrong_sum(tmp_path: Path) -> None:
    worked = day(str(tmp_path / "bank"), moves=4, seed=SEED, kills=0, is_atomic=False)
    assert worked.wrong
