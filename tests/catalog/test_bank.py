"""Money moves between tables, and at every version of the lake all of it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.transaction import Isolation
from tests.catalog.bank import TOTAL, Day, day, total
from tests.support.databases import sql_address
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("P1", "W8", "W3")

SEED = 20261116
ISOLATIONS = pytest.mark.parametrize("isolation", ["snapshot", "serializable"])


def assert_all_there(uri: str, worked: Day, *, versions: int, store: str | None = None) -> None:
    assert not worked.wrong, f"of {TOTAL}: {worked.wrong}"
    assert worked.versions >= versions, "they did work"
    assert all(len(each) >= 2 for each in worked.audits), "they did audit"
    lake = conroi.connect(uri, store=store)
    for version in range(lake.version - worked.versions, lake.version + 1):
        assert total(lake.at(version)) == TOTAL, f"lake version {version}"


@pytest.mark.parametrize(
    "isolation", sampled("isolation of the day", [("snapshot",), ("serializable",)], least=1, covers=False)
)
def test_the_sum_never_changes(isolation: Isolation, tmp_path: Path) -> None:
    uri = str(tmp_path / "bank")
    worked = day(uri, moves=4, seed=SEED, isolation=isolation)
    assert_all_there(uri, worked, versions=20)


@pytest.mark.contract("X6", "P10")
@pytest.mark.parametrize(
    ("kind", "isolation"),
    sampled("bank of the day", [("sqlite", "snapshot"), ("postgresql", "serializable")], least=1, covers=False),
)
def test_the_sum_never_changes_with_the_history_in_a_database(
    kind: str, isolation: Isolation, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri, store = str(tmp_path / "bank"), sql_address(kind, request)
    worked = day(uri, moves=3, seed=SEED, tellers=6, isolation=isolation, store=store)
    assert_all_there(uri, worked, versions=8, store=store)
    assert total(conroi.connect(uri)) == TOTAL, "without its store"


@pytest.mark.soak
@ISOLATIONS
@pytest.mark.parametrize("kind", ["folder", "sqlite", "postgresql"])
def test_the_sum_never_changes_for_long(
    kind: str, isolation: Isolation, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri, store = str(tmp_path / "bank"), None if kind == "folder" else sql_address(kind, request)
    worked = day(uri, moves=100, seed=SEED, kills=30, kill_within_s=2, isolation=isolation, store=store)
    audits = [len(each) for each in worked.audits]
    print(f"{kind}, seed {SEED}: {worked.versions} moves, {worked.kills} kills, {audits} audits")
    assert_all_there(uri, worked, versions=300, store=store)


def test_control_moves_in_separate_commits_show_a_wrong_sum(tmp_path: Path) -> None:
    worked = day(str(tmp_path / "bank"), moves=4, seed=SEED, kills=0, is_atomic=False)
    assert worked.wrong
