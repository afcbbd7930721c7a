"""Work on a branch that takes longer than files may be old: files of the main branch are looked for where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.testing import SeededEnvironment
from conroi.versions.retention import other_ages
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("B12", "M3")


class Hurried(SeededEnvironment):
    """An hour passes with each look at the clock."""

    def monotonic(self) -> float:
        self.sleep(3600)
        return super().monotonic()


@pytest.fixture
def slow(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake", environment=Hurried(5))
    lake.create_table("keyed", [{"id": 1, "n": 1}], key="id")
    lake.create_table("plain", [{"n": 1}])
    lake.branches.create("dev")
    return lake


@pytest.mark.parametrize("is_moved", [False, True], ids=["in place", "moved"])
@pytest.mark.parametrize("name", ["keyed", "plain"])
def test_a_slow_merge_of_main_into_a_branch_lands(slow: conroi.Lake, tmp_path: Path, name: str, is_moved: bool) -> None:
    """I15: both a fast-forward of a written table, and rows of both sides."""
    slow.branch("dev")[name].delete("n = 9")  # changes nothing
    slow.branch("dev")[name].append([{"id": 3, "n": 3}] if name == "keyed" else [{"n": 3}])
    slow.merge("dev")
    slow[name].append([{"id": 2, "n": 2}] if name == "keyed" else [{"n": 2}])
    if is_moved:
        (tmp_path / "lake").rename(tmp_path / "moved")
        slow = conroi.connect(tmp_path / "moved", environment=Hurried(6))
    dev = slow.branch("dev")

    dev.merge("main")
    assert sorted(column_values(dev[name].to_arrow()["n"])) == [1, 2, 3]

    dev[name].append([{"id": 5, "n": 5}] if name == "keyed" else [{"n": 5}])
    slow[name].append([{"id": 4, "n": 4}] if name == "keyed" else [{"n": 4}])
    dev.merge("main")
    assert sorted(column_values(dev[name].to_arrow()["n"])) == [1, 2, 3, 4, 5]


def test_a_version_from_before_the_branch_is_restored_and_stays(tmp_path: Path) -> None:
    """The note that keeps it from being collected is where the version is: in the folder of the main branch."""
    with other_ages(0, 3600):
        lake = conroi.connect(tmp_path / "lake")
        lake.create_table("t", [{"n": 1}])
        lake["t"].append([{"n": 2}])
        lake.branches.create("dev")
        lake["t"].append([{"n": 3}])
        dev = lake.branch("dev")

        dev["t"].restore(1)

        assert dev["t"].to_arrow()["n"].to_pylist() == [1]
        notes = list((tmp_path / "lake/t.lance/_conroi/restoring").iterdir())
        assert [note.name.partition("-")[0] for note in notes] == ["1"]
