"""Merges and doctor beside the remains of branches that were deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import conroi
from conroi.stores.ages import settable_times
from conroi.stores.objects import Objects
from conroi.testing import WrappedObjects, connect_through
from tests.maintenance.aging import files_below, make_older

pytestmark = pytest.mark.contract("M7")


@pytest.fixture(autouse=True)
def settable() -> Iterator[None]:
    with settable_times():
        yield


class Killed(BaseException):
    """The collector dies."""


class OneByOne(WrappedObjects):
    """Deletes the files of one request in an order of its own, and dies before its n-th one on the branch."""

    def __init__(self, inner: Objects, left: list[int]) -> None:
        super().__init__(inner)
        self._left = left

    def delete(self, paths: Sequence[str]) -> None:
        for path in reversed(paths):
            if "/__manifest/tree/" in self.root:
                self._left[0] -= 1
                if self._left[0] <= 0:
                    raise Killed
            self.inner.delete([path])


def lake_with_branch(uri: Path) -> conroi.Lake:
    """`dev` is merged and deleted; its files are of two ages."""
    lake = conroi.connect(str(uri))
    lake.create_table("t", [{"id": 1}], key="id")
    lake.branches.create("dev")
    with lake.branch("dev").begin() as tx:
        for number in range(70):  # more rows than the small fragment of __manifest takes
            tx.create_table(f"t{number}", [{"id": number}])
    make_older(uri, hours=72)
    lake.branch("dev")["t"].append([{"id": 2}])
    lake.merge("dev")
    lake.branches.delete("dev")
    return lake


def merge_another(lake: conroi.Lake, name: str) -> None:
    lake.branches.create(name)
    lake.branch(name)["t"].append([{"id": len(name)}])
    conroi.connect(lake.uri).merge(name)


def errors(lake: conroi.Lake) -> set[str]:
    return {each.kind for each in lake.doctor().findings if each.severity == "error"}


def test_merges_go_on_after_gc(tmp_path: Path) -> None:
    """F7: data files of the deleted branch went before the manifests that need them."""
    lake = lake_with_branch(tmp_path / "lake")
    lake.gc(min_age="1d", dry_run=False)
    assert errors(lake) == set()
    merge_another(lake, "next")
    assert set(conroi.connect(lake.uri)["t"].to_arrow()["id"].to_pylist()) == {1, 2, 4}


def test_a_deleted_branch_goes_as_a_whole(tmp_path: Path) -> None:
    lake = lake_with_branch(tmp_path / "lake")
    (branch,) = (tmp_path / "lake" / "__manifest" / "tree").iterdir()
    before = files_below(branch)
    lake.gc(min_age="1d", dry_run=False)
    assert files_below(branch) == before, "its youngest file is young"
    make_older(tmp_path / "lake", hours=72)
    lake.gc(min_age="1d", dry_run=False)
    assert files_below(branch) == set()
    merge_another(lake, "next")


@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8])
def test_a_killed_collector_breaks_no_merge(tmp_path: Path, nth: int) -> None:
    """F7: killed at its n-th deletion in the remains of a branch, one file at a time."""
    lake = lake_with_branch(tmp_path / "lake")
    make_older(tmp_path / "lake", hours=72)
    (branch,) = (tmp_path / "lake" / "__manifest" / "tree").iterdir()
    left = [nth]
    with pytest.raises(Killed):
        connect_through(lake.uri, lambda objects: OneByOne(objects, left)).gc(min_age="1d", dry_run=False)
    assert errors(lake) == set()
    merge_another(lake, "next")
    make_older(tmp_path / "lake", hours=72)
    lake.gc(min_age="1d", dry_run=False)
    assert files_below(branch) == set(), "the next collector finishes it"


def test_a_lost_base_is_refused(tmp_path: Path) -> None:
    """I4: an older base would undo what the target changed back since."""
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"id": 1, "v": 1}], key="id")
    lake.branches.create("dev")
    lake.branch("dev")["t"].update({"v": "2"})
    lake.branches.create("n", from_="dev")
    lake.merge("dev")
    lake.branches.delete("dev")
    lake["t"].update({"v": "1"})
    make_older(tmp_path / "lake", hours=72)
    lake.gc(min_age="1d", dry_run=False)
    with pytest.raises(conroi.NotFoundError, match="of branch dev"):
        conroi.connect(lake.uri).merge("n")
    assert lake["t"].to_arrow()["v"].to_pylist() == [1]
